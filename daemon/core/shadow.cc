// A candidate beside the live policy.
#include "daemon/core/shadow.h"

#include <algorithm>
#include <utility>

#include "daemon/core/shadow_state.h"

namespace heddle::core {

Shadow::Shadow(const Scene& scene, const Windows& windows, const Admitting& admission, Policy* live,
               Policy& candidate, const ShadowLimits& limits)
    : Sight(scene),
      windows_(windows),
      admission_(admission),
      live_(live),
      candidate_(candidate),
      limits_(limits) {
  so_far_.since = refilled_at_ = now_.clock;
  budget_ns_ = limits.burst_ns;
  if (candidate_.init(*this) == HookResult::kFault) {
    end("the candidate faulted", true);
    return;
  }
  for (const ClientId id : roster_.ids()) {
    meet(id);
    if (!roster_.find(id)->active) continue;
    const auto active = [&] { return candidate_.client_active(*this, id); };
    choices_[id].take(ask<WindowVerdict>(false, active));
  }
  for (uint32_t slot = 0; slot < asks_.slots(); ++slot) {
    if (asks_[slot].client != nullptr) watch(slot);
  }
}

void Shadow::end(const std::string& why, bool faulted) {
  if (over()) return;
  ended_ = why;
  so_far_.faulted = faulted;
  so_far_.now = now_.clock;
  candidate_.exit(*this, faulted ? Ending::kFaulted : Ending::kReplaced);
}

ShadowReport Shadow::report() const {
  ShadowReport all = so_far_;
  all.ended = ended_;
  if (!over()) all.now = now_.clock;
  all.clients = counted_;
  for (ShadowOfClient& one : all.clients) {
    const Client* c = roster_.find(one.id);
    one.there = c != nullptr;
    if (c == nullptr) continue;
    one.live_window_us = c->standing.window_us;
    one.window_us = window_of(*c);
  }
  return all;
}

// ---- what it costs ----------------------------------------------------------------------------

bool Shadow::affords() {
  const double passed = static_cast<double>(now_.clock - refilled_at_) * limits_.share;
  budget_ns_ = std::min(limits_.burst_ns, budget_ns_ + static_cast<TimeNs>(passed));
  refilled_at_ = now_.clock;
  return limits_.clock == nullptr || budget_ns_ > 0;
}

template <class Verdict, class Hook>
Verdict Shadow::ask(bool may_skip, Hook&& hook) {
  if (over()) return {};
  if (!affords() && may_skip) {
    ++so_far_.skipped;
    skipped_at_ = now_.clock;
    return {};
  }
  const TimeNs before = limits_.clock != nullptr ? limits_.clock() : 0;
  Verdict verdict = hook();
  const TimeNs took = limits_.clock != nullptr ? limits_.clock() - before : 0;
  budget_ns_ -= took;
  ++so_far_.calls;
  so_far_.spent_us += to_us(took);
  so_far_.longest_us = std::max(so_far_.longest_us, to_us(took));
  HookResult result;
  if constexpr (std::is_same_v<Verdict, HookResult>) {
    result = verdict;
  } else {
    result = verdict.result;
  }
  if (result == HookResult::kFault) end("the candidate faulted", true);
  return verdict;
}

// ---- launches ---------------------------------------------------------------------------------

bool Shadow::holds(uint32_t slot) const {
  if (slot >= launches_.size()) return false;
  const Launch& launch = launches_[slot];
  return launch.id != 0 && launch.let_go < 0 && !launch.unseen;
}

uint32_t Shadow::window_of(const Client& c) const {
  const auto found = choices_.find(c.id);
  return windows_.of(c, found != choices_.end() ? found->second : WindowChoice{});
}

// Of what waits in the world and not here, or of one client's.
double Shadow::in_flight_us(const Client* of) const {
  double us = 0;
  for (uint32_t slot = 0; slot < launches_.size(); ++slot) {
    const Launch& launch = launches_[slot];
    if (launch.id == 0 || launch.let_go < 0) continue;
    if (of != nullptr && asks_[slot].client != of) continue;
    us += std::max(0.0, launch.predicted_us - to_us(now_.clock - launch.let_go));
  }
  return us;
}

bool Shadow::at_work(const Client& c) const {
  return !c.work.outstanding.empty() || in_flight_us(&c) > 0;
}

void Shadow::forget(uint32_t slot) {
  if (slot >= launches_.size()) return;
  Launch& launch = launches_[slot];
  queues_.remove(launch.id, launch.queue);
  launch = {};
}

void Shadow::let_go(uint32_t slot) {
  Launch& launch = launches_[slot];
  queues_.remove(launch.id, launch.queue);
  launch.let_go = now_.clock;
  launch.predicted_us = asks_[slot].client->predict_us(asks_[slot].kernel);
}

// The launch asks, in the candidate's world as well; unless it would not have had to there, under a
// window that is longer.
void Shadow::watch(uint32_t slot) {
  if (slot >= launches_.size()) launches_.resize(slot + 1);
  if (launches_[slot].id != asks_.id_of(slot)) {
    forget(slot);
    launches_[slot].id = asks_.id_of(slot);
  }
  if (over() || !holds(slot)) return;
  const Client& c = *asks_[slot].client;
  const uint32_t window_us = window_of(c);
  if (window_us > c.standing.window_us && c.remaining_us(now_.clock) < window_us)
    return let_go(slot);
  const uint64_t skipped = so_far_.skipped;
  const auto verdict =
      ask<EnqueueVerdict>(true, [&] { return candidate_.enqueue(*this, asks_.id_of(slot)); });
  launches_[slot].unseen = so_far_.skipped != skipped;
  if (verdict.result == HookResult::kDecided && verdict.run) let_go(slot);
}

// As the scheduler would: again until the candidate holds what is left.
void Shadow::decide() {
  for (int i = 0; i < kInARow && decide_once(); ++i) {
  }
}

bool Shadow::decide_once() {
  bool any = false;
  for (uint32_t slot = 0; slot < launches_.size() && !any; ++slot) any = holds(slot);
  if (!any || over()) return false;
  const uint64_t skipped = so_far_.skipped;
  const auto verdict = ask<DispatchVerdict>(true, [&] { return candidate_.dispatch(*this); });
  if (over() || so_far_.skipped != skipped) return false;
  const bool decided = verdict.result == HookResult::kDecided;
  LaunchId pick = verdict.run;
  if (!decided || pick == 0) pick = admission_.pick_builtin(decided, this);
  if (pick == 0) return false;
  const uint32_t slot = asks_.slot_of(pick);
  if (slot == kNoAsk || !holds(slot)) {
    end("the candidate ran a launch that does not wait", true);
    return false;
  }
  let_go(slot);
  return true;
}

ShadowCounts& Shadow::counts_of(const Client& c) {
  const bool room = counted_.size() < kCountedMax;
  const auto found = std::find_if(counted_.begin(), counted_.end(), [&](const ShadowOfClient& one) {
    return one.id == c.id || (!room && one.id == 0);
  });
  if (found != counted_.end()) return found->counts;
  ShadowOfClient& fresh = counted_.emplace_back();
  if (counted_.size() < kCountedMax) {
    fresh.id = c.id;
    fresh.priority = c.rule.priority;
    fresh.name = c.who.name;
    fresh.label = c.who.label;
  }
  return fresh.counts;
}

void Shadow::granted(uint32_t slot, Decider decider) {
  if (over()) return;
  const Waiting& w = asks_[slot];
  ShadowCounts& counts = counts_of(*w.client);
  const bool known = slot < launches_.size() && launches_[slot].id == asks_.id_of(slot);
  const Launch launch = known ? launches_[slot] : Launch{};
  const bool held = launch.let_go < 0;
  if (!known || launch.unseen || decider == Decider::kBypass ||
      (held && skipped_at_ >= w.asked_at)) {
    ++counts.unseen;
    return;
  }
  ++(held ? counts.later : launch.let_go < now_.clock ? counts.sooner : counts.alike);
  counts.live.add(to_us(now_.clock - w.asked_at));
  counts.candidate.add(to_us((held ? now_.clock : launch.let_go) - w.asked_at));
}

// ---- hooks ------------------------------------------------------------------------------------

void Shadow::exit(Gpu& gpu, Ending ending) {
  end(ending == Ending::kFaulted ? "the live policy was quarantined"
                                 : "another policy became the live one",
      false);
  if (live_ != nullptr) live_->exit(gpu, ending);
}

void Shadow::meet(ClientId id) {
  choices_[id] = {};
  const auto init = [&] { return candidate_.client_init(*this, id); };
  choices_[id].take(ask<WindowVerdict>(false, init));
}

WindowVerdict Shadow::client_init(Gpu& gpu, ClientId id) {
  WindowVerdict verdict;
  if (live_ != nullptr) verdict = live_->client_init(gpu, id);
  meet(id);
  return verdict;
}

WindowVerdict Shadow::window_hook(WindowVerdict (Policy::*hook)(Gpu&, ClientId), ClientId id,
                                  WindowVerdict live) {
  choices_[id].take(ask<WindowVerdict>(false, [&] { return (candidate_.*hook)(*this, id); }));
  return live;
}

WindowVerdict Shadow::client_active(Gpu& gpu, ClientId id) {
  return window_hook(&Policy::client_active, id,
                     live_ != nullptr ? live_->client_active(gpu, id) : WindowVerdict{});
}

WindowVerdict Shadow::client_idle(Gpu& gpu, ClientId id) {
  return window_hook(&Policy::client_idle, id,
                     live_ != nullptr ? live_->client_idle(gpu, id) : WindowVerdict{});
}

HookResult Shadow::client_exit(Gpu& gpu, ClientId id) {
  const HookResult result = live_ != nullptr ? live_->client_exit(gpu, id) : HookResult::kDefault;
  ask<HookResult>(false, [&] { return candidate_.client_exit(*this, id); });
  choices_.erase(id);
  return result;
}

// Only if the live policy hears of updates; else the client leaves and comes back.
WindowVerdict Shadow::client_update(Gpu& gpu, ClientId id) {
  const WindowVerdict verdict = live_->client_update(gpu, id);
  if (candidate_.hears_updates()) return window_hook(&Policy::client_update, id, verdict);
  ask<HookResult>(false, [&] { return candidate_.client_exit(*this, id); });
  meet(id);
  return verdict;
}

KernelVerdict Shadow::kernel_init(Gpu& gpu, const LaunchView& kernel) {
  KernelVerdict verdict;
  if (live_ != nullptr && live_->hears_kernels()) verdict = live_->kernel_init(gpu, kernel);
  if (candidate_.hears_kernels()) {
    ask<KernelVerdict>(true, [&] { return candidate_.kernel_init(*this, kernel); });
  }
  return verdict;
}

EnqueueVerdict Shadow::enqueue(Gpu& gpu, LaunchId id) {
  EnqueueVerdict verdict;
  if (live_ != nullptr) verdict = live_->enqueue(gpu, id);
  watch(asks_.slot_of(id));
  if (verdict.result == HookResult::kDecided && verdict.run) decide();  // no dispatch comes first
  return verdict;
}

DispatchVerdict Shadow::dispatch(Gpu& gpu) {
  DispatchVerdict verdict;
  if (live_ != nullptr) verdict = live_->dispatch(gpu);
  decide();
  return verdict;
}

HookResult Shadow::running(Gpu& gpu, const LaunchView& launch) {
  HookResult result = HookResult::kDefault;
  if (live_ != nullptr && live_->hears_running()) result = live_->running(gpu, launch);
  if (candidate_.hears_running()) {
    ask<HookResult>(true, [&] { return candidate_.running(*this, launch); });
  }
  return result;
}

HookResult Shadow::stopping(Gpu& gpu, const LaunchView& launch) {
  HookResult result = HookResult::kDefault;
  if (live_ != nullptr && live_->hears_stopping()) result = live_->stopping(gpu, launch);
  if (candidate_.hears_stopping()) {
    ask<HookResult>(true, [&] { return candidate_.stopping(*this, launch); });
  }
  return result;
}

HookResult Shadow::tick(Gpu& gpu) {
  HookResult result = HookResult::kDefault;
  if (live_ != nullptr && live_->hears_tick()) result = live_->tick(gpu);
  if (candidate_.hears_tick()) ask<HookResult>(true, [&] { return candidate_.tick(*this); });
  return result;
}

// ---- what the candidate sees ------------------------------------------------------------------

GpuView Shadow::gpu() const {
  GpuView view = Sight::gpu();
  view.inflight_us += in_flight_us(nullptr);
  return view;
}

bool Shadow::client(ClientId id, ClientView& view) const {
  if (!Sight::client(id, view)) return false;
  const Client& c = *roster_.find(id);
  view.window_us = window_of(c);
  view.inflight_us += in_flight_us(&c);
  return true;
}

bool Shadow::queue_insert(QueueId queue, LaunchId id, double key) {
  const uint32_t slot = asks_.slot_of(id);
  if (slot == kNoAsk || !holds(slot)) return false;
  const Waiting& w = asks_[slot];
  return queues_.insert(queue, launches_[slot].queue, id, key, w.turn_us, w.arrival,
                        w.client->predict_us(w.kernel));
}

LaunchId Shadow::queue_best_fit(QueueId queue, double us) const {
  return queues_.best_fit(queue, us, [this](LaunchId id) { return follows_none_on_sets(id); });
}

bool Shadow::set_window(ClientId id, uint32_t window_us, double for_us) {
  if (roster_.find(id) == nullptr) return false;
  choices_[id].set(window_us, to_ns(for_us), now_.clock);
  return true;
}

}  // namespace heddle::core
