// The clock of the daemon's loop, and of the records that clients write.
#pragma once

#include <time.h>

#include "daemon/core/event.h"

namespace heddle::server {

inline core::TimeNs monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace heddle::server
