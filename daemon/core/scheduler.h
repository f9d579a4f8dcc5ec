// The scheduler core of one device: a deterministic state machine, events in, decisions out.
//
// It knows no clock, thread, socket, Lua or CUDA. Three things drive it: the libuv server, the
// virtual-time simulator, and tests. It has no failing calls: an event that makes no sense is
// counted in Stats::rejected and changes nothing.
//
// Life of a waiting launch: kAsked -> policy.enqueue -> a policy's queue, or the built-in's ->
// after each event, dispatch until IDLE -> kGrant -> in flight -> kCompleted -> policy.stopping.
// The built-in default decides wherever a hook is absent, returns nil or fails, and serves what a
// policy did not place. Nothing waits beyond the starvation bound, whatever a policy says.
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

// What it costs to let another client in; measured on an H200.
constexpr double switch_us_of(bool mps) { return mps ? 10 : 70; }

struct Config {
  uint8_t device = 0;
  SmCount sm_total{132};
  bool mps = false;
  double tick_us = 1'000;  // between two ticks of a policy
  double switch_us = switch_us_of(false);
  double idle_us = 2'000;            // silence after which a client is idle ...
  double idle_us_max = 50'000;       // ... or its predicted gap, if that is longer, up to this
  bool alone = false;                // nobody else is attached to any GPU, nor was within a second
  double default_kernel_us = 100;    // estimate for a kernel that was never measured
  double starvation_us = 1'000'000;  // longest wait in an ask
  uint32_t dispatch_max = 32;        // decisions per event
  uint32_t fault_max = 8;            // faults of a policy within fault_span_us before quarantine
  double fault_span_us = 10e6;
  bool launch_priorities = true;  // Q0..Q4 get launch priority -5..-1 under MPS
  uint32_t measure_runs = 100;    // of the measurement stage: FIKIT's T, 10 to 1000 (section 3.2)
  double measure_us = 1'000'000;  // and that these take at least: some synchronize every 0.1 ms
  double stops_per_s = 100;       // of what runs, at most (stops.h)

  bool operator==(const Config&) const = default;
};

struct Stats {
  uint64_t events = 0;
  uint64_t rejected = 0;  // events that made no sense
  uint64_t posted = 0;
  uint64_t asked = 0;
  uint64_t granted = 0;
  uint64_t on_set = 0;      // granted on fewer SMs than their client has
  uint64_t off_set = 0;     // granted on all of them, though the policy named a size
  uint64_t starved = 0;     // granted by the starvation bound
  uint64_t by_builtin = 0;  // grants that the built-in decided
  uint64_t policy_faults = 0;
  uint64_t stops = 0;          // of what ran,
  uint64_t stops_bounded = 0;  // and that were put off, since there were too many,
  uint64_t stops_starved = 0;  // and that ended by the starvation bound
  // Of all clients: gaps that ended while something was in the way, and whose bound was exceeded.
  uint64_t gaps_filled = 0, bound_violations = 0;
};

// A launch that outlasted the bound of somebody's gap.
struct Violation {
  ClientId by = 0;  // whose; 0: there was none
  uint32_t kernel = kUnknownKernel;
  double lasted_us = 0, bound_us = 0;        // from the end of the gap
  double before_us = 0;                      // let go so long before that
  double predicted_us = 0, measured_us = 0;  // 0: not measured

  double over_us() const { return lasted_us - bound_us; }
};

struct ClientStatus {
  ClientView view;
  std::string name, label;
  uint64_t launches = 0;
  uint64_t granted = 0;
  double outstanding_us = 0;
  // GPU time so far, predicted or measured. Of what was on the GPU at the same time each client has
  // a part, so that together they never have more than the time that passed.
  double gpu_us = 0;
  GotParts got{};  // of it, of late
  uint32_t kernels = 0;
  uint32_t runs = 0;      // measured, of Config::measure_runs
  bool profiled = false;  // measured enough, or known from a profile
  // The bound (bounds.h): the most that what less important clients have in flight adds, or has
  // added under this policy, to one of its gaps, kUnlimitedUs if nothing limits them; how many of
  // its gaps ended while something was in flight, how many of those were exceeded, and the launch
  // that did by most, with its kernel's name while its client is there.
  double added_us_max = 0;
  uint64_t gaps_filled = 0, gaps_exceeded = 0;
  Violation worst;
  std::string worst_kernel;
  Waits waits;  // of what was granted
  PromiseStatus promise, promise_p99;
  Ceiling::Statuses ceilings;

  // It waits, and got less of the GPU than its rule requests, over ten seconds and over one: who
  // comes back had nothing before. It got more than its limit. Two points are noise.
  bool short_of_request() const {
    return view.active && view.queued > 0 && std::max(got[0], got[1]) < view.request - 0.02;
  }
  bool over_limit() const { return view.limit > 0 && got[1] > view.limit + 0.02; }
};

// What was measured of a task by one client, exclusive samples alone.
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

