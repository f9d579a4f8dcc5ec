// Shadow: a candidate policy beside the live one. It is asked on the same events. Its answers are
// recorded and compared, and none is carried out.
//
// The candidate lives in the live policy's world: the live policy determines which launches wait
// and run. The candidate has queues, allowances and granted launches of its own. A launch that it
// grants leaves its queues and counts as in flight for its predicted time. The launch itself goes
// on waiting until the live policy grants it, and then both times are compared. If the candidate
// still holds it by then, it would have waited for at least as long under the candidate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/event.h"
#include "daemon/core/waits.h"

namespace heddle::core {

// The time that a candidate may cost. Beyond that it is not asked, and launches that wait meanwhile
// are not compared.
struct ShadowLimits {
  TimeNs (*clock)() = nullptr;  // of the host; nullptr: its time is not limited
  double share = 0.05;          // of the time that passes
  TimeNs burst_ns = 5'000'000;  // the most that is saved up
};

// Granted launches of a client that had asked.
struct ShadowCounts {
  uint64_t alike = 0;   // both granted it in the same step
  uint64_t sooner = 0;  // the candidate granted it before
  uint64_t later = 0;   // the candidate would still have held it
  uint64_t unseen = 0;  // not compared: the candidate was not asked, for its cost or in a bypass
  Waits live, candidate;
};

struct ShadowOfClient {
  ClientId id = 0;  // 0: all clients beyond those that are counted apart
  bool there = false;
  int priority = kPriorityLowest;
  std::string name, label;
  ShadowCounts counts;
  Allowance live_allowed = Allowance::kGated, allowed = Allowance::kGated;  // now
};

struct ShadowReport {
  TimeNs since = 0, now = 0;
  // Why it ended; "" while it goes on. The text of a fault is with the candidate itself.
  std::string ended;
  bool faulted = false;
  uint64_t calls = 0, skipped = 0;      // hooks called, and skipped for their cost
  double spent_us = 0, longest_us = 0;  // time of all calls, and of the longest
  std::vector<ShadowOfClient> clients;
};

}  // namespace heddle::core
