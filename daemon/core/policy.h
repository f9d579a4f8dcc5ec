// The interface between the scheduler core and policies. Lua policies implement Policy, the core
// implements Gpu (sight.h, seat.h). The hooks follow sched_ext's (policies/REFERENCE.md).
//
// A policy sees launches through handles that may go stale at any time; every call of Gpu accepts
// any handle. A policy cannot lose a launch: the built-in default serves launches that the policy
// did not place, and the starvation bound those that it forgot (daemon/core/scheduler.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "daemon/core/client/stop.h"
#include "daemon/core/decision.h"
#include "daemon/core/event.h"
#include "daemon/core/runs.h"
#include "daemon/model/interference.h"
#include "daemon/model/sm_groups.h"
#include "ipc/kernel_facts.h"

namespace heddle::core {

// Handles carry a generation in the upper half: a stale one matches nothing. 0 is never valid.
using LaunchId = uint64_t;
using QueueId = uint32_t;

// CU_LAUNCH_ATTRIBUTE_PRIORITY: the blocks of -5 are placed first under MPS, those of 0 last.
inline constexpr int kBuiltinPriority = -128;  // the built-in's choice (allowances.h)
inline bool is_launch_priority(double level) { return level >= -5 && level <= 0; }

inline constexpr ipc::KernelFacts kUnknownFacts{};
inline constexpr double kUnlimitedUs = std::numeric_limits<double>::infinity();

// A waiting launch as policies see it (`k`). Times in µs.
struct LaunchView {
  ClientId client = 0;
  LaunchKind kind = LaunchKind::kKernel;
  uint32_t seq = 0;  // its ticket
  // Of its kernel ID; kUnknownFacts if that is unknown. Valid while the hook runs.
  const ipc::KernelFacts* facts = &kUnknownFacts;
  const ipc::KernelMetrics* metrics = &kUnknownFacts.metrics;
  const SmGroups* groups = nullptr;  // of its client; nullptr if the kernel is unknown
  uint64_t launches = 0;             // of its kernel ID, by its task
  double predicted_us = 0;  // the default estimate while unknown; at a gate: the time until
                            // the unit, once granted, can be stopped
  double mean_us = 0;       // mean over all launches of its kernel ID (DurationEstimate)
  double wave_us = 0;       // predicted time of one wave of blocks, or of the mean node
  double p90_us = 0;        // measured over its launches; 0: not measured
  bool profiled = false;    // its measurement is complete
  bool movable = false;     // it can run on fewer SMs, or the client's next launch can
  double open_us = 0;       // time launched at open gates since the client last asked
  double gap_after_us = 0;  // predicted idle time after it and a synchronize; 0: unknown
  double wait_us = 0;       // waiting so far; in `stopping`: in all
  double run_us = 0;        // only in `stopping`: measured, 0 if not
  int priority = kPriorityLowest;
};

// A client as policies see it (`c`).
struct ClientView {
  ClientId id = 0;
  std::string_view name;
  std::string_view label;
  uint32_t uid = 0;
  uint32_t pid = 0;
  int priority = kPriorityLowest;
  double share = 1;
  double slo_ms = 0;                              // 0: none
  double request = 0, limit = 0;                  // of the GPU's time, 0: none
  double slowdown_max = 0, slowdown_p99_max = 0;  // promised, 0: nothing is
  Allowance allowed = Allowance::kGated;
  uint32_t queued = 0;     // 1: its oldest held unit waits
  double inflight_us = 0;  // predicted time of its work on the GPU
  double gpu_us = 0;       // ClientStatus::gpu_us
  uint64_t launches = 0;   // so far; a graph that was stopped inside and goes on counts once
  double work_us = 0;      // predicted time of those launches, alone on all SMs
  bool active = false;
  bool gates = false;         // its launches are held on the GPU; else in its threads
  bool profiled = false;      // its task's measurement stage is over
  double stopped_us = 0;      // total time that its kernels were stopped (stops.h)
  uint64_t stops = 0;         // how often they were
  bool stoppable = false;     // its kernels can be stopped, and have a time slice of their own
  double resident_bytes = 0;  // device memory that it has on the GPU
  bool parked = false;        // its memory is on the host, or on its way
};

// The device as policies see it (`g`).
struct GpuView {
  uint32_t index = 0;
  SmCount sm_total{};
  SmCount sm_free{};       // SMs in no SM set of a launch in flight
  double inflight_us = 0;  // predicted time posted or granted below the highest active priority
  double on_sets_us = 0;   // the part of it that delays no other client: on SM sets, under MPS
  double switch_us = 0;    // cost of letting another client in
  bool mps = false;        // false: time-sliced
  bool stops = false;      // some client's kernels can be stopped (stops.h)
};

// Whether a launch keeps all promises (budget.h). If not: the client whose account cannot pay for
// it, and the channel that costs that client most.
struct BudgetVerdict {
  bool fits = true;
  ClientId victim = 0;
  Channel channel = Channel::kSlots;
  bool known = true;  // false: it does not fit because its cost is unknown
};

// What a policy can read inside a hook.
class World {
 public:
  virtual TimeNs now() const = 0;
  virtual GpuView gpu() const = 0;
  // False if the handle is stale.
  virtual bool launch(LaunchId, LaunchView&) const = 0;
  virtual bool client(ClientId, ClientView&) const = 0;
  virtual std::span<const ClientId> clients() const = 0;  // ascending

