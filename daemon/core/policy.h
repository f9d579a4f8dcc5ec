// The seam between the scheduler core and whoever decides: the built-in default and Lua policies
// implement Policy, the core implements Gpu (sight.h, seat.h). Hooks are sched_ext's
// (policies/REFERENCE.md).
//
// A policy sees launches through handles that may go stale at any time; every call of Gpu accepts
// any handle. Nothing a policy returns can lose a launch: what it does not place, or places and
// forgets, the built-in default finds (daemon/core/scheduler.h).
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
  // Of its kernel ID, kUnknownFacts and none if that is unknown. Valid while the hook runs.
  const ipc::KernelFacts* facts = &kUnknownFacts;
  const ipc::KernelMetrics* metrics = &kUnknownFacts.metrics;
  const SmGroups* groups = nullptr;  // of its client; nullptr if the kernel is unknown
  uint64_t launches = 0;             // of its kernel ID, by its task
  double predicted_us = 0;           // the default estimate while not learned; of one that waits at
                                     // a gate: until what it lets go can be stopped
  double mean_us = 0;                // the same of all launches of its kernel ID (DurationEstimate)
  double wave_us = 0;                // predicted time of one wave of blocks, or of the mean node
  double p90_us = 0;                 // of those, as measured, 0 if they were not
  bool profiled = false;             // measured to the end
  bool movable = false;              // it can run on fewer SMs, or what its client posts next can
  double open_us = 0;                // what its client launched at open gates since it last asked
  double gap_after_us = 0;           // predicted idle time after it and a synchronize, 0 if unknown
  double wait_us = 0;                // waiting so far; in `stopping`: waited
  double run_us = 0;                 // only in `stopping`: measured, 0 if not
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
  double inflight_us = 0;  // predicted time of what it has on the GPU
  double gpu_us = 0;       // ClientStatus's
  uint64_t launches = 0;   // so far; one that was stopped inside and goes on is one
  double work_us = 0;      // of those, as predicted on all SMs and with nobody beside
  bool active = false;
  bool gates = false;      // it is held on the GPU; else it asks
  bool profiled = false;   // its task's measurement stage is over
  double stopped_us = 0;   // so long in all it stood in its middle (stops.h)
  uint64_t stops = 0;      // so often
  bool stoppable = false;  // that can be, and it can have slices of its own
};

// The device as policies see it (`g`).
struct GpuView {
  uint32_t index = 0;
  SmCount sm_total{};
  SmCount sm_free{};       // in no SM set of a launch in flight
  double inflight_us = 0;  // predicted time posted or granted below the highest active priority
  double on_sets_us = 0;   // of inflight_us, what is in nobody's way: on SM sets, under MPS
  double switch_us = 0;    // cost of letting another client in
  bool mps = false;        // false: time-sliced
  bool stops = false;      // what runs of somebody can be stopped (stops.h)
};

// Whether a launch keeps all promises (budget.h); if not, whose account has too little for it, and
// the channel that costs it most.
struct BudgetVerdict {
  bool fits = true;
  ClientId victim = 0;
  Channel channel = Channel::kSlots;
  bool known = true;  // false: it does not fit because nobody can say what it costs
};

// What a policy may read inside a hook.
class World {
 public:
  virtual TimeNs now() const = 0;
  virtual GpuView gpu() const = 0;
  // False if the handle is stale.
  virtual bool launch(LaunchId, LaunchView&) const = 0;
  virtual bool client(ClientId, ClientView&) const = 0;
  virtual std::span<const ClientId> clients() const = 0;  // ascending

  // Least predicted remaining gap of all clients strictly more important than `priority`: unlimited
  // when none is active, 0 when any has work outstanding (FIKIT section 3.2, made relative).
  virtual double gap_us(int priority) const = 0;
  // The same for the whole length of those gaps, from their start: what fits into it may as well
  // wait for the next one.
  virtual double gap_length_us(int priority) const = 0;
  // True if a client strictly more important than `priority` has work outstanding.
  virtual bool busy(int priority) const = 0;
  // For how long so far no such client had work outstanding. Only differences mean anything: they
  // are what best effort may be owed.
  virtual double idle_us(int priority) const = 0;
  // Of runs of such clients that ended: how long they took, and how long the same take alone.
  virtual RunTimes runs(int priority) const = 0;
  // Of these runs how many took longer than its rule promises their client (slowdown_p99_max), and
  // of how many. Those of clients without that promise count by `times`; infinite: they do not.
  virtual SlowRunCount slower_runs(int priority, double times) const = 0;
  // True while such a client is to be left alone, so that this is known.
  virtual bool comparing(int priority) const = 0;

  // Of a waiting launch on `sm` SMs, 0: on all that its client has. A stale one fits.
  virtual BudgetVerdict budget_fits(LaunchId, SmCount sm) = 0;
  // Of a waiting launch, under live placement: the SMs of the set that it would get for `sm` SMs, 0
  // if that is not free of others' work, or the launch is stale.
  virtual SmCount free_sms(LaunchId, SmCount sm) const = 0;
  // Predicted, of the client's kernels beside what the others at work run; 1 if it is gone.
  virtual double slowdown(ClientId) = 0;
  // What those at work leave of the channel, of its nominal peak.
  virtual double channel_left(Channel) const = 0;

 protected:
  ~World() = default;
};

