// How much work lies between two gates on the GPU (gate.h), in predicted µs. The shim places gates
// by these numbers; the core and the simulator calculate with them.
#pragma once

namespace heddle::ipc {

// The longest unit, unless one launch is longer. The daemon lets go, or stops, no smaller step.
inline constexpr float kGateUnitUs = 150;
// The distance of two gates inside a graph. Graphs shorter than kGatesInsideFromUs have none.
inline constexpr float kGatePieceUs = 200;
inline constexpr float kGatesInsideFromUs = 2 * kGatePieceUs;

}  // namespace heddle::ipc