  // The least predicted remaining gap of all clients strictly more important than `priority`:
  // unlimited when none is active, 0 when one has work outstanding (FIKIT section 3.2, relative).
  virtual double gap_us(int priority) const = 0;
  // The same for the whole length of those gaps, from their start: a launch that fits into the
  // whole gap, but not into the rest, may wait for the next gap.
  virtual double gap_length_us(int priority) const = 0;
  // True if a client strictly more important than `priority` has work outstanding.
  virtual bool busy(int priority) const = 0;
  // For how long so far no such client had work outstanding. Only differences mean anything: a
  // policy may owe that time to best-effort clients.
  virtual double idle_us(int priority) const = 0;
  // Finished runs of such clients: how long they took, and how long the same runs take alone.
  virtual RunTimes runs(int priority) const = 0;
  // How many of these runs took longer than their client's rule promises (slowdown_p99_max), and of
  // how many. Runs of clients without that promise are slow beyond `times` their time alone;
  // infinite: they do not count.
  virtual SlowRunCount slower_runs(int priority, double times) const = 0;
  // True while such a client should run alone, so that its runs' time alone becomes known.
  virtual bool comparing(int priority) const = 0;

  // Whether a waiting launch on `sm` SMs (0: all that its client has) fits. A stale handle fits.
  virtual BudgetVerdict budget_fits(LaunchId, SmCount sm) = 0;
  // With live placement: the SMs of the set that a waiting launch would get for `sm` SMs. 0: that
  // set is not free of other clients' work, or the handle is stale.
  virtual SmCount free_sms(LaunchId, SmCount sm) const = 0;
  // Predicted slowdown of the client's kernels beside those of all clients at work; 1: it is gone.
  virtual double slowdown(ClientId) = 0;
  // The part of the channel's nominal peak that the clients at work leave.
  virtual double channel_left(Channel) const = 0;

 protected:
  ~World() = default;
};

// A policy's orders. Those of the live policy are carried out, those of a candidate are not.
class Gpu : public World {
 public:
  // Queues of waiting launches, by ascending key. Among equal keys, clients of one priority take
  // turns by their share of the GPU's time, and a client's launches keep their order. A launch is
  // in one queue at most; inserting it again moves it. Queues belong to the policy that made them.
  virtual QueueId queue_create(std::string_view name) = 0;  // the same name gives the same queue
  virtual bool queue_insert(QueueId, LaunchId, double key) = 0;  // false: stale
  // The launch at that place of the queue, from 0. 0: there are fewer.
  virtual LaunchId queue_peek(QueueId, size_t place = 0) const = 0;
  // Lowest key first; among equal keys the longest predicted time that fits (FIKIT's BestPrioFit).
  // A launch does not fit if its client has work on SM sets in flight: it would begin behind that.
  virtual LaunchId queue_best_fit(QueueId, double us) const = 0;
  virtual size_t queue_len(QueueId) const = 0;

  // Changes a client's allowance at once, for `for_us`, or for good if that is 0. False if the
  // client is gone.
  virtual bool set_allowance(ClientId, Allowance allowed, double for_us) = 0;
  // Sets the priority of the client's launches from now on, if dispatch gives them no other: -5
  // (first) to 0 (last), or kBuiltinPriority. False if the client is gone.
  virtual bool set_launch_priority(ClientId, int launch_priority) = 0;
  // Keeps the client's launches to so many SMs from the next one on, for `for_us`, or until told
  // otherwise if that is 0. Kernels with a size of their own keep that. `sm` 0: all SMs that the
  // rule gives it. False if the client is gone.
  virtual bool keep_to(ClientId, SmCount sm, double for_us) = 0;
  // Whether the client's kernels are stopped while a more important client is at work (stops.h).
  // Without this order they are not. False if the client is gone.
  virtual bool set_stop(ClientId, StopWhen when) = 0;
  // Sets the client's time slice, if the GPU is time-sliced; 0: as the driver set it. False if the
  // client is gone.
  virtual bool set_slice(ClientId, uint32_t slice_us) = 0;
  // The memory of an idle client leaves the GPU, if its rule allows that, or comes back. Its next
  // call brings it back as well. False if the client is gone.
  virtual bool set_parked(ClientId, bool parked) = 0;
  // Has the policy asked anew (kernel_init) about each kernel of the client when that is next
  // launched. False if the client is gone.
  virtual bool resize(ClientId) = 0;

