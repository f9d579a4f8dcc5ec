// A candidate beside the policy that decides: it is asked on the same events, what it says is kept
// and compared, and nothing of it is done.
//
// It lives in the live policy's world. What waits and what runs there is the live policy's doing;
// its queues, its allowances and what it let go are its own. A launch that it lets go leaves its
// queues and counts as in flight for its predicted time; the launch itself goes on waiting until
// the live policy lets it go, and then both are compared. One that it still holds by then has
// waited for at least as long under it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/event.h"
#include "daemon/core/waits.h"

namespace heddle::core {

// What a candidate may cost. Beyond it, it is not asked, and what waits meanwhile is not compared.
struct ShadowLimits {
  TimeNs (*clock)() = nullptr;  // of the host; nullptr: its time is not taken, nor limited
  double share = 0.05;          // of the time that passes,
  TimeNs burst_ns = 5'000'000;  // and so much more at once
};

// Launches of a client that asked and were let go.
struct ShadowCounts {
  uint64_t alike = 0;   // by both at the same event
  uint64_t sooner = 0;  // the candidate would have run it before
  uint64_t later = 0;   // the candidate would still have held it
  uint64_t unseen = 0;  // not compared: the candidate was not asked, for its cost or for a bypass
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
  // Why it ended, "" while it goes on. Its own fault is with the candidate.
  std::string ended;
  bool faulted = false;
  uint64_t calls = 0, skipped = 0;      // of hooks; for their cost
  double spent_us = 0, longest_us = 0;  // of calls
  std::vector<ShadowOfClient> clients;
};

}  // namespace heddle::core
