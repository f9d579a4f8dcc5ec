// The scheduler core of one device: a deterministic state machine, events in, decisions out.
//
// It knows no clock, thread, socket, Lua or CUDA. The libuv server, the virtual-time simulator and
// tests drive it. It has no failing calls: an event that makes no sense is counted in
// Stats::rejected and changes nothing.
//
// Life of a waiting launch: kAsked -> policy.enqueue -> a policy's queue, or the built-in's ->
// after each event, dispatch until IDLE -> kGrant -> in flight -> kCompleted -> policy.stopping.
// The built-in default decides if a hook is absent, returns nil or fails, and serves launches that
// a policy did not place. No launch waits beyond the starvation bound, whatever a policy says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/budget.h"
#include "daemon/core/ceiling.h"
#include "daemon/core/check.h"
#include "daemon/core/decision.h"
#include "daemon/core/event.h"
#include "daemon/core/explain.h"
#include "daemon/core/policy.h"
#include "daemon/core/shadow.h"
#include "daemon/core/waits.h"

namespace heddle::core {

// The cost of letting another client in; measured on an H200.
constexpr double switch_us_of(bool mps) { return mps ? 10 : 70; }

struct Config {
  uint8_t device = 0;
  SmCount sm_total{132};
  bool mps = false;
  double tick_us = 1'000;  // between two ticks of a policy (Policy::tick)
  double switch_us = switch_us_of(false);
  double idle_us = 2'000;            // silence after which a client is idle ...
  double idle_us_max = 50'000;       // ... or its predicted gap, if that is longer, up to this
  bool alone = false;                // at most one client on all GPUs, for a second or longer
  double default_kernel_us = 100;    // estimate for a kernel that was never measured
  double starvation_us = 1'000'000;  // the longest wait of a launch
  uint32_t dispatch_max = 32;        // decisions per event
  uint32_t fault_max = 8;            // faults of a policy within fault_span_us before quarantine
  double fault_span_us = 10e6;
  bool launch_priorities = true;  // Q0..Q4 get launch priority -5..-1 under MPS
  uint32_t measure_runs = 100;    // of the measurement stage: FIKIT's T, 10 to 1000 (section 3.2)
  double measure_us = 1'000'000;  // and their total at least: some programs' runs take 0.1 ms
  double stops_per_s = 100;       // the most stops that are ordered (stops.h)

  bool operator==(const Config&) const = default;
};

struct Stats {
  uint64_t events = 0;
  uint64_t rejected = 0;  // events that made no sense
  uint64_t posted = 0;
  uint64_t asked = 0;
  uint64_t granted = 0;
  uint64_t on_set = 0;      // granted on fewer SMs than their client has
  uint64_t off_set = 0;     // granted on all of them although the policy named a size
  uint64_t starved = 0;     // granted by the starvation bound
  uint64_t by_builtin = 0;  // grants that the built-in decided
  uint64_t policy_faults = 0;
  uint64_t stops = 0;          // stops of running kernels (stops.h),
  uint64_t stops_bounded = 0;  // those put off by stops_per_s,
  uint64_t stops_starved = 0;  // and those that the starvation bound ended
  // Of all clients: gaps that ended while less important work was in flight, and those whose bound
  // was exceeded.
  uint64_t gaps_filled = 0, bound_violations = 0;
};

// A launch that outlasted the bound of a client's gap.
struct Violation {
  ClientId by = 0;  // the launch's client; 0: there was none
  uint32_t kernel = kUnknownKernel;
  double lasted_us = 0, bound_us = 0;        // from the end of the gap
  double before_us = 0;                      // from its grant to the end of the gap
  double predicted_us = 0, measured_us = 0;  // 0: not measured

  double over_us() const { return lasted_us - bound_us; }
};

struct ClientStatus {
  ClientView view;
  std::string name, label;
  uint64_t launches = 0;
  uint64_t granted = 0;
  double outstanding_us = 0;
  // GPU time so far, predicted or measured. Clients with work at the same time share it, so that
  // together they never have more than the time that passed.
  double gpu_us = 0;
  GotParts got{};  // parts of the GPU's time recently
  uint32_t kernels = 0;
  uint32_t runs = 0;      // measured so far, of Config::measure_runs
  bool profiled = false;  // measured enough, or known from a profile
  // The bound (bounds.h). added_us_max: the most that less important work in flight adds to a gap,
  // or has added under this policy; kUnlimitedUs: nothing limits it. Then the number of gaps that
  // ended with such work in flight, and how many bounds were exceeded. And the worst launch, with
  // its kernel's name while its client is attached.
  double added_us_max = 0;
  uint64_t gaps_filled = 0, gaps_exceeded = 0;
  Violation worst;
  std::string worst_kernel;
  Waits waits;  // of granted launches
  PromiseStatus promise, promise_p99;
  Ceiling::Statuses ceilings;