 protected:
  ~Gpu() = default;
};

// The outcome of a hook. kDefault: it is absent or returned nil; kFault: it failed, and the
// built-in decides this once.
enum class HookResult : uint8_t { kDefault, kFault, kDecided };

struct AllowanceVerdict {
  HookResult result = HookResult::kDefault;
  bool refuse = false;
  Allowance allowed = Allowance::kGated;
};

struct EnqueueVerdict {
  HookResult result = HookResult::kDefault;  // kDecided: inserted, or run
  bool run = false;                          // grant at once
};

struct DispatchVerdict {
  HookResult result = HookResult::kDefault;
  LaunchId run = 0;  // 0: IDLE
  SmCount sm{};      // the launch runs on so many SMs; 0: on all that its client has
  int launch_priority = kBuiltinPriority;
  bool open = false;    // its client's gates open, too, until another client comes (Openings)
  uint16_t reason = 0;  // a number for Policy::reason; 0: none was given
  double again_us = 0;  // IDLE: when to ask the policy again; 0: the core decides
};

struct KernelVerdict {
  HookResult result = HookResult::kDefault;
  SmCount sm{};  // its launches are kept to so many SMs; 0: they are not
  int launch_priority = kBuiltinPriority;
  bool timed = false;  // the policy wants the time of each launch
};

// Why a policy is not in force any more.
enum class Ending : uint8_t { kReplaced, kFaulted };

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // Its verdicts choose SMs or a priority for each launch. A launch at a gate has these already, so
  // the launches of its clients wait in their threads. Long graphs still stand at gates, so that
  // they can be stopped inside.
  bool chooses_per_launch = false;

  // Copies the state that `before`, the policy that it may replace, keeps for successors. False:
  // that state has another form, and `before` stays. `before` may stay in any case, so it must keep
  // its state.
  virtual bool take_over(Policy& before) {
    (void)before;
    return true;
  }
  virtual HookResult init(Gpu&) { return HookResult::kDefault; }
  // Called before exit() for a policy that is dropped for its faults: text about its state.
  virtual std::string dump(Gpu&) { return {}; }
  // No hook is called after this.
  virtual void exit(Gpu&, Ending) {}
  virtual AllowanceVerdict client_init(Gpu&, ClientId) { return {}; }
  virtual AllowanceVerdict client_active(Gpu&, ClientId) { return {}; }
  virtual AllowanceVerdict client_idle(Gpu&, ClientId) { return {}; }
  virtual HookResult client_exit(Gpu&, ClientId) { return HookResult::kDefault; }
  // The client's terms changed. A policy without this hook sees the client leave and come back.
  virtual AllowanceVerdict client_update(Gpu&, ClientId) { return {}; }
  virtual bool hears_updates() const { return false; }
  // A kernel ID is first seen at a client, or its measurement is complete. `kernel` has no handle.
  virtual KernelVerdict kernel_init(Gpu&, const LaunchView& kernel) {
    (void)kernel;
    return {};
  }
  // True if `kernel_init` is to be called.
  virtual bool hears_kernels() const { return false; }
  // The SM sets of clients that attach from now on.
  virtual SmFamily family() const { return {}; }
  virtual EnqueueVerdict enqueue(Gpu&, LaunchId) { return {}; }
  virtual DispatchVerdict dispatch(Gpu&) { return {}; }
  // The launch goes to the GPU, or is seen to have gone. `launch` is a copy without a handle.
  virtual HookResult running(Gpu&, const LaunchView& launch) {
    (void)launch;
    return HookResult::kDefault;
  }
  // True if `running` is to be called.
  virtual bool hears_running() const { return false; }
  // The launch has ended; `launch` is a copy, its handle is stale already.
  virtual HookResult stopping(Gpu&, const LaunchView& launch) {
    (void)launch;
    return HookResult::kDefault;
  }
  // Every Config::tick_us while any client is active.
  virtual HookResult tick(Gpu&) { return HookResult::kDefault; }
  virtual bool hears_tick() const { return false; }
  // The text of a reason that this policy gave with a verdict; it never changes.
  virtual std::string_view reason(uint16_t) const { return ""; }
  // True if `stopping` is to be called.
  virtual bool hears_stopping() const { return false; }
  // How many faults the last one counts as: more for a hook that took long and held up all clients.
  virtual uint32_t fault_weight() const { return 1; }
};

}  // namespace heddle::core
