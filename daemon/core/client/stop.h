// Whether what runs of a client can stand in its middle, and does (ipc/stop.h).
#pragma once

#include <cstdint>

#include "daemon/core/event.h"
#include "ipc/stop.h"

namespace heddle::core {

// For whom a policy has what runs of a client stand, while somebody more important is at work.
enum class StopWhen : uint8_t {
  kNever,
  kLong,    // what clearly outlasts a stop, and shares nothing with others
  kAlways,  // all
};

struct Stop {
  ipc::StopAble able = ipc::kStopNotSaid;
  ipc::StopOrder order;         // the last
  TimeNs since = 0;             // it stands
  TimeNs above_since = 0;       // somebody more important is at work; 0: nobody
  TimeNs free_until = 0;        // it stood for too long: it is not stopped before
  TimeNs unanswered_since = 0;  // it was ordered what its shim did not carry out yet; 0: nothing
  uint64_t count = 0;
  double stood_us = 0;  // in all, up to the last time that it went on
};

}  // namespace heddle::core
