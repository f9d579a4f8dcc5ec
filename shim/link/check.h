// Checks of the shim's own invariants, which must hold whatever the application and the daemon do.
// A failed check is a bug of the shim. It is counted for `heddle ps`, and the launch goes as the
// application wrote it.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::shim {

inline constexpr unsigned kBrokenChecks = 7;  // the byte of ipc::ClientMemory's `graphs`
inline constinit std::atomic<uint32_t> broken_checks{0};  // not reported yet

// Returns `invariant`, and counts a failure. Any thread.
[[nodiscard]] inline bool holds(bool invariant) {
  if (!invariant) [[unlikely]]
    broken_checks.fetch_add(1, std::memory_order_relaxed);
  return invariant;
}

}  // namespace heddle::shim