// ... and its orders, few as they are. The live policy's are done, a candidate's are kept apart.
class Gpu : public World {
 public:
  // Queues of waiting launches, ascending key. Among equal keys clients of one priority take turns,
  // by their share of the GPU's time, and a client's launches go as they came. A launch is in one
  // queue at most; inserting it again moves it. Queues belong to the policy generation that made
  // them.
  virtual QueueId queue_create(std::string_view name) = 0;  // the same name gives the same queue
  virtual bool queue_insert(QueueId, LaunchId, double key) = 0;  // false: stale
  // In that place of its order, from 0. 0: there are fewer.
  virtual LaunchId queue_peek(QueueId, size_t place = 0) const = 0;
  // Lowest key first; among equal keys the longest predicted time that fits (FIKIT's BestPrioFit).
  // Nothing fits whose client has work on SM sets in flight: it would begin when that ends.
  virtual LaunchId queue_best_fit(QueueId, double us) const = 0;
  virtual size_t queue_len(QueueId) const = 0;

  // Changes a client's allowance at once, and for good if `for_us` is 0; else for so long. False if
  // the client is gone.
  virtual bool set_allowance(ClientId, Allowance allowed, double for_us) = 0;
  // What the client's launches carry from now on, granted or not, where dispatch gives no
  // other: -5 (first) to 0 (last), or kBuiltinPriority. False if the client is gone.
  virtual bool set_launch_priority(ClientId, int launch_priority) = 0;
  // All launches of the client are kept to so many SMs from the next one on, those of kernels with
  // a size of their own apart; 0: to what its rule gives it. Until told otherwise, or for so long.
  // False if the client is gone.
  virtual bool keep_to(ClientId, SmCount sm, double for_us) = 0;
  // While somebody more important is at work, what runs of the client stands, or does not; until
  // the policy says so, it does not (stops.h). False if the client is gone.
  virtual bool set_stop(ClientId, StopWhen when) = 0;
  // For so long it has the GPU at a time, where that is time-sliced; 0: as the driver set it.
  virtual bool set_slice(ClientId, uint32_t slice_us) = 0;
  // The policy is asked anew (kernel_init) about each kernel of the client as it is next launched.
  // False if the client is gone.
  virtual bool resize(ClientId) = 0;

 protected:
  ~Gpu() = default;
};

// What a hook said. kDefault: it is absent or returned nil; kFault: it failed, and the built-in
// decides this once.
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
  SmCount sm{};      // on so many SMs, from the end of those that the client has; 0: on all
  int launch_priority = kBuiltinPriority;
  bool open = false;    // the gates of its client open, too: until somebody comes (Openings)
  uint16_t reason = 0;  // Policy::reason's; 0: none was given
  double again_us = 0;  // IDLE: it is to be asked again so soon; 0: the core knows when
};

struct KernelVerdict {
  HookResult result = HookResult::kDefault;
  SmCount sm{};  // its launches are kept to so many SMs, 0: to none
  int launch_priority = kBuiltinPriority;
  bool timed = false;  // the policy wants the time of each launch
};

// Why a policy's time is over.
enum class Ending : uint8_t { kReplaced, kFaulted };

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // Its verdicts choose more than when: SMs or a priority of each launch. What stands at gates has
  // these already, so that its clients ask; but a long graph stands there, to be stopped inside.
  bool chooses_per_launch = false;

  // Copies what `before`, whose place it may take, keeps for its successors. False: that is of
  // another form; `before` stays. It may stay all the same, and must find what it left.
  virtual bool take_over(Policy& before) {
    (void)before;
    return true;
  }
  virtual HookResult init(Gpu&) { return HookResult::kDefault; }
  // No hook is called after it. What it says of itself before, for whoever asks why it ended.
  virtual std::string dump(Gpu&) { return {}; }
  virtual void exit(Gpu&, Ending) {}
  virtual AllowanceVerdict client_init(Gpu&, ClientId) { return {}; }
  virtual AllowanceVerdict client_active(Gpu&, ClientId) { return {}; }
  virtual AllowanceVerdict client_idle(Gpu&, ClientId) { return {}; }
  virtual HookResult client_exit(Gpu&, ClientId) { return HookResult::kDefault; }
  // Its terms are others. A policy that does not hear of that meets it as one who left and came.
  virtual AllowanceVerdict client_update(Gpu&, ClientId) { return {}; }
  virtual bool hears_updates() const { return false; }
  // A kernel ID is first seen at a client, or is measured to the end. `kernel` has no handle.
  virtual KernelVerdict kernel_init(Gpu&, const LaunchView& kernel) {
    (void)kernel;
    return {};
  }
  // True if it must hear of each kernel: only then `kernel_init` is called.
  virtual bool hears_kernels() const { return false; }
  // The SM sets of clients that attach from now on.
  virtual SmFamily family() const { return {}; }
  virtual EnqueueVerdict enqueue(Gpu&, LaunchId) { return {}; }
  virtual DispatchVerdict dispatch(Gpu&) { return {}; }
  // The launch is on its way to the GPU, or seen to be; `launch` is a copy without a handle.
  virtual HookResult running(Gpu&, const LaunchView& launch) {
    (void)launch;
    return HookResult::kDefault;
  }
  // True if it must hear of each launch's start: only then `running` is called.
  virtual bool hears_running() const { return false; }
  // The launch has ended; `launch` is a copy, its handle is stale already.
  virtual HookResult stopping(Gpu&, const LaunchView& launch) {
    (void)launch;
    return HookResult::kDefault;
  }
  // Every Config::tick_us while anybody is active.
  virtual HookResult tick(Gpu&) { return HookResult::kDefault; }
  virtual bool hears_tick() const { return false; }
  // The text of a reason that came with a verdict of this policy; it never changes.
  virtual std::string_view reason(uint16_t) const { return ""; }
  // True if it must hear of each launch's end: only then `stopping` is called.
  virtual bool hears_stopping() const { return false; }
  // As how many faults the last one counts: one that held everybody up counts for its time, too.
  virtual uint32_t fault_weight() const { return 1; }
};

}  // namespace heddle::core
