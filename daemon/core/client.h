// One client on one device: its kernels, the work it has outstanding, and when it was last busy.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "daemon/core/budget.h"
#include "daemon/core/estimator.h"
#include "daemon/core/event.h"
#include "daemon/core/explain.h"
#include "daemon/core/placement.h"
#include "daemon/core/policy.h"
#include "daemon/core/runs.h"
#include "daemon/core/scheduler.h"
#include "daemon/core/waits.h"

namespace heddle::core {

inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

// Granted work ends by evidence, because a filler that outlasts its prediction must not be taken
// for done. When its client is off the GPU and cannot report, it is given this much longer.
inline constexpr TimeNs kEvidencePatienceNs = 20'000'000;
// The same for a thread in a synchronizing call, which may have died there.
inline constexpr TimeNs kWaitPatienceNs = 1'000'000'000;
// A row of launches that are not told goes on for this long at most (ipc/sparse.h), the last one's
// kernel included.
inline constexpr TimeNs kRowNs = 2'000'000;

// Predicted work counts for so long at most after its client was last seen to launch, or to be done
// with something: whoever claims more than it launches holds nobody up for longer.
inline constexpr TimeNs kClaimedNs = 2'000'000'000;

// A kernel ID at a client.
struct Kernel {
  ipc::KernelFacts facts{};  // without the metrics, which its task has
  uint32_t waves = 1;        // of its blocks on the SMs that its client has
  KernelStats* stats = nullptr;
  GroupCount size{};   // of the sets that the policy wants for its launches, 0: all
  bool timed = false;  // the policy wants the time of each launch
  int launch_priority = kBuiltinPriority;
  uint32_t policy = 0;  // State::policy_number that said so; another one is yet to be asked
  // Last prediction that the client was told, and what else.
  float hinted_us = 0;
  uint8_t hinted_measure = 0;
  GroupCount hinted_size{};
  int hinted_priority = kBuiltinPriority;

  bool is_graph() const { return facts.block_threads == 0; }
  uint32_t waves_on(SmCount sms) const;  // never 0; of a graph 1
  // The policy has said something of its launches.
  bool sized() const { return size.get() != 0 || launch_priority != kBuiltinPriority; }
};

// One launch that is on the device, or on its way there.
struct Work {
  uint64_t seq = 0;
  TimeNs posted_at = 0;
  double predicted_us = 0;
  double waited_us = 0;
  double hold_us = 0;  // of predicted_us: one wave of its blocks, or all of a graph
  Context before;      // what its client had launched
  SmSet sm_set{};      // that the policy wants it on, empty: all that its client has
  uint32_t kernel = kUnknownKernel;
  uint16_t stream = 0;
  LaunchKind kind = LaunchKind::kKernel;
  bool granted = false;
};

// Work of one client in posting order, completed per stream. Bounded: the oldest work is taken for
// done when a client that never synchronizes fills it.
class Outstanding {
 public:
  static constexpr uint32_t kWorkMax = 4096;  // the driver itself queues about 1 024 launches

  bool empty() const { return head_ == kNone; }
  uint32_t used_streams() const { return used_streams_; }  // that ever had work
  // Streams with work, and whether this one has any.
  uint32_t busy_streams() const { return busy_streams_; }
  bool is_busy(uint16_t stream) const {
    return stream < streams_.size() && streams_[stream].head != kNone;
  }
  // Some of it was posted at or before `at`.
  bool any_from(TimeNs at) const { return head_ != kNone && nodes_[head_].work.posted_at <= at; }
  double predicted_us() const { return predicted_us_; }
  // Of that, of launches on SM sets; the groups of these sets, and how many launches are on each.
  double on_sets_us() const { return on_sets_us_; }
  SmSet sm_set() const { return sm_set_; }
  const GroupLoad& load() const { return load_; }
  double longest_hold_us() const;  // of those on all SMs

  // Adds; returns true and the oldest in `dropped` if it had to make room.
  bool add(const Work& work, Work& dropped);
  // Removes the oldest of `stream` that is at most `seq`; false when there is none.
  bool take(uint16_t stream, uint64_t seq, Work& out);
  // Removes launch `seq` of `stream` alone; false if it is not there.
  bool drop(uint16_t stream, uint64_t seq, Work& out);
  // Launch `seq` of `stream`, if it is there, is on all SMs after all.
  void stayed(uint16_t stream, uint64_t seq);
  // Removes the oldest of all that was posted at or before `until`.
  bool take_oldest(TimeNs until, Work& out);

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  struct Node {
    Work work;
    uint32_t prev = kNone, next = kNone;  // posting order; next also links the free list
    uint32_t stream_next = kNone;
  };
  struct Stream {
    uint32_t head = kNone, tail = kNone;
    bool used = false;
  };
  Work remove(uint32_t node, uint32_t before_in_stream = kNone);
  // Launch `seq` of `stream`, and the one before it in that; kNone: it is not there, or the first.
  uint32_t find(uint16_t stream, uint64_t seq, uint32_t& before) const;
  void leave_set(const Work& work);

