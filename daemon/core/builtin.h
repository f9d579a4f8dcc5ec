// The built-in default: what happens where no policy speaks.
//
// Of the active clients the most important goes as it likes, equals at the top all do (FIKIT case
// C), everyone below is let go one unit at a time while nobody above has work outstanding.
#pragma once

#include "daemon/core/client/client.h"
#include "daemon/core/scheduler.h"

namespace heddle::core {

// The standing allowance of a client, given the highest priority that is active, and that is
// attached. Below Q4 even the most important has tickets beside others: what it submitted is held
// once somebody above comes. Where it cannot be, since no stream of it waits (`recalled` is false),
// little of it goes ahead of time (Pauses).
inline Allowance builtin_allowance(const Client& client, int active, int attached, bool recalled,
                                   const Config& config) {
  constexpr int kLeasedLowest = 4;
  const int priority = client.rule.priority;
  if (active < priority) return Allowance::kGated;
  if (priority <= kLeasedLowest || config.alone) return Allowance::kLeased;
  return recalled || attached >= priority ? Allowance::kOpen : Allowance::kGated;
}

// Six levels of launch priority for ten queues: Q0..Q4 are -5..-1, Q5..Q9 are 0, which is what
// programs that set none have. Only under MPS do kernels of two processes compete for SMs.
inline int8_t builtin_launch_priority(int priority, const Config& config) {
  constexpr int kHighest = -5;
  if (!config.mps || !config.launch_priorities || priority >= -kHighest) return 0;
  return static_cast<int8_t>(kHighest + priority);
}

}  // namespace heddle::core
