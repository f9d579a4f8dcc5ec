// What a client has on the device, and how that is known: launches, evidence, and until when it is
// to be taken for busy.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "daemon/core/client/outstanding.h"

namespace heddle::core {

inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

// Granted work ends by evidence, because a filler that outlasts its prediction must not be taken
// for done. When its client is off the GPU and cannot report, it is given this much longer.
inline constexpr TimeNs kEvidencePatienceNs = 20'000'000;
// The same for a thread in a synchronizing call, which may have died there.
inline constexpr TimeNs kWaitPatienceNs = 1'000'000'000;
// A kernel that runs for so many times its prediction, and for so long, may wait for a launch of
// its client that stands at a gate. Time slices are 2 ms, so that it had one.
inline constexpr TimeNs kStuckTimes = 8;
inline constexpr TimeNs kStuckNs = 3'000'000;
// A row of launches that are not told goes on for this long at most (ipc/sparse.h), the last one's
// kernel included.
inline constexpr TimeNs kRowNs = 2'000'000;

// Predicted work counts for so long at most after its client was last seen to launch, or to be done
// with something: whoever claims more than it launches holds nobody up for longer.
inline constexpr TimeNs kClaimedNs = 2'000'000'000;

// A launch of a kernel that was not timed yet, and what it was taken for.
struct UntimedLaunch {
  uint32_t kernel = kUnknownKernel;
  double predicted_us = 0;
};

// A graph that stands at a gate inside: how much of it is done, and since when it wants to go.
struct Recalled {
  uint16_t stream = 0;
  uint64_t seq = 0;
  double ran_us = 0;
  TimeNs since = 0;
};

// The oldest launch, and since when it is known to be so while another stands at a gate.
struct Oldest {
  uint64_t seq = 0;
  uint16_t stream = 0;
  TimeNs since = 0;
};

struct OnDevice {
  Outstanding outstanding;
  Undated undated;
  // When all that is outstanding is predicted to be done, as if it ran one after the other.
  TimeNs busy_until = 0;
  // A thread is inside a synchronizing call since then: work is outstanding whatever was predicted,
  // until the call returns. 0: none.
  TimeNs waiting_since = 0;
  // For infer_durations: when the queue was predicted to end as that call began, and the launches
  // since it was last predicted to be empty, Outstanding::kWorkMax of them at most.
  TimeNs predicted_end = 0;
  std::vector<UntimedLaunch> untimed;
  // Until then what nobody told of may be on the device; kNever while its launches are not told.
  TimeNs unseen_until = 0;
  // Until then a thread may be launching without telling, each launch after a gap that is too
  // short.
  TimeNs row_until = 0;
  TimeNs done_at = 0;  // when work of it was last seen to be done
  // Since then a rank of a collective was launched, or the like: it ends when its peers have come,
  // who may be those that this client would hold up.
  bool awaits_others = false;
  double longest_us = 0, longest_hold_us = 0;  // that it ever launched, as predicted
  std::vector<Recalled> recalled;              // one of a stream at most
  bool stands = false;                         // in its middle (core/stops.h)
  bool at_gate = false;                        // what comes next stands at a closed gate
  Oldest oldest;

  bool unobserved() const { return unseen_until == kNever; }
  // When it is no longer to be taken for busy if nothing is heard; kNever when only evidence can
  // tell. The predicted end is believed of who goes freely, for little of that is marked.
  TimeNs busy_deadline(bool believed) const {
    if (unobserved() || stands) return kNever;
    if (awaits_others) return busy_until;
    // Who stands there waits for the gate.
    if (at_gate) {
      return outstanding.empty() ? unseen_until
                                 : std::max(unseen_until, busy_until + patience_ns_at_gate());
    }
    if (waiting_since != 0) return std::max(busy_until, waiting_since) + kWaitPatienceNs;
    if (outstanding.empty()) return unseen_until;
    // Who was stopped in its middle may have had a part of the GPU only.
    const bool stood = outstanding.oldest()->stopped;
    const TimeNs patience = stood ? kWaitPatienceNs : kEvidencePatienceNs;
    return std::max(unseen_until, believed ? busy_until : busy_until + patience);
  }
  // That it is predicted to be so, as far as that is believed of a client that was seen at `seen`.
  void set_busy_until(TimeNs at, TimeNs seen) { busy_until = std::min(at, seen + kClaimedNs); }
  // The oldest launch may wait for one of the stream that stands at a gate: that goes for now. To
  // be asked each millisecond.
  bool stuck_behind(uint16_t stream, TimeNs now);
  TimeNs stuck_ns() const;  // so long after it is the oldest; there is one
  TimeNs patience_ns_at_gate() const {
    return std::clamp(2 * stuck_ns(), kEvidencePatienceNs, kWaitPatienceNs);
  }
  // Predicted time still to run.
  double remaining_us(TimeNs now, bool believed) const;
  // Its channels go off; they are on again after so long.
  void stand();
  void go_on(TimeNs stood, TimeNs now);
  // A launch goes to the device, predicted to run behind all that is there.
  void follow(const Work& work);
  // What is known of launch `seq` of the stream, which goes, or goes on; nothing if it is new.
  Recalled take_recalled(uint16_t stream, uint64_t seq);
};

}  // namespace heddle::core