  std::vector<Node> nodes_;
  std::vector<Stream> streams_;
  uint32_t head_ = kNone, tail_ = kNone, free_ = kNone;
  void count_groups(SmSet set, uint32_t by);

  GroupLoad load_{};
  double predicted_us_ = 0, on_sets_us_ = 0;
  uint32_t on_sets_ = 0;
  SmSet sm_set_;
  uint32_t busy_streams_ = 0, used_streams_ = 0;
};

inline constexpr uint32_t kNoAsk = 0xffffffff;

// What a thread was granted last.
struct Granted {
  uint32_t ask_seq = 0;
  uint32_t epoch = 0;    // the credit is good while this is the client's
  SmSet sm_set{};        // of launches by credit too
  double credit_us = 0;  // not used yet
  double used_us = 0;    // what was launched by it
};

// A gap of a client that ended while less important work was in flight (bound.cc): the last, or the
// one before as long as that work still is.
struct EndedGap {
  TimeNs at = 0;
  double bound_us = 0;
  double worked_us = 0;  // what work of the client that was done by then had taken
  bool judged = true;    // its bound is known to have been exceeded, or there was no such gap
};

// Launches that were taken for done because their predicted end had passed: without them most of
// what is measured of a launch-bound client would be lost, for it comes later, but within some
// dozens of launches. One is remembered in each place.
class Undated {
 public:
  void add(const Work& work) { at(work.seq) = work; }
  // Launch `seq` of `stream`, nullptr if it is not known any more.
  const Work* find(uint16_t stream, uint64_t seq);
  void forget(const Work& work) { at(work.seq) = {}; }
  void forget(uint16_t stream);  // its numbers may begin again

 private:
  static constexpr size_t kPlaces = 64;
  Work& at(uint64_t seq) { return launches_[seq % kPlaces]; }
  std::array<Work, kPlaces> launches_{};
};

// A launch of a kernel that was not timed yet, and what it was taken for.
struct UntimedLaunch {
  uint32_t kernel = kUnknownKernel;
  double predicted_us = 0;
};

// The window that a policy chose for a client; what it did not choose is the built-in's.
struct WindowChoice {
  bool refused = false;
  bool chosen = false;  // the window is the policy's, not the built-in's
  uint32_t us = 0;
  uint32_t lent_us = 0;  // lent: at least so long a window until then
  TimeNs lent_until = 0;

  // False: it stands as it was. A refusal does until its policy says otherwise: an absent hook or a
  // mistake does not.
  bool take(const WindowVerdict& verdict) {
    const bool decided = verdict.result == HookResult::kDecided;
    if (refused && !decided) return false;
    chosen = decided;
    refused = decided && verdict.refuse;
    us = verdict.window_us;
    return true;
  }
  // By a hook of any kind, at `now`; lent if `for_ns` is not 0.
  void set(uint32_t window_us, TimeNs for_ns, TimeNs now) {
    if (for_ns > 0) {
      lent_us = window_us;
      lent_until = now + for_ns;
    } else {
      *this = {.refused = false, .chosen = true, .us = window_us};
    }
  }
  bool lends(TimeNs now) const { return now < lent_until; }
  uint32_t window_us(uint32_t builtin_us, TimeNs now) const {
    const uint32_t own = chosen ? us : builtin_us;
    return lends(now) ? std::max(own, lent_us) : own;
  }
};

struct Client {
  // What each event looks at in every active client.
  int priority = kPriorityLowest;
  bool at_work = false;   // it was busy as it was last settled
  bool resident = false;  // the same, or in a row
  // Time alone changes nothing before then (State::settle); 0: it is not known when it does.
  TimeNs settled_until = 0;
  double credit_us = 0;  // granted beyond single launches, of all threads, and not used yet

  ClientId id = 0;
  uint64_t task = 0;
  std::string name, label;
  uint32_t pid = 0, uid = 0;
  double share = 1, slo_ms = 0;
  uint32_t window_max_us = kWindowLeased;
  bool fail_closed = false;
  SmGroups groups{};
  SmSet sm_set;        // by rule, empty: all
  SmFamily family;     // its SM sets, as long as it is attached
  ipc::SmRing ring;    // and where they lie
  bool sized = false;  // some kernel has a size, or a priority, of its own

  std::vector<Kernel> kernels;
  Outstanding outstanding;
  uint32_t queued = 0;      // launches waiting for a grant,
  TimeNs asking_since = 0;  // and since when there are any
  std::vector<Granted> by_thread;
  std::vector<uint32_t> asks;  // by thread: where its ask waits, kNoAsk: it has none
  double longest_us = 0, longest_hold_us = 0;  // that it ever launched, as predicted

