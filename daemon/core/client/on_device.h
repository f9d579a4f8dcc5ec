// A client's work on the device, and how the core knows of it: launches, evidence, and until when
// the client counts as busy.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "daemon/core/client/outstanding.h"

namespace heddle::core {

inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

// Granted work ends by evidence: a launch in a gap that outlasts its prediction must not count as
// done. If no evidence comes, it counts as done this long after its predicted end.
inline constexpr TimeNs kEvidencePatienceNs = 20'000'000;
// The same while a thread is in a synchronizing call. That thread may have died there.
inline constexpr TimeNs kWaitPatienceNs = 1'000'000'000;
// A kernel that runs for kStuckTimes its prediction, and for kStuckNs, may wait for a launch of its
// client that stands at a gate. Time slices are 2 ms, so the kernel had one by then.
inline constexpr TimeNs kStuckTimes = 8;
inline constexpr TimeNs kStuckNs = 3'000'000;
// A row of launches without records lasts at most this long (ipc/sparse.h), with the last kernel.
inline constexpr TimeNs kRowNs = 2'000'000;

// Predicted work counts for at most this long after its client last launched or completed work. So
// a client that claims more work than it launches delays no other client for longer.
inline constexpr TimeNs kClaimedNs = 2'000'000'000;

// A launch of a kernel that was not timed yet, with its prediction.
struct UntimedLaunch {
  uint32_t kernel = kUnknownKernel;
  double predicted_us = 0;
};

// A graph that stopped at a gate inside: how long it ran, and since when it has wanted to go.
struct Recalled {
  uint16_t stream = 0;
  uint64_t seq = 0;
  double ran_us = 0;
  TimeNs since = 0;
};

// The oldest launch, and since when it has been that while another stands at a gate.
struct Oldest {
  uint64_t seq = 0;
  uint16_t stream = 0;
  TimeNs since = 0;
};

struct OnDevice {
  Outstanding outstanding;
  Undated undated;
  // When all outstanding work is predicted to be done, one launch after the other.
  TimeNs busy_until = 0;
  // When a thread entered a synchronizing call: work counts as outstanding until the call returns,
  // whatever was predicted. 0: none.
  TimeNs waiting_since = 0;
  // For infer_durations: the predicted end of the queue when that call began, and the untimed
  // launches since the queue was last predicted to be empty, Outstanding::kWorkMax at most.
  TimeNs predicted_end = 0;
  std::vector<UntimedLaunch> untimed;
  // Until then launches without records may be on the device; kNever: the client is unobserved.
  TimeNs unseen_until = 0;
  // Until then a thread may be launching in a row, without records.
  TimeNs row_until = 0;
  TimeNs done_at = 0;  // when its work was last seen to be done
  // A rank of a collective, or another exempt launch, is on the device. It ends when its peers
  // come, and those may be clients that this one would hold up.
  bool awaits_others = false;
  double longest_us = 0, longest_hold_us = 0;  // the longest predictions of all its launches
  std::vector<Recalled> recalled;              // one a stream at most
  bool stands = false;                         // its running kernels are stopped (core/stops.h)
  bool at_gate = false;                        // its next launch stands at a closed gate
  Oldest oldest;

  bool unobserved() const { return unseen_until == kNever; }
  // When the client stops counting as busy if nothing is heard; kNever: only evidence can tell.
  // `believed`: its predicted end is taken as it is (Client::is_believed).
  TimeNs busy_deadline(bool believed) const {
    if (unobserved() || stands) return kNever;
    if (awaits_others) return busy_until;
    // A thread of such a client waits for the gate, so waiting_since tells nothing.
    if (at_gate) {
      return outstanding.empty() ? unseen_until
                                 : std::max(unseen_until, busy_until + patience_ns_at_gate());
    }
    if (waiting_since != 0) return std::max(busy_until, waiting_since) + kWaitPatienceNs;
    if (outstanding.empty()) return unseen_until;
    // A client that was stopped may have had only a part of the GPU before.
    const bool stood = outstanding.oldest()->stopped;
    const TimeNs patience = stood ? kWaitPatienceNs : kEvidencePatienceNs;
    return std::max(unseen_until, believed ? busy_until : busy_until + patience);
  }
  // Sets the predicted end, capped by kClaimedNs after the client's last sign of life at `seen`.
  void set_busy_until(TimeNs at, TimeNs seen) { busy_until = std::min(at, seen + kClaimedNs); }
  // Whether the oldest launch may be waiting for one of that stream which stands at a gate: then
  // the latter must go. Asked each millisecond.
  bool stuck_behind(uint16_t stream, TimeNs now);
  TimeNs stuck_ns() const;  // how long a launch is the oldest before that; needs an oldest one
  TimeNs patience_ns_at_gate() const {
    return std::clamp(2 * stuck_ns(), kEvidencePatienceNs, kWaitPatienceNs);
  }
  // Predicted time of the work that is left.
  double remaining_us(TimeNs now, bool believed) const;
  // The client is stopped, and goes on after `stood`.
  void stand();
  void go_on(TimeNs stood, TimeNs now);
  // A launch goes to the device, and is predicted to run behind all work there.
  void follow(const Work& work);
  // Takes what is known of launch `seq` of the stream, if that is a graph that was stopped inside.
  Recalled take_recalled(uint16_t stream, uint64_t seq);
};

}  // namespace heddle::core
