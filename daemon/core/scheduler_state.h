// What the Scheduler keeps; shared by scheduler.cc (events) and dispatch.cc (policies and grants).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/core/asks.h"
#include "daemon/core/bounds.h"
#include "daemon/core/builtin.h"
#include "daemon/core/check.h"
#include "daemon/core/client/client.h"
#include "daemon/core/explaining.h"
#include "daemon/core/learning.h"
#include "daemon/core/places.h"
#include "daemon/core/queues.h"
#include "daemon/core/roster.h"
#include "daemon/core/scheduler.h"
#include "daemon/core/stalls.h"

namespace heddle::core {

// How it is known that work is done: by its predicted end alone; by evidence that came later; or by
// evidence that says when, too.
enum class Seen : uint8_t { kNot, kDone, kWhen };

struct Scheduler::State final : Situation, Gpu {
  explicit State(const Config& c);
  ~State();

  Roster roster;
  TimeNs settle_at = 0;     // none of them needs settling before, unless told something
  bool credit_out = false;  // some of them may have credit
  // How long each priority was the highest with work outstanding; last: nobody had any.
  std::array<TimeNs, kPriorityCount + 1> busy_ns{};
  int highest_busy = kPriorityCount;
  GpuTime gpu_time;
  Promises promises{*this, roster, gpu_time};
  Telling telling{*this};
  Bounds bounds{*this, roster};
  Learning learning{*this, roster, telling};
  bool windows_dirty = false;
  bool dispatch_wanted = false;
  bool stepping = false;  // within step()

  Asks asks;
  Places places{*this, roster};
  Stalls stalls{*this, roster};
  Explaining told{*this, roster, asks};

  Policy* policy = nullptr;
  std::unique_ptr<Shadow> shadow;  // a candidate beside it; then it stands in `policy`
  uint32_t policy_number = 1;      // another one with every change of the policy,
  uint32_t kernels_of = 1;         // and whose sizes kernels have
  std::vector<Queue> queues;
  std::vector<Queue> started_queues;  // of a policy that only started
  std::deque<TimeNs> faults;
  bool quarantined = false;
  LastWords last_words;
  bool bypass = false;
  mutable Saw saw;                        // of the running dispatch hook
  TimeNs starve_at = 0;                   // nobody waits for too long before
  TimeNs lent_until = kNever;             // no lent window ends before
  int highest_attached = kPriorityCount;  // as the windows were last refreshed
  TimeNs tick_at = 0;                     // the policy's next tick is not before
  TimeNs retry_at = 0;  // next dispatch while launches wait and the policy said IDLE

  // ---- scheduler.cc ----
  void on_attached(const Event&);
  void on_detached(Client&);
  void on_terms(Client&, const TermsBody&);
  void set_terms(Client&, const TermsBody&);
  void on_kernel(Client&, const KernelBody&);
  void on_posted(Client&, const Event&);
  void on_asked(Client&, const Event&);
  void on_withdrawn(Client&, const Event&);
  bool reconcile(Client&, const LaunchBody&);
  void on_waiting(Client&, TimeNs at);
  void advance(TimeNs to);  // time passes
  void note_busy();
  void touch(Client&, TimeNs at);  // the client has work: its gap ends, it is active
  void add_work(Client&, const Work&);
  void settle(Client&);  // opens gaps and retires clients as time passes
  void settle_idle(Client&);
  void settle_all(Client* own);

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

  void charge(Client& c, double us) {
    gpu_time.charge(c.gpu_time, us, c.work.outstanding.predicted_us());
  }

  BudgetVerdict budget_fits(LaunchId, SmCount sm) override;
  double slowdown(ClientId id) override {
    const Client* c = roster.find(id);
    return c != nullptr ? promises.slowdown(*c) : 1;
  }
  double channel_left(Channel channel) const override { return promises.channel_left(channel); }

  // ---- credit.cc ----
  double give_credit(Client&, Granted&, double us);
  void use_credit(Client&, uint16_t thread, Work&);
  void revoke_credits();
  TimeNs credit_deadline(const Client&) const;

  // ---- dispatch.cc ----
  void apply(Client&, const WindowVerdict&);
  void refresh_windows();
  uint32_t window_of(const Client&, const WindowChoice&) const;
  void send_window(Client&, uint32_t window_us, uint32_t free_streams);
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
  void end_policy();  // by its faults (ending.cc)
  void fill(const Client&, uint32_t kernel, LaunchKind, LaunchView&) const;

  // ---- sm_sets.cc ----
  void init_kernel(Client&, uint32_t kernel);
  void init_kernels();
  void ask_about(Client&, uint32_t kernel);
  void ask_anew(Client&, uint32_t kernel);
  // ---- gpu.cc ----
  TimeNs now() const override { return clock; }
  GpuView gpu() const override;
  bool launch(LaunchId, LaunchView&) const override;
  bool client(ClientId, ClientView&) const override;
  std::span<const ClientId> clients() const override { return roster.ids(); }
  double gap_us(int priority) const override;
  double gap_length_us(int priority) const override;
  bool busy(int priority) const override;
  double idle_us(int priority) const override;
  RunTimes runs(int priority) const override { return learning.runs(priority); }
  bool comparing(int priority) const override { return roster.comparing(priority, clock); }
  QueueId queue_create(std::string_view name) override;
  bool queue_insert(QueueId, LaunchId, double key) override;
  LaunchId queue_peek(QueueId, size_t place) const override;
  LaunchId queue_best_fit(QueueId, double us) const override;
  size_t queue_len(QueueId) const override;
  bool set_window(ClientId, uint32_t window_us, double for_us) override;
  bool set_launch_priority(ClientId, int launch_priority) override;
  bool resize(ClientId) override;
};

}  // namespace heddle::core
