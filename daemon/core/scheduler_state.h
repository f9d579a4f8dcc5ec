// What the Scheduler keeps; shared by scheduler.cc (events) and dispatch.cc (policies and grants).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/core/builtin.h"
#include "daemon/core/check.h"
#include "daemon/core/client.h"
#include "daemon/core/queues.h"
#include "daemon/core/scheduler.h"

namespace heddle::core {

// A launch that waits for a grant: one per waiting thread.
struct Waiting {
  Client* client = nullptr;  // nullptr: the slot is free
  TimeNs asked_at = 0;
  double turn_us = 0;  // equals are served in this order, and then as they came
  uint64_t arrival = 0;
  uint64_t stream_seq = 0;
  double by_credit_us = 0;  // LaunchView's
  uint32_t generation = 1;
  uint32_t kernel = kUnknownKernel;
  uint32_t ask_seq = 0;
  int32_t queue = -1;  // of the policy; -1: the built-in serves it
  uint16_t stream = 0;
  uint16_t thread = 0;
  LaunchKind kind = LaunchKind::kKernel;
  bool unmovable = false;

  bool movable() const { return !unmovable && client->groups.count > GroupCount(1); }
};

// How it is known that work is done: by its predicted end alone; by evidence that came later; or by
// evidence that says when, too.
enum class Seen : uint8_t { kNot, kDone, kWhen };

struct Scheduler::State final : Gpu {
  explicit State(const Config& c);
  ~State();

  OnBroken on_broken = abort_on_broken;
  Config config;  // its mode changes, by set_mode, and whether there is one client alone
  Stats stats;
  StatsTable table;
  TimeNs clock = 0;
  std::vector<Decision> decisions;

  std::unordered_map<ClientId, std::unique_ptr<Client>> clients_by_id;
  std::array<Client*, 64> found{};  // lately, by ID: no division, and one cache line less
  std::vector<ClientId> client_ids;
  std::vector<Client*> active;  // a few dozen at most, the most important first
  TimeNs settle_at = 0;         // none of them needs settling before, unless told something
  bool credit_out = false;      // some of them may have credit
  // How long each priority was the highest with work outstanding; last: nobody had any.
  std::array<TimeNs, kPriorityCount + 1> busy_ns{};
  int highest_busy = kPriorityCount;
  std::array<RunTimes, kPriorityCount> runs_of{};  // by priority, of clients that are gone as well
  RunTimes runs_above;                             // Scheduler's
  double part_us = 0;      // a clock: of n clients that are resident, each has a part of 1/n
  uint32_t residents = 0;  // so many are
  double unused_us = 0;    // what was left of the parts of others
  DeviceModel model;
  PriceCache prices;
  uint32_t promises = 0;  // clients that were promised something
  bool windows_dirty = false;
  bool dispatch_wanted = false;
  bool stepping = false;  // within step()

  std::vector<Waiting> waiting;
  std::vector<uint32_t> waiting_free;
  size_t waiting_count = 0;
  uint64_t arrivals = 0;
  std::array<double, kPriorityCount> turn_us{};  // of the last that was served

  Policy* policy = nullptr;
  std::unique_ptr<Shadow> shadow;  // a candidate beside it; then it stands in `policy`
  uint32_t policy_number = 1;      // another one with every change of the policy,
  uint32_t kernels_of = 1;         // and whose sizes kernels have
  std::vector<Queue> queues;
  std::vector<Queue> started_queues;  // of a policy that only started
  std::deque<TimeNs> faults;
  bool quarantined = false;
  std::array<Decision, kLastDecisions> recent{};  // a ring of grants
  uint64_t recent_count = 0;
  LastWords last_words;
  bool bypass = false;
  Reasons reasons;
  mutable Saw saw;  // of the running dispatch hook
  Held held;
  TimeNs idle_since = -1;  // the policy says IDLE and nobody has work; -1: not so
  Stall last_stall;
  StallCounts stalls;
  TimeNs departed_at = -1;                // the latest that a client worked who is detached
  TimeNs starve_at = 0;                   // nobody waits for too long before
  TimeNs lent_until = kNever;             // no lent window ends before
  int highest_attached = kPriorityCount;  // as the windows were last refreshed
  TimeNs tick_at = 0;                     // the policy's next tick is not before
  TimeNs retry_at = 0;  // next dispatch while launches wait and the policy said IDLE

