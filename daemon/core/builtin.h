// The built-in default: what happens where no policy speaks.
//
// Of the active clients the most important runs free, equals at the top all do (FIKIT case C),
// everyone below asks and is let go one launch at a time while nobody above has work outstanding.
#pragma once

#include "daemon/core/client/client.h"
#include "daemon/core/scheduler.h"

namespace heddle::core {

// The standing allowance of a client, given the highest priority that is active, and that is
// attached. Below Q4 even the most important client gets a finite window, half as long if someone
// above may come: what it submitted cannot be recalled. Who is alone has a long one, or kernels
// that are longer than it would hardly run beside each other.
inline uint32_t builtin_window(int priority, int active, int attached, const Config& config) {
  constexpr int kLeasedLowest = 4;
  if (active < priority) return kWindowGated;
  if (priority <= kLeasedLowest) return kWindowLeased;
  if (config.alone) return static_cast<uint32_t>(config.window_alone_us);
  return static_cast<uint32_t>(config.window_low_us / (attached < priority ? 2 : 1));
}

// A window bounds what is queued, not what runs side by side: kernels of so many streams may, where
// nobody more important works whom they would hold up.
inline uint8_t builtin_free_streams(int priority, int active, uint32_t window_us) {
  constexpr uint8_t kFreeStreams = 8;
  const bool finite = window_us != kWindowGated && window_us != kWindowLeased;
  return finite && active >= priority ? kFreeStreams : 0;
}

// Six levels of launch priority for ten queues: Q0..Q4 are -5..-1, Q5..Q9 are 0, which is what
// programs that set none have. Only under MPS do kernels of two processes compete for SMs.
inline int8_t builtin_launch_priority(int priority, const Config& config) {
  constexpr int kHighest = -5;
  if (!config.mps || !config.launch_priorities || priority >= -kHighest) return 0;
  return static_cast<int8_t>(kHighest + priority);
}

}  // namespace heddle::core