  // short_of_request: it waits, and got less of the GPU than its rule requests over the last second
  // and over ten. (A client that has just come back had nothing over ten.) over_limit: it got more
  // than its limit. Two percent points are noise.
  bool short_of_request() const {
    return view.active && view.queued > 0 && std::max(got[0], got[1]) < view.request - 0.02;
  }
  bool over_limit() const { return view.limit > 0 && got[1] > view.limit + 0.02; }
};

// Measurements of a task's kernel by one client, exclusive samples only.
struct KernelProfile {
  ipc::KernelFacts facts;
  Summary duration, gap_launching, gap_synchronized;
  std::vector<DurationAfter> after;  // if its launches differ by what came before
};

struct TaskProfile {
  uint64_t task = 0;
  uint32_t runs = 0;
  std::vector<KernelProfile> kernels;
};

// Predictions about a client and one of its kernels, for tools that judge predictions.
struct Outlook {
  bool busy = false;      // its work is, or may be, on the device
  TimeNs queue_end = 0;   // predicted end of its last launch
  TimeNs idle_since = 0;  // if it is not busy: when its gap began
  bool gap_synchronized = false;
  bool gap_known = false;
  double gap_us = 0;            // predicted length of that gap; 0: unknown
  bool duration_timed = false;  // the kernel was timed; else its duration is inferred, or a guess
  double duration_us = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const Config& config);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Called for failed checks (check.h); without it they abort.
  void set_on_broken(OnBroken on_broken);

  // Handles one event, then dispatches. The decisions stay valid until the next call.
  std::span<const Decision> step(const Event& event);

  // Has `next` take over the present policy's state, and calls its init. False: it cannot take that
  // over, or faulted. Nothing else changes before adopt_policy, so that other devices may refuse.
  bool start_policy(Policy& next, TimeNs now);
  // Replaces the policy between two decisions: waiting launches move to `next`, which was started
  // last; nullptr: the built-in default. Launches in flight go on. `next` must outlive its use.
  std::span<const Decision> adopt_policy(Policy* next, TimeNs now);
  // Does both. `ok` false: `next` did not start, and the present policy stays.
  std::span<const Decision> set_policy(Policy* next, TimeNs now, bool& ok);

  // Asks `candidate` beside the policy from now on, without changing any decision: until
  // end_shadow, the candidate's first fault, or the policy's end. Both must outlive this. False:
  // the candidate faulted at once.
  bool begin_shadow(Policy& candidate, const ShadowLimits& limits, TimeNs now);
  std::optional<ShadowReport> shadow() const;  // nullopt: there is none
  bool shadow_is_over() const;                 // it ended, and waits for end_shadow
  std::optional<ShadowReport> end_shadow(const std::string& why);

  // Bypass grants every ask and leases every client without asking any policy.
  std::span<const Decision> set_bypass(bool on, TimeNs now);

  // The way of sharing the GPU changed: clients joined an MPS server, or the last client without
  // one is gone.
  std::span<const Decision> set_mode(bool mps, double switch_us, TimeNs now);
  // Corrects the GPU's number of SMs.
  void set_sm_total(SmCount sm_total);
  // Whether there has been at most one client on all GPUs for a while (Config::alone).
  std::span<const Decision> set_alone(bool alone, TimeNs now);

  // The constants of this GPU for predicting interference; an H100's until this is called.
  void set_device_model(const DeviceModel& model);
  // The measured use of the GPU's channels by a kernel of the task.
  void set_use(uint32_t uid, uint64_t task, uint64_t kernel_id, const Use& use);

  // When the next kTick is due; there may be nothing to do then. INT64_MAX: none is wanted.
  TimeNs next_deadline() const;

  // True once the policy faulted fault_max times within fault_span_us and was dropped for the
  // built-in; reading it clears it.
  bool take_quarantined();

  const Stats& stats() const;
  const Config& config() const;
  // Reads the state of clients, the last dropped policy, and the device, at any time.
  class View;
  View view() const;
  // The completely measured kernels of the client's task, if there are more of them than at the
  // last call; else none. Called before the client's kDetached.
  TaskProfile take_profile(ClientId id);
  // Whether a policy, or a candidate, must hear of each launch.
  bool hears_launches() const;
  size_t waiting() const;
  bool bypassed() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Scheduler::View {
 public:
  // `now`: the present time, for `got`; 0: that of the last event.
  std::vector<ClientStatus> clients(TimeNs now = 0) const;
  // The measurements of the client's task so far; no kernels if there is no such client.
  TaskProfile profile(ClientId id) const;
  // Whether the client has work, or had some not long ago.
  bool active(ClientId id) const;
  // Whether some of the client's launches have an SM set or priority by policy, so that each launch
  // needs a record.
  bool sized(ClientId id) const;
  // What kept the device from a launch until the starvation bound let that go.
  const Stall& last_stall() const;
  const StallCounts& stalls() const;
  // Comparable runs (runs.h) of clients while a less important one was active. Without the pauses
  // before them.
  RunTimes runs_above() const;
  // The measurement stage of the client's task is over.
  bool measured(ClientId id) const;
  // Predictions about the client and its kernel at `now`, before the next event. Changes nothing;
  // all zero if there is no such client.
  Outlook outlook(ClientId id, TimeNs now, uint32_t kernel) const;
  // Why the client's launches wait, and why the last ones waited.
  Explanation explain(ClientId id) const;
  // Whether nothing is learned of some of the client's kernels, because its user has no place left
  // in the table (estimator.h). They are scheduled all the same.
  bool full(ClientId id) const;
  // About the last policy that was dropped for its faults.
  const LastWords& last_words() const;

 private:
  friend class Scheduler;
  explicit View(const State& state) : s_(state) {}

  const State& s_;
};

}  // namespace heddle::core