  // ---- scheduler.cc ----
  void on_attached(const Event&);
  void on_detached(Client&);
  void forget_kernel(const Client&, Kernel&);
  void on_terms(Client&, const TermsBody&);
  void set_terms(Client&, const TermsBody&);
  void insert_active(Client&);
  void on_kernel(Client&, const KernelBody&);
  void on_posted(Client&, const Event&);
  void on_asked(Client&, const Event&);
  void on_withdrawn(Client&, const Event&);
  bool reconcile(Client&, const LaunchBody&);
  uint32_t find_ask(const Client&, const LaunchBody&) const;
  void on_waiting(Client&, TimeNs at);
  void advance(TimeNs to);  // time passes
  void note_busy();
  void touch(Client&, TimeNs at);  // the client has work: its gap ends, it is active
  void add_work(Client&, const Work&);
  void settle(Client&);  // opens gaps and retires clients as time passes
  void settle_idle(Client&);
  void settle_all(Client* own);
  double predict(const Client&, uint32_t kernel) const;
  void predict(const Client&, Work&) const;  // of its kernel, in its SM set
  double stretch(const Client&, const Kernel&, double whole_us, SmSet set) const;
  Client* find(ClientId);

  // ---- completion.cc ----
  void on_completed(Client&, const Event&);
  void finish(Client&, const Work&, TimeNs at, float measured_us, Seen seen);
  void started(Client&, const Work&);  // tell the policy
  void stopped(Client&, const Work&, float measured_us);

  // ---- untold.cc ----
  void on_unobserved(Client&, const Event&);
  void on_observed(Client&, const Event&);
  void on_row(Client&, const Event&);
  void count_untold(Client&, uint64_t launches);

  // ---- checks.cc ----
  void check() const;
  void check_waiting() const;

  // ---- gpu_time.cc ----
  void set_resident(Client&, bool resident);
  void collect_part(Client&);
  void charge(Client&, double us);

  // ---- measure.cc ----
  void on_profile(const Client&, const ProfileBody&);
  TimeNs worked_until(const Client&) const;
  bool alone_since(const Client&, TimeNs since, int lowest = kPriorityLowest) const;
  void add_gap(const Client&, TimeNs at);  // it ends: the client has work again
  void add_duration(Client&, const Work&, double us);
  void end_run(Client&, TimeNs at);  // a synchronizing call returned, and nothing is left
  void infer_durations(Client&, TimeNs at);
  void send_hint(Client&, uint32_t kernel);
  TaskProfile profile_of(const Client&, bool profiled_only) const;

  // ---- runs.cc ----
  void count_run(Client&, const Work&);  // a launch is part of it, or begins one
  void compare_run(Client&, TimeNs at);

  // ---- budget.cc ----
  static constexpr size_t kMixesMax = 16;
  static LaunchShape shape_of(const Kernel&);
  double gap_for(const Client& victim, double own_us) const;
  Price price(const Client& victim, const Client& by, uint32_t kernel, double us, SmSet set,
              double gap_us);
  void charge_promises(Client&, const Work&);
  void refill_accounts(double us);
  BudgetVerdict promises_afford(const Client& by, uint32_t kernel, double us, SmSet set);
  SmSet runs_on(const Client&) const;
  BudgetVerdict budget_fits(LaunchId, SmCount sm) override;
  double slowdown(ClientId) override;
  double channel_left(Channel) const override;

  // ---- bound.cc ----
  bool goes_first(const Client& above, const Client& below) const;
  double on_sets_us(const Client&) const;
  double bound_us(const Client&) const;
  bool still_in_the_way(const Client&) const;
  void end_gap(Client&, TimeNs at);
  void judge_gaps(const Client&, const Work&, TimeNs at, float measured_us, TimeNs done_before);

