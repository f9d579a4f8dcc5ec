// Why launches wait: what held each back, kept in constant memory as it happens, for whoever asks
// later. Nothing here is allocated on the launch path.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/decision.h"
#include "daemon/core/event.h"

namespace heddle::core {

// The stall watchdog: a launch was let go by the starvation bound, and who is to blame.
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

// What a dispatch hook asked the core for before it answered; -1: it did not ask.
struct Saw {
  float gap_us = -1, inflight_us = -1;
};

// The last time that something waited and nothing was let go.
struct Held {
  TimeNs at = -1;  // -1: never
  Saw saw;
  uint32_t generation = 0;  // of the policies that this scheduler had
  uint16_t reason = 0;      // Reasons
  uint16_t waiting = 0;     // launches
  bool by_policy = false;   // it said IDLE; else the built-in found nothing that may go
};

// A launch that was not granted in the event that it asked in.
struct PastWait {
  TimeNs asked_at = 0, granted_at = 0;
  Held held;            // the last time while it waited
  uint32_t kernel = 0;  // the client's index
  uint16_t reason = 0;  // that came with the grant
  Decider decider = Decider::kBuiltin;
  bool placed = false;    // the policy had put it into a queue
  bool withheld = false;  // its client was over a ceiling
  bool early = false;     // the core held it (Pauses)
};

// A client's last waits.
class PastWaits {
 public:
  static constexpr size_t kKept = 10;
  void add(const PastWait& wait) { waits_[count_++ % kKept] = wait; }
  uint64_t count() const { return count_; }
  std::vector<PastWait> all() const;  // the newest first

 private:
  std::array<PastWait, kKept> waits_{};
  uint64_t count_ = 0;
};

// The reasons that policies gave, by small numbers that outlive a policy. A policy has numbers of
// its own, which are looked up here once each; 0: no reason.
class Reasons {
 public:
  static constexpr uint16_t kStuck = 1;  // the core's own
  // Of the policy's reason `own`; `text` is called the first time.
  template <class Text>
  uint16_t number(uint16_t own, Text&& text) {
    if (own == 0 || own >= of_policy_.size()) return 0;
    if (of_policy_[own] == 0) of_policy_[own] = intern(text(own));
    return of_policy_[own];
  }
  const std::string& text(uint16_t number) const { return texts_[number]; }
  void forget_policy() { of_policy_ = {}; }

 private:
  static constexpr size_t kTextsMax = 512;  // then "another reason" stands for what is new
  uint16_t intern(std::string_view text);

  std::vector<std::string> texts_{
      "", "its client's oldest launch takes far longer than predicted, and may wait for it"};
  std::array<uint16_t, 128> of_policy_{};
};

// ---- for whoever asks ----

struct HeldTold {
  double us_ago = -1;  // -1: never
  Held held;
  std::string reason;
};

struct WaitTold {
  std::string kernel;  // "" if unknown
  double us_ago = 0;   // since it was granted; of one that waits: 0
  double waited_us = 0;
  std::string queue;   // of the policy, "" if the built-in serves it; of one that waits
  std::string why;     // of one that waits: what the built-in would say
  HeldTold held;       // us_ago -1: not while it waited
  std::string reason;  // that came with the grant
  Decider decider = Decider::kBuiltin;
  bool placed = false;
  bool withheld = false;  // its client was over a ceiling, or is
  bool early = false;     // the core held it (Pauses), or does
};

struct Explanation {
  bool known = false;  // there is such a client
  uint32_t generation = 0;
  uint64_t granted = 0, waited = 0;  // of those that were granted, so many were not at once
  std::vector<WaitTold> now, past;   // the oldest, the newest first
};

}  // namespace heddle::core
