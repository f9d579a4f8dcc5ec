// How much work stands between two gates on the GPU (gate.h), in predicted µs: what the shim
// places, and the core and the simulator count with.
#pragma once

namespace heddle::ipc {

// A unit, at most, unless one launch is longer: the smallest step of what is let go, and stopped.
inline constexpr float kGateUnitUs = 150;
// Between two gates inside a graph; shorter graphs than that have none inside.
inline constexpr float kGatePieceUs = 200;
inline constexpr float kGatesInsideFromUs = 2 * kGatePieceUs;

}  // namespace heddle::ipc