  // ---- credit.cc ----
  double give_credit(Client&, Granted&, double us);
  void use_credit(Client&, uint16_t thread, Work&);
  double end_credit(Client&, uint16_t thread);
  void revoke_credits();
  TimeNs credit_deadline(const Client&) const;

  // ---- dispatch.cc ----
  void apply(Client&, const WindowVerdict&);
  void refresh_windows();
  uint32_t window_of(const Client&, const WindowChoice&) const;
  void send_window(Client&, uint32_t window_us, uint32_t free_streams);
  void tell_window(Client&);
  int8_t launch_priority_of(const Client&) const;
  void take_turn(Waiting&);
  void enqueue(uint32_t slot);
  bool ticks() const { return policy != nullptr && policy->hears_tick(); }
  void tick();
  void dispatch();
  bool dispatch_once();
  // `world`: of a candidate; nullptr: this one.
  LaunchId pick_builtin(bool unplaced_only, const Shadow* world = nullptr) const;
  bool follows_none_on_sets(LaunchId) const;  // of its client's in flight
  bool grant(LaunchId, Decider, const DispatchVerdict&);
  void release(uint32_t slot);  // frees a waiting slot
  void starve();
  TimeNs starve_ns() const;
  bool faulted(HookResult);
  void end_policy();                                          // by its faults (ending.cc)
  std::span<Client* const> active_above(int priority) const;  // strictly
  std::span<Client* const> active_below(int priority) const;
  double least_above(int priority, double (Client::*time)(TimeNs) const) const;
  int highest_active() const;
  uint32_t slot_of(LaunchId) const;  // kNoSlot if stale
  LaunchId id_of(uint32_t slot) const;
  void fill(const Client&, uint32_t kernel, LaunchKind, LaunchView&) const;
  static constexpr uint32_t kNoSlot = kNoAsk;

  // ---- sm_sets.cc ----
  void give_family(Client&);
  SmSet isolated_set(const Client&) const;
  SmSet set_of(const Client&, uint32_t kernel) const;
  SmSet place(const Client&, const Waiting&, SmCount sm);
  SmSet peek_set(const Client&, const Waiting&, SmCount sm) const;
  void learn_use(KernelStats&, const ipc::KernelMetrics&);
  const Use* use_here(const Kernel&, double us);
  void init_kernel(Client&, uint32_t kernel);
  void init_kernels();
  void ask_about(Client&, uint32_t kernel);
  // ---- explain.cc ----
  uint16_t reason_of(const DispatchVerdict&);
  void note_held(const DispatchVerdict&, bool by_policy);
  void note_wait(Client&, const Waiting&, Decider, const DispatchVerdict&);
  std::string why_builtin(const Waiting&) const;
  HeldTold tell(const Held&) const;
  std::string kernel_name(const Client&, uint32_t kernel) const;

  // ---- stall.cc ----
  void note_idle(bool by_policy);
  void note_stall(const Waiting&);

  // ---- gpu.cc ----
  TimeNs now() const override { return clock; }
  GpuView gpu() const override;
  bool launch(LaunchId, LaunchView&) const override;
  bool client(ClientId, ClientView&) const override;
  std::span<const ClientId> clients() const override { return client_ids; }
  double gap_us(int priority) const override;
  double gap_length_us(int priority) const override;
  bool busy(int priority) const override;
  double idle_us(int priority) const override;
  RunTimes runs(int priority) const override;
  bool comparing(int priority) const override;
  QueueId queue_create(std::string_view name) override;
  bool queue_insert(QueueId, LaunchId, double key) override;
  LaunchId queue_peek(QueueId, size_t place) const override;
  LaunchId queue_best_fit(QueueId, double us) const override;
  size_t queue_len(QueueId) const override;
  bool set_window(ClientId, uint32_t window_us, double for_us) override;
  bool set_launch_priority(ClientId, int launch_priority) override;
  bool resize(ClientId) override;
};

inline TimeNs to_ns(double us) { return static_cast<TimeNs>(us * 1e3); }
inline double to_us(TimeNs ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace heddle::core
