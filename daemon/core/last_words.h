// What a policy leaves behind that lost its place to its faults.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/core/decision.h"
#include "daemon/core/event.h"

namespace heddle::core {

inline constexpr size_t kLastDecisions = 64;

struct LastWords {
  struct Queued {
    std::string name;
    size_t waiting;
  };
  TimeNs at = -1;                   // -1: none has
  std::string dump;                 // what its dump hook said
  std::vector<Queued> queues;       // of it, as they were
  std::vector<Decision> decisions;  // the last grants by whomever, the oldest first
};

}  // namespace heddle::core
