// Why launches wait (`heddle explain`): what held each back is recorded as it happens, in constant
// memory. Nothing here is allocated on the launch path.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/decision.h"
#include "daemon/core/event.h"

namespace heddle::core {

// The stall watchdog: the starvation bound let a launch go, and this is to blame.
enum class Staller : uint8_t {
  kNobody,  // more important clients worked all the time
  kPolicy,  // the policy said IDLE for kStallNs or more while the device had no work
  kClient,  // a client's synchronizing call has not returned, kStallNs after its work was due
  kGpu,     // the same of several clients
};

// How long the device is idle, or work is overdue, before it counts as a stall.
inline constexpr TimeNs kStallNs = 500'000'000;

struct Stall {
  TimeNs at = -1;  // -1: there was none
  Staller by = Staller::kNobody;
  ClientId waited = 0;    // the client whose launch waited
  ClientId staller = 0;   // kClient: the one to blame
  double waited_us = 0;   // how long the launch waited
  double stalled_us = 0;  // how long the device was idle, or the work overdue
};

// Stalls so far on this device, by cause.
struct StallCounts {
  uint64_t policy = 0, client = 0, gpu = 0;
};

// Values that a dispatch hook read from the core before it answered; -1: it did not.
struct Saw {
  float gap_us = -1, inflight_us = -1;
};

// The last time that launches waited and none was let go.
struct Held {
  TimeNs at = -1;  // -1: never
  Saw saw;
  uint32_t generation = 0;  // the policy's number (Seat::number)
  uint16_t reason = 0;      // Reasons
  uint16_t waiting = 0;     // launches that waited
  bool by_policy = false;   // the policy said IDLE; else the built-in found no launch that may go
};

// A launch that was not granted in the step in which it asked.
struct PastWait {
  TimeNs asked_at = 0, granted_at = 0;
  Held held;            // the last time that nothing was let go while it waited
  uint32_t kernel = 0;  // the client's index
  uint16_t reason = 0;  // given with the grant
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

// The texts of reasons that policies gave, by small numbers that outlive a policy. A policy's own
// number for a reason is looked up here once. 0: no reason.
class Reasons {
 public:
  static constexpr uint16_t kStuck = 1;  // the core's own reason (texts_)
  // The number of the policy's reason `own`. `text` is called the first time.
  template <class Text>
  uint16_t number(uint16_t own, Text&& text) {
    if (own == 0 || own >= of_policy_.size()) return 0;
    if (of_policy_[own] == 0) of_policy_[own] = intern(text(own));
    return of_policy_[own];
  }
  const std::string& text(uint16_t number) const { return texts_[number]; }
  void forget_policy() { of_policy_ = {}; }

 private:
  static constexpr size_t kTextsMax = 512;  // beyond that, new ones are "another reason"
  uint16_t intern(std::string_view text);

  std::vector<std::string> texts_{
      "", "its client's oldest launch takes far longer than predicted, and may wait for it"};
  std::array<uint16_t, 128> of_policy_{};
};

// ---- the answer of `heddle explain` ----

struct HeldTold {
  double us_ago = -1;  // -1: never
  Held held;
  std::string reason;
};

struct WaitTold {
  std::string kernel;  // "" if unknown
  double us_ago = 0;   // since it was granted; 0: it waits
  double waited_us = 0;
  std::string queue;   // if it waits: the policy's queue, "": the built-in serves it
  std::string why;     // if it waits: the built-in's reason
  HeldTold held;       // us_ago -1: something was let go all the time that it waited
  std::string reason;  // given with the grant
  Decider decider = Decider::kBuiltin;
  bool placed = false;
  bool withheld = false;  // its client is, or was, over a ceiling
  bool early = false;     // the core holds or held it (Pauses)
};

struct Explanation {
  bool known = false;  // there is such a client
  uint32_t generation = 0;
  uint64_t granted = 0, waited = 0;  // grants in all, and those that were not given at once
  std::vector<WaitTold> now, past;   // `now`: the oldest held; `past`: the newest first
};

}  // namespace heddle::core
