// The stall watchdog: a launch was let go by the starvation bound, and who is to blame.
#pragma once

#include <cstdint>

#include "daemon/core/event.h"

namespace heddle::core {

enum class Staller : uint8_t {
  kNobody,  // those above it worked all the time
  kPolicy,  // it said IDLE for kStallNs and more while nobody had work on the device
  kClient,  // its synchronizing call has not returned, so long after the end of its work was due
  kGpu,     // the same of several clients
};

// What a launch waits on an idle device, or work is overdue, before it is a stall.
inline constexpr TimeNs kStallNs = 500'000'000;

struct Stall {
  TimeNs at = -1;  // -1: there was none
  Staller by = Staller::kNobody;
  ClientId waited = 0;    // whose launch
  ClientId staller = 0;   // kClient
  double waited_us = 0;   // the launch
  double stalled_us = 0;  // the device was idle, or the work overdue
};

// By all that kind, since the device is known.
struct StallCounts {
  uint64_t policy = 0, client = 0, gpu = 0;
};

}  // namespace heddle::core