// What is predicted of a client and one of its kernels, for those who judge predictions.
struct Outlook {
  bool busy = false;      // work is on the device, or must be taken to be
  TimeNs queue_end = 0;   // when the last of what it launched is predicted to be done
  TimeNs idle_since = 0;  // if it is not busy: when its gap began
  bool gap_synchronized = false;
  bool gap_known = false;
  double gap_us = 0;            // promised length of that gap, 0 if not known
  bool duration_timed = false;  // the kernel's was; else it is inferred, or a guess
  double duration_us = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const Config& config);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Gets what our own mistakes break; without it they abort.
  void set_on_broken(OnBroken on_broken);

  // Handles one event, then dispatches. The decisions stay valid until the next call.
  std::span<const Decision> step(const Event& event);

  // Takes over what the policy keeps, and calls init. False: `next` will not, or faulted. Either
  // way nothing changes before adopt_policy, so that other devices may refuse.
  bool start_policy(Policy& next, TimeNs now);
  // Swaps the policy between two decisions: waiting launches move, what is in flight ends under
  // whoever granted it. `next` was started last; nullptr: the built-in default. It must outlive its
  // use.
  std::span<const Decision> adopt_policy(Policy* next, TimeNs now);
  // Both; `ok` is false, and the running policy stays, if `next` does not start.
  std::span<const Decision> set_policy(Policy* next, TimeNs now, bool& ok);

  // Asks `candidate` beside the policy from now on, which changes no decision; until end_shadow,
  // the candidate's first fault, or the policy's end. Both must outlive its use. False: it
  // faulted at once.
  bool begin_shadow(Policy& candidate, const ShadowLimits& limits, TimeNs now);
  std::optional<ShadowReport> shadow() const;  // nullopt: there is none
  bool shadow_is_over() const;                 // and waits for end_shadow
  std::optional<ShadowReport> end_shadow(const std::string& why);

  // Bypass grants every ask and leases every client without asking any policy.
  std::span<const Decision> set_bypass(bool on, TimeNs now);

  // How the GPU is shared is not what the configuration said, or is so no more: clients joined an
  // MPS server, or the last that had not is gone.
  std::span<const Decision> set_mode(bool mps, double switch_us, TimeNs now);
  // The GPU has another number of SMs than who spoke first said.
  void set_sm_total(SmCount sm_total);
  // There is one client in all at most, and has been for a while, or is so no more (allowances.h).
  std::span<const Decision> set_alone(bool alone, TimeNs now);

  // The constants of this GPU for predicting interference; an H100's until then.
  void set_device_model(const DeviceModel& model);
  // What a kernel of the task uses of the GPU's channels, as somebody measured it.
  void set_use(uint32_t uid, uint64_t task, uint64_t kernel_id, const Use& use);

  // No kTick is wanted before; one then may find nothing but a later time. INT64_MAX: none wanted.
  TimeNs next_deadline() const;

  // True once the policy faulted fault_max times within fault_span_us and was dropped for the
  // built-in; reading it clears it.
  bool take_quarantined();

  const Stats& stats() const;
  const Config& config() const;
  // What is known of clients, the policy before, and the device: for whoever asks, at any time.
  class View;
  View view() const;
  // The kernels of the client's task that are measured to the end, if there are more of them than
  // when it was last called; else none. To be asked before the client's kDetached.
  TaskProfile take_profile(ClientId id);
  // A policy, or a candidate, must hear of each launch.
  bool hears_launches() const;
  size_t waiting() const;
  bool bypassed() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Scheduler::View {
 public:
  // `now`: of what is told of late; 0: the last event.
  std::vector<ClientStatus> clients(TimeNs now = 0) const;
  // What the measurement stage has of the client's task so far; no kernels if there is no client.
  TaskProfile profile(ClientId id) const;
  // It has work, or had some not long ago.
  bool active(ClientId id) const;
  // Some of the client's launches do not run where its rule says: they must be met at each
  // launch.
  bool sized(ClientId id) const;
  // Whoever kept the device from a launch until the starvation bound let it go.
  const Stall& last_stall() const;
  const StallCounts& stalls() const;
  // Of the runs that can be compared (runs.h) of clients above somebody who is active. Without what
  // lay before them.
  RunTimes runs_above() const;
  // The measurement stage of the client's task is over.
  bool measured(ClientId id) const;
  // What is predicted of the client and its kernel at `now`, of which no event was told yet.
  // Changes nothing; all zero if there is no client.
  Outlook outlook(ClientId id, TimeNs now, uint32_t kernel) const;
  // Why the client's launches wait, and why the last ones waited.
  Explanation explain(ClientId id) const;
  // Some of the client's kernels are scheduled, but nothing is learned of them: its user has no
  // place left for more (estimator.h).
  bool full(ClientId id) const;
  // Of the last policy that was dropped for its faults.
  const LastWords& last_words() const;

 private:
  friend class Scheduler;
  explicit View(const State& state) : s_(state) {}

  const State& s_;
};

}  // namespace heddle::core
