// Decisions: windows, the policy's hooks, the built-in default, grants.
#include <algorithm>
#include <tuple>
#include <utility>

#include "daemon/core/shadow_state.h"

namespace heddle::core {
namespace {

// While launches wait and the policy says IDLE it is asked again this often, so that a budget that
// accrues with time, or a gap estimate that was wrong, lets something go.
constexpr TimeNs kRetryNs = 1'000'000;

// Of the starvation bound, after which the core lets a launch go.
constexpr double kStarvationShare = 0.95;

}  // namespace

// ---- windows ----------------------------------------------------------------------------------

void Scheduler::State::refresh_windows() {
  windows_dirty = false;
  if (kernels_dirty) sizes.ask_about_all();
  starve_at = 0;  // whoever was held back may be so no more
  lent_until = kNever;
  highest_attached = roster.highest_attached();
  for (const ClientId id : roster.ids()) {
    Client& c = *roster.find(id);
    if (c.standing.choice.lends(clock))
      lent_until = std::min(lent_until, c.standing.choice.lent_until);
    const uint32_t us = bypass ? kWindowLeased : window_of(c, c.standing.choice);
    send_window(c, us, builtin_free_streams(c.rule.priority, roster.highest_active(), us));
  }
  // What was left to the built-in because its client had a window is the policy's once it has none.
  for (uint32_t slot = 0; asks.count() > 0 && slot < asks.slots(); ++slot) {
    const Client* c = asks[slot].client;
    if (c != nullptr && asks[slot].queue < 0 && c->standing.window_sent_at == clock &&
        c->standing.window_us == kWindowGated) {
      enqueue(slot);
      dispatch_wanted = true;
    }
  }
}

uint32_t Scheduler::State::window_of(const Client& c, const WindowChoice& choice) const {
  if (choice.refused) return c.rule.fail_closed ? kWindowGated : kWindowLeased;
  const uint32_t builtin =
      builtin_window(c.rule.priority, roster.highest_active(), highest_attached, config);
  return std::min(choice.window_us(builtin, clock), c.rule.window_max_us);
}

void Scheduler::State::send_window(Client& c, uint32_t window_us, uint32_t free_streams) {
  const SmSet set = bypass ? SmSet() : places.isolated_set(c);
  if (c.standing.window_sent && c.standing.window_us == window_us &&
      c.standing.free_streams == free_streams &&
      c.standing.refused_sent == c.standing.choice.refused && c.place.window_set == set) {
    return;
  }
  c.place.window_set = set;
  c.standing.window_sent = true;
  c.standing.refused_sent = c.standing.choice.refused;
  c.standing.window_sent_at = clock;
  c.standing.window_us = window_us;
  c.standing.free_streams = free_streams;
  progress.unsettle(c);
  telling.window(c, bypass);
  // Whoever waits under an opened window would wait for nothing.
  if (window_us != kWindowGated) dispatch_wanted = true;
}

// ---- asks and grants --------------------------------------------------------------------------

void Scheduler::State::enqueue(uint32_t slot) {
  if (seat.enqueue(slot)) grant(asks.id_of(slot), Decider::kPolicy, {});
}

void Scheduler::State::release(uint32_t slot) {
  Waiting& w = asks[slot];
  seat.orders().queues().remove(asks.id_of(slot), w.queue);
  HEDDLE_CHECK(w.client != nullptr && w.client->asking.queued > 0 && asks.count() > 0);
  if (shadow != nullptr) shadow->forget(slot);
  asks.release(slot);
}

bool Scheduler::State::grant(LaunchId id, Decider decider, const DispatchVerdict& verdict) {
  const uint32_t slot = asks.slot_of(id);
  if (slot == kNoAsk) return false;
  const Waiting w = asks[slot];
  Client& c = *w.client;
  if (clock > w.asked_at) {
    const bool by_policy = decider == Decider::kPolicy;
    told.granted(c, w, decider,
                 by_policy ? told.reason(seat.policy(), verdict.reason) : uint16_t{0});
  }
  if (shadow != nullptr) shadow->granted(slot, decider);
  release(slot);
  Decision d = telling.make(DecisionKind::kGrant, c);
  d.decider = decider;
  d.ask_seq = w.ask_seq;
  d.thread = w.thread;
  d.epoch = c.standing.epoch;
  const Kernel* kernel = c.kernel(w.kernel);
  int launch_priority = verdict.launch_priority;
  if (launch_priority == kBuiltinPriority && kernel != nullptr) {
    launch_priority = kernel->launch_priority;
  }
  d.launch_priority = launch_priority == kBuiltinPriority ? c.launch_priority(config)
                                                          : static_cast<int8_t>(launch_priority);
  d.sm_set = places.place(c, w, verdict.sm);
  ++c.told.granted;
  ++stats.granted;
  if (decider == Decider::kBuiltin) ++stats.by_builtin;
  asks.served(w);
  Work work;
  work.seq = w.stream_seq;
  work.posted_at = clock;
  work.waited_us = to_us(clock - w.asked_at);
  c.told.waits.add(work.waited_us);
  work.kernel = w.kernel;
  work.kind = w.kind;
  if (!w.unmovable) work.sm_set = d.sm_set;
  work.granted = true;
  c.predict(work);
  c.rhythm.gap_open = false;
  work.stream = w.stream;
  progress.add_work(c, work);
  progress.settle(c);
  Granted& granted = c.standing.grant(w.thread, {w.ask_seq, c.standing.epoch, d.sm_set});
  d.credit_us = static_cast<uint32_t>(give_credit(c, granted, verdict.credit_us));
  telling.grant(d);
  return true;
}

// The built-in's choice: the most important client that nobody above holds up; equals by turns, and
// as each may have one launch on the GPU, in equal numbers where all of them wait.
LaunchId Scheduler::State::pick_builtin(bool unplaced_only, const Shadow* world) const {
  const auto turn = [](const Waiting& w) {
    return std::tuple(w.client->rule.priority, w.turn_us, w.arrival);
  };
  uint32_t best = kNoAsk;
  for (uint32_t slot = 0; slot < asks.slots(); ++slot) {
    const Waiting& w = asks[slot];
    if (w.client == nullptr || w.client->held_back()) continue;
    if (world != nullptr && !world->holds(slot)) continue;
    if (unplaced_only && (world != nullptr ? world->queue_of(slot) : w.queue) >= 0) continue;
    const uint32_t window_us =
        world != nullptr ? world->window_of(*w.client) : w.client->standing.window_us;
    const bool leased = window_us == kWindowLeased;
    const bool free_window = window_us != kWindowGated;
    const double room = window_us - w.client->remaining_us(clock);
    const bool at_work =
        world != nullptr ? world->at_work(*w.client) : !w.client->work.outstanding.empty();
    const bool fits = free_window ? room > 0 || leased || w.client->is_free(w.stream)
                                  : !roster.busy(w.client->rule.priority, clock) && !at_work;
    if (!fits) continue;
    if (best == kNoAsk || turn(w) < turn(asks[best])) best = slot;
  }
  return best != kNoAsk ? asks.id_of(best) : 0;
}

// One decision; false when there is nothing more to decide now.
bool Scheduler::State::dispatch_once() {
  if (bypass) {
    for (uint32_t slot = 0; slot < asks.slots(); ++slot) {
      if (asks[slot].client != nullptr) return grant(asks.id_of(slot), Decider::kBypass, {});
    }
    return false;
  }
  seat.orders().take_saw();
  DispatchVerdict verdict = seat.dispatch();
  if (verdict.result == HookResult::kDecided && verdict.run != 0) {
    // A handle that went stale is the policy's mistake; a loop of them must not hang us.
    if (grant(verdict.run, Decider::kPolicy, verdict)) {
      stalls.idle(false);
      return true;
    }
    verdict.result = HookResult::kFault;
  }
  const bool fault = seat.faulted(verdict.result);
  const bool idle = verdict.result == HookResult::kDecided && !fault;
  // IDLE holds for what the policy placed; what it did not place is the built-in's, as is
  // everything when it said nothing.
  const LaunchId pick = pick_builtin(idle);
  if (pick == 0) {
    told.held(seat.orders().take_saw(), seat.number(),
              idle ? told.reason(seat.policy(), verdict.reason) : uint16_t{0}, idle);
  }
  stalls.idle(pick == 0 && idle);
  return pick != 0 && grant(pick, Decider::kBuiltin, {});
}

void Scheduler::State::dispatch() {
  uint32_t decided = 0;
  while (asks.count() > 0 && decided < config.dispatch_max && dispatch_once()) ++decided;
  retry_at = decided == config.dispatch_max ? clock : clock + kRetryNs;
  if (windows_dirty) refresh_windows();
}

// A little before the shim's own clock would.
TimeNs Scheduler::State::starve_ns() const {
  return to_ns(config.starvation_us * kStarvationShare);
}

void Scheduler::State::starve() {
  starve_at = kNever;
  for (uint32_t slot = 0; slot < asks.slots(); ++slot) {
    const Waiting& w = asks[slot];
    if (w.client == nullptr || w.client->held_back()) continue;
    if (const TimeNs at = w.asked_at + starve_ns(); clock < at) {
      starve_at = std::min(starve_at, at);
      continue;
    }
    ++stats.starved;
    stalls.starved(w);
    grant(asks.id_of(slot), Decider::kStarvation, {});
  }
}

bool Scheduler::start_policy(Policy& next, TimeNs now) {
  State& s = *state_;
  s.advance(now);
  Policy* live = s.shadow != nullptr ? s.shadow->live() : s.seat.policy();
  return s.seat.start(next, live);
}

std::span<const Decision> Scheduler::set_policy(Policy* next, TimeNs now, bool& ok) {
  ok = next == nullptr || start_policy(*next, now);
  if (ok) return adopt_policy(next, now);
  state_->telling.begin();
  return state_->telling.decisions();
}

std::span<const Decision> Scheduler::adopt_policy(Policy* next, TimeNs now) {
  State& s = *state_;
  s.telling.begin();
  end_shadow("another policy became the live one");
  s.advance(now);
  s.seat.adopt(next);
  s.told.forget_policy();
  for (const ClientId id : s.roster.ids()) s.roster.find(id)->bound.added_us_max = 0;
  // It may be lost to its faults in the middle: then nobody has a window of it any more.
  for (const ClientId id : s.roster.ids()) {
    s.seat.window(*s.roster.find(id), &Policy::client_init);
  }
  for (uint32_t slot = 0; slot < s.asks.slots(); ++slot) {
    s.asks[slot].queue = -1;
    if (s.asks[slot].client != nullptr) s.enqueue(slot);
  }
  s.refresh_windows();
  s.dispatch();
  s.check();
  return s.telling.decisions();
}

std::span<const Decision> Scheduler::set_bypass(bool on, TimeNs now) {
  State& s = *state_;
  s.telling.begin();
  s.advance(now);
  s.bypass = on;
  if (!on) s.kernels_dirty = true;  // nobody was asked about those that came meanwhile
  s.refresh_windows();
  s.dispatch();
  return s.telling.decisions();
}

std::span<const Decision> Scheduler::set_alone(bool alone, TimeNs now) {
  State& s = *state_;
  s.telling.begin();
  s.advance(now);
  s.config.alone = alone;
  s.refresh_windows();
  s.dispatch();
  return s.telling.decisions();
}

void Scheduler::set_sm_total(SmCount sm_total) {
  State& s = *state_;
  s.config.sm_total = sm_total;
  for (const auto& [id, c] : s.roster.all()) {
    for (Kernel& k : c->known.kernels) {
      k.waves =
          k.waves_on(!c->place.sm_set.empty() ? c->place.groups.sms_of(c->place.sm_set) : sm_total);
    }
  }
}

std::span<const Decision> Scheduler::set_mode(bool mps, double switch_us, TimeNs now) {
  State& s = *state_;
  s.telling.begin();
  s.advance(now);
  s.config.mps = mps;
  s.config.switch_us = switch_us;
  // A window carries the launch priority, which the mode decides as well.
  for (const ClientId id : s.roster.ids()) {
    Client& c = *s.roster.find(id);
    c.standing.window_sent = false;
    c.bound.added_us_max = 0;  // the bound is another
    c.bound.last = {};
  }
  s.refresh_windows();
  s.dispatch();
  return s.telling.decisions();
}

}  // namespace heddle::core