  // When all that is outstanding is predicted to be done, as if it ran one after the other.
  TimeNs busy_until = 0;
  // A thread is inside a synchronizing call since then: work is outstanding whatever was predicted,
  // until the call returns. 0: none.
  TimeNs waiting_since = 0;
  // For infer_durations: when the queue was predicted to end as that call began, and the launches
  // since it was last predicted to be empty, Outstanding::kWorkMax of them at most.
  TimeNs predicted_end = 0;
  std::vector<UntimedLaunch> untimed;
  Quantile timed_us{0.5};              // median of its timed launches
  double typical_us = 0;               // the same, the default estimate while there are none
  bool unsynchronized = false;         // launched since a synchronizing call last returned
  TimeNs run_start = 0, run_last = 0;  // the first such launch, the last,
  uint32_t run_first = kUnknownKernel, run_launches = 0;  // the first's kernel, and how many
  uint32_t run_told = 0;        // of those, each with a record of its own,
  double run_predicted_us = 0;  // and how long these take
  TimeNs run_end = 0;           // of the last run
  RunComparison runs;
  TaskStats* measured = nullptr;  // its task's measurement stage
  // Where its user has no place left: kernels share an entry of this client alone, and go into no
  // profile; its task has no stage.
  KernelStats unplaced;
  TaskStats unstaged{0, 0, true};
  bool full = false;           // some kernel found no place
  bool profile_grown = false;  // kernels were profiled that nobody took yet
  // Until then what nobody told of may be on the device; kNever while its launches are not told.
  TimeNs unseen_until = 0;
  // Until then a thread may be launching without telling, each launch after a gap that is too
  // short.
  TimeNs row_until = 0;
  // Since then a rank of a collective was launched, or the like: it ends when its peers have come,
  // who may be those that this client would hold up.
  bool awaits_others = false;
  bool active = false;
  // Not busy since then, and what ran last: the gap's start and its kernel.
  TimeNs gap_start = 0;
  uint32_t last_kernel = kUnknownKernel;
  Context context;
  bool gap_open = false;
  bool gap_synchronized = false;  // a synchronizing call opened it

  // What the policy chose: forget_policy.
  WindowChoice choice;
  int launch_priority = kBuiltinPriority;

  uint32_t window_us = kWindowGated;
  uint32_t free_streams = 0;  // Decision's
  SmSet window_set;           // its rule's, or cut by isolation
  uint32_t epoch = 0;
  bool window_sent = false, refused_sent = false;
  TimeNs window_sent_at = 0;

  uint64_t launches = 0, granted = 0;
  double turn_us = 0;               // when its next turn begins: State::take_turn
  double worked_us = 0;             // of each launch from start to end, predicted or measured
  double gpu_us = 0;                // of that, what the GPU had for it (gpu_time.cc)
  double part_us = 0, part_at = 0;  // its part of the time that it was resident, not used yet
  Undated undated;

  RecentMix mix;    // while anybody was promised anything
  Account account;  // of what it was promised itself

  EndedGap ended_gap;
  TimeNs done_at = 0;          // when work of it was last seen to be done
  double added_us_max = 0;     // the most that a gap of its was bound to add
  uint64_t gaps_filled = 0;    // that ended while less important work was in flight, and of these
  uint64_t gaps_exceeded = 0;  // those whose bound was exceeded,
  Violation worst;             // by that at most

  // For whoever asks: how long what was granted had waited, and why the last ones did.
  Waits waits;
  PastWaits past_waits;

  const Kernel* kernel(uint32_t index) const {
    return index < kernels.size() && kernels[index].stats != nullptr ? &kernels[index] : nullptr;
  }
  const GapEstimate* gap_estimate() const {
    const Kernel* k = kernel(last_kernel);
    return k != nullptr ? &k->stats->gap(gap_synchronized) : nullptr;
  }
  bool unobserved() const { return unseen_until == kNever; }
  bool leased() const { return window_us == kWindowLeased; }
  // A launch of the stream needs no room in the window.
  bool is_free(uint16_t stream) const {
    return outstanding.busy_streams() < free_streams && !outstanding.is_busy(stream);
  }
  // Refused, and not free to launch for all that: nothing but a change of policy lets it go.
  bool held_back() const { return choice.refused && fail_closed; }
  void forget_policy() {
    choice = {};
    window_sent &= launch_priority == kBuiltinPriority;
    launch_priority = kBuiltinPriority;
  }

  // True while work is, or must be taken to be, on the device.
  bool busy(TimeNs now) const { return now < busy_deadline(); }
  // When `busy` turns false if nothing is heard; INT64_MAX when only evidence can tell.
  TimeNs busy_deadline() const {
    if (unobserved()) return kNever;
    if (awaits_others) return busy_until;
    if (waiting_since != 0) return std::max(busy_until, waiting_since) + kWaitPatienceNs;
    if (outstanding.empty()) return unseen_until;
    return std::max(unseen_until, leased() ? busy_until : busy_until + kEvidencePatienceNs);
  }
  // That it is predicted to be so, as far as that is believed of a client that was seen at `seen`.
  void set_busy_until(TimeNs at, TimeNs seen) { busy_until = std::min(at, seen + kClaimedNs); }
  // Predicted time still to run.
  double remaining_us(TimeNs now) const;
  // Predicted length of the present gap: 0 while busy or unknown.
  double gap_length_us(TimeNs now) const;
  // What is left of it.
  double gap_left_us(TimeNs now) const;
  // How long it may be silent before it counts as idle.
  double patience_us(double idle_us, double idle_us_max) const;
};

}  // namespace heddle::core
