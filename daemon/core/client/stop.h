// Whether a client's running kernels can be stopped, and are (ipc/stop.h).
#pragma once

#include <cstdint>

#include "daemon/core/event.h"
#include "ipc/stop.h"

namespace heddle::core {

// Which running kernels of a client are stopped while a more important client is at work.
enum class StopWhen : uint8_t {
  kNever,
  kLong,    // those that clearly outlast a stop, unless they wait for peers
  kAlways,  // all
};

struct Stop {
  ipc::StopAble able = ipc::kStopNotSaid;
  ipc::StopOrder order;         // the last order
  TimeNs since = 0;             // when it was last stopped
  TimeNs above_since = 0;       // since when a more important client is at work; 0: none is
  TimeNs free_until = 0;        // after too long a stop: it is not stopped again before
  TimeNs unanswered_since = 0;  // of an order that its shim has not carried out; 0: none
  uint64_t count = 0;
  double stood_us = 0;  // total time, up to the last time that it went on
};

}  // namespace heddle::core
