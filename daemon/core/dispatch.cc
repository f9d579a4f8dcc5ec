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

// A client asks again only when its last launch was let go, and lost no turn by that.
constexpr double kTurnLagUs = 2000;

}  // namespace

uint32_t Scheduler::State::slot_of(LaunchId id) const {
  const uint32_t slot = static_cast<uint32_t>(id) - 1;
  if (slot >= waiting.size() || waiting[slot].client == nullptr) return kNoSlot;
  return waiting[slot].generation == static_cast<uint32_t>(id >> 32) ? slot : kNoSlot;
}

LaunchId Scheduler::State::id_of(uint32_t slot) const {
  return LaunchId{waiting[slot].generation} << 32 | (slot + 1);
}

// Counts a fault; past fault_max within fault_span the policy is dropped for the built-in, which
// then owns every waiting launch.
bool Scheduler::State::faulted(HookResult result) {
  if (result != HookResult::kFault) return false;
  ++stats.policy_faults;
  const uint32_t weight = policy != nullptr ? policy->fault_weight() : 1;
  for (uint32_t i = 0; i < std::min(weight, config.fault_max); ++i) faults.push_back(clock);
  while (to_us(clock - faults.front()) > config.fault_span_us) faults.pop_front();
  if (faults.size() >= config.fault_max && policy != nullptr) {
    end_policy();
    ++policy_number;
    quarantined = true;
    faults.clear();
    queues.clear();
    for (Waiting& w : waiting) w.queue = -1;
    for (const ClientId id : client_ids) find(id)->forget_policy();
    windows_dirty = dispatch_wanted = true;
  }
  return true;
}

// ---- windows ----------------------------------------------------------------------------------

std::span<Client* const> Scheduler::State::active_above(int priority) const {
  if (priority <= highest_active()) return {};
  return {active.begin(), std::partition_point(active.begin(), active.end(), [&](const Client* c) {
            return c->priority < priority;
          })};
}

std::span<Client* const> Scheduler::State::active_below(int priority) const {
  if (active.empty() || active.back()->priority <= priority) return {};
  return {std::partition_point(active.begin(), active.end(),
                               [&](const Client* c) { return c->priority <= priority; }),
          active.end()};
}

int Scheduler::State::highest_active() const {
  return active.empty() ? kPriorityCount : active.front()->priority;
}

void Scheduler::State::apply(Client& c, const WindowVerdict& verdict) {
  faulted(verdict.result);
  if (c.choice.take(verdict)) windows_dirty = true;
}

void Scheduler::State::refresh_windows() {
  windows_dirty = false;
  if (std::exchange(kernels_of, policy_number) != policy_number) init_kernels();
  starve_at = 0;  // whoever was held back may be so no more
  lent_until = kNever;
  highest_attached = kPriorityCount;
  for (const ClientId id : client_ids) {
    highest_attached = std::min(highest_attached, find(id)->priority);
  }
  for (const ClientId id : client_ids) {
    Client& c = *find(id);
    if (c.choice.lends(clock)) lent_until = std::min(lent_until, c.choice.lent_until);
    const uint32_t us = bypass ? kWindowLeased : window_of(c, c.choice);
    send_window(c, us, builtin_free_streams(c.priority, highest_active(), us));
  }
  // What was left to the built-in because its client had a window is the policy's once it has none.
  for (uint32_t slot = 0; waiting_count > 0 && slot < waiting.size(); ++slot) {
    const Client* c = waiting[slot].client;
    if (c != nullptr && waiting[slot].queue < 0 && c->window_sent_at == clock &&
        c->window_us == kWindowGated) {
      enqueue(slot);
      dispatch_wanted = true;
    }
  }
}

uint32_t Scheduler::State::window_of(const Client& c, const WindowChoice& choice) const {
  if (choice.refused) return c.fail_closed ? kWindowGated : kWindowLeased;
  const uint32_t builtin = builtin_window(c.priority, highest_active(), highest_attached, config);
  return std::min(choice.window_us(builtin, clock), c.window_max_us);
}

void Scheduler::State::send_window(Client& c, uint32_t window_us, uint32_t free_streams) {
  const SmSet set = isolated_set(c);
  if (c.window_sent && c.window_us == window_us && c.free_streams == free_streams &&
      c.refused_sent == c.choice.refused && c.window_set == set) {
    return;
  }
  c.window_set = set;
  c.window_sent = true;
  c.refused_sent = c.choice.refused;
  c.window_sent_at = clock;
  c.window_us = window_us;
  c.free_streams = free_streams;
  c.at_work = c.busy(clock);
  c.settled_until = settle_at = 0;
  tell_window(c);
  // Whoever waits under an opened window would wait for nothing.
  if (window_us != kWindowGated) dispatch_wanted = true;
}

// Under a new epoch, with which credit that was given under the one before ends.
void Scheduler::State::tell_window(Client& c) {
  c.credit_us = 0;
  ++c.epoch;
  Decision d;
  d.kind = DecisionKind::kWindow;
  d.device = config.device;
  const bool lent = c.choice.lends(clock) && c.window_us == c.choice.lent_us;
  const bool by_policy = c.choice.chosen || lent;
  d.decider = bypass ? Decider::kBypass : by_policy ? Decider::kPolicy : Decider::kBuiltin;
  d.at = clock;
  d.client = c.id;
  d.window_us = c.window_us;
  d.free_streams = static_cast<uint8_t>(c.free_streams);
  d.epoch = c.epoch;
  d.managed = c.choice.refused ? 0 : 1;
  d.launch_priority = launch_priority_of(c);
  d.sm_set = c.window_set;
  d.ring = c.ring;
  d.sizes = c.family.sizes;
  decisions.push_back(d);
}

int8_t Scheduler::State::launch_priority_of(const Client& c) const {
  return c.launch_priority != kBuiltinPriority ? static_cast<int8_t>(c.launch_priority)
                                               : builtin_launch_priority(c.priority, config);
}

// ---- asks and grants --------------------------------------------------------------------------

void Scheduler::State::enqueue(uint32_t slot) {
  if (policy == nullptr || bypass || waiting[slot].client->held_back()) return;
  const EnqueueVerdict verdict = policy->enqueue(*this, id_of(slot));
  if (faulted(verdict.result)) {
    if (waiting[slot].queue >= 0)
      queues[static_cast<size_t>(waiting[slot].queue)].remove(id_of(slot));
    waiting[slot].queue = -1;
  } else if (verdict.result == HookResult::kDecided && verdict.run) {
    grant(id_of(slot), Decider::kPolicy, {});
  }
}

void Scheduler::State::release(uint32_t slot) {
  Waiting& w = waiting[slot];
  if (w.queue >= 0 && static_cast<size_t>(w.queue) < queues.size()) {
    queues[static_cast<size_t>(w.queue)].remove(id_of(slot));
  }
  HEDDLE_CHECK(w.client != nullptr && w.client->queued > 0 && waiting_count > 0);
  if (shadow != nullptr) shadow->forget(slot);
  --w.client->queued;
  w.client->asks[w.thread] = kNoSlot;
  --waiting_count;
  w.client = nullptr;
  ++w.generation;
  waiting_free.push_back(slot);
}

bool Scheduler::State::grant(LaunchId id, Decider decider, const DispatchVerdict& verdict) {
  const uint32_t slot = slot_of(id);
  if (slot == kNoSlot) return false;
  const Waiting w = waiting[slot];
  Client& c = *w.client;
  if (clock > w.asked_at) note_wait(c, w, decider, verdict);
  if (shadow != nullptr) shadow->granted(slot, decider);
  release(slot);
  Decision d;
  d.kind = DecisionKind::kGrant;
  d.device = config.device;
  d.decider = decider;
  d.at = clock;
  d.client = c.id;
  d.ask_seq = w.ask_seq;
  d.thread = w.thread;
  d.epoch = c.epoch;
  const Kernel* kernel = c.kernel(w.kernel);
  int launch_priority = verdict.launch_priority;
  if (launch_priority == kBuiltinPriority && kernel != nullptr) {
    launch_priority = kernel->launch_priority;
  }
  d.launch_priority = launch_priority == kBuiltinPriority ? launch_priority_of(c)
                                                          : static_cast<int8_t>(launch_priority);
  d.sm_set = place(c, w, verdict.sm);
  ++c.granted;
  ++stats.granted;
  if (decider == Decider::kBuiltin) ++stats.by_builtin;
  turn_us[static_cast<size_t>(c.priority)] =
      std::max(turn_us[static_cast<size_t>(c.priority)], w.turn_us);
  Work work;
  work.seq = w.stream_seq;
  work.posted_at = clock;
  work.waited_us = to_us(clock - w.asked_at);
  c.waits.add(work.waited_us);
  work.kernel = w.kernel;
  work.kind = w.kind;
  if (!w.unmovable) work.sm_set = d.sm_set;
  work.granted = true;
  predict(c, work);
  c.gap_open = false;
  work.stream = w.stream;
  add_work(c, work);
  settle(c);
  if (w.thread >= c.by_thread.size()) c.by_thread.resize(w.thread + 1u);
  Granted& granted = c.by_thread[w.thread];
  granted = {w.ask_seq, c.epoch, d.sm_set};
  d.credit_us = static_cast<uint32_t>(give_credit(c, granted, verdict.credit_us));
  decisions.push_back(d);
  recent[recent_count++ % recent.size()] = d;
  return true;
}

// Equals share the GPU's time by their weights: start-time fair queueing (Goyal, Vin and Cheng,
// SIGCOMM 1996). A turn begins where the client's last one ends, so that threads buy no share, and
// not long before the last that was served, so that neither does a pause.
void Scheduler::State::take_turn(Waiting& w) {
  Client& c = *w.client;
  w.turn_us = std::max(c.turn_us, turn_us[static_cast<size_t>(c.priority)] - kTurnLagUs);
  c.turn_us = w.turn_us + std::max(1.0, predict(c, w.kernel) + w.by_credit_us) / c.share;
}

// The built-in's choice: the most important client that nobody above holds up; equals by turns, and
// as each may have one launch on the GPU, in equal numbers where all of them wait.
LaunchId Scheduler::State::pick_builtin(bool unplaced_only, const Shadow* world) const {
  const auto turn = [](const Waiting& w) {
    return std::tuple(w.client->priority, w.turn_us, w.arrival);
  };
  uint32_t best = kNoSlot;
  for (uint32_t slot = 0; slot < waiting.size(); ++slot) {
    const Waiting& w = waiting[slot];
    if (w.client == nullptr || w.client->held_back()) continue;
    if (world != nullptr && !world->holds(slot)) continue;
    if (unplaced_only && (world != nullptr ? world->queue_of(slot) : w.queue) >= 0) continue;
    const uint32_t window_us = world != nullptr ? world->window_of(*w.client) : w.client->window_us;
    const bool leased = window_us == kWindowLeased;
    const bool free_window = window_us != kWindowGated;
    const double room = window_us - w.client->remaining_us(clock);
    const bool at_work =
        world != nullptr ? world->at_work(*w.client) : !w.client->outstanding.empty();
    const bool fits = free_window ? room > 0 || leased || w.client->is_free(w.stream)
                                  : !busy(w.client->priority) && !at_work;
    if (!fits) continue;
    if (best == kNoSlot || turn(w) < turn(waiting[best])) best = slot;
  }
  return best != kNoSlot ? id_of(best) : 0;
}

void Scheduler::State::tick() {
  if (clock < tick_at || active.empty() || !ticks() || bypass) return;
  tick_at = clock + to_ns(config.tick_us);
  faulted(policy->tick(*this));
}

// One decision; false when there is nothing more to decide now.
bool Scheduler::State::dispatch_once() {
  if (bypass) {
    for (uint32_t slot = 0; slot < waiting.size(); ++slot) {
      if (waiting[slot].client != nullptr) return grant(id_of(slot), Decider::kBypass, {});
    }
    return false;
  }
  DispatchVerdict verdict;
  saw = {};
  if (policy != nullptr) verdict = policy->dispatch(*this);
  if (verdict.result == HookResult::kDecided && verdict.run != 0) {
    // A handle that went stale is the policy's mistake; a loop of them must not hang us.
    if (grant(verdict.run, Decider::kPolicy, verdict)) {
      idle_since = -1;
      return true;
    }
    verdict.result = HookResult::kFault;
  }
  const bool fault = faulted(verdict.result);
  const bool idle = verdict.result == HookResult::kDecided && !fault;
  // IDLE holds for what the policy placed; what it did not place is the built-in's, as is
  // everything when it said nothing.
  const LaunchId pick = pick_builtin(idle);
  if (pick == 0) note_held(verdict, idle);
  note_idle(pick == 0 && idle);
  return pick != 0 && grant(pick, Decider::kBuiltin, {});
}

void Scheduler::State::dispatch() {
  uint32_t decided = 0;
  while (waiting_count > 0 && decided < config.dispatch_max && dispatch_once()) ++decided;
  retry_at = decided == config.dispatch_max ? clock : clock + kRetryNs;
  if (windows_dirty) refresh_windows();
}

// A little before the shim's own clock would.
TimeNs Scheduler::State::starve_ns() const {
  return to_ns(config.starvation_us * kStarvationShare);
}

void Scheduler::State::starve() {
  starve_at = kNever;
  for (uint32_t slot = 0; slot < waiting.size(); ++slot) {
    const Waiting& w = waiting[slot];
    if (w.client == nullptr || w.client->held_back()) continue;
    if (const TimeNs at = w.asked_at + starve_ns(); clock < at) {
      starve_at = std::min(starve_at, at);
      continue;
    }
    ++stats.starved;
    note_stall(w);
    grant(id_of(slot), Decider::kStarvation, {});
  }
}

bool Scheduler::start_policy(Policy& next, TimeNs now) {
  State& s = *state_;
  s.advance(now);
  Policy* live = s.shadow != nullptr ? s.shadow->live() : s.policy;
  if (live != nullptr && !next.take_over(*live)) return false;
  s.started_queues.clear();
  std::swap(s.queues, s.started_queues);
  const bool ok = next.init(s) != HookResult::kFault;
  std::swap(s.queues, s.started_queues);
  return ok;
}

std::span<const Decision> Scheduler::set_policy(Policy* next, TimeNs now, bool& ok) {
  ok = next == nullptr || start_policy(*next, now);
  if (ok) return adopt_policy(next, now);
  state_->decisions.clear();
  return state_->decisions;
}

std::span<const Decision> Scheduler::adopt_policy(Policy* next, TimeNs now) {
  State& s = *state_;
  s.decisions.clear();
  end_shadow("another policy became the live one");
  s.advance(now);
  if (s.policy != nullptr) s.policy->exit(s, Ending::kReplaced);
  s.queues = std::exchange(s.started_queues, {});
  if (next == nullptr) s.queues.clear();
  s.policy = next;
  ++s.policy_number;
  s.reasons.forget_policy();
  s.faults.clear();
  for (const ClientId id : s.client_ids) {
    Client& c = *s.find(id);
    c.added_us_max = 0;
    c.forget_policy();
  }
  // It may be lost to its faults in the middle: then nobody has a window of it any more.
  for (const ClientId id : s.client_ids) {
    if (s.policy != nullptr) s.apply(*s.find(id), s.policy->client_init(s, id));
  }
  for (uint32_t slot = 0; slot < s.waiting.size(); ++slot) {
    s.waiting[slot].queue = -1;
    if (s.waiting[slot].client != nullptr) s.enqueue(slot);
  }
  s.refresh_windows();
  s.dispatch();
  s.check();
  return s.decisions;
}

std::span<const Decision> Scheduler::set_bypass(bool on, TimeNs now) {
  State& s = *state_;
  s.decisions.clear();
  s.advance(now);
  s.bypass = on;
  if (!on) s.kernels_of = 0;  // nobody was asked about those that came meanwhile
  s.refresh_windows();
  s.dispatch();
  return s.decisions;
}

std::span<const Decision> Scheduler::set_alone(bool alone, TimeNs now) {
  State& s = *state_;
  s.decisions.clear();
  s.advance(now);
  s.config.alone = alone;
  s.refresh_windows();
  s.dispatch();
  return s.decisions;
}

void Scheduler::set_sm_total(SmCount sm_total) {
  State& s = *state_;
  s.config.sm_total = sm_total;
  for (const auto& [id, c] : s.clients_by_id) {
    for (Kernel& k : c->kernels) {
      k.waves = k.waves_on(!c->sm_set.empty() ? c->groups.sms_of(c->sm_set) : sm_total);
    }
  }
}

std::span<const Decision> Scheduler::set_mode(bool mps, double switch_us, TimeNs now) {
  State& s = *state_;
  s.decisions.clear();
  s.advance(now);
  s.config.mps = mps;
  s.config.switch_us = switch_us;
  // A window carries the launch priority, which the mode decides as well.
  for (const ClientId id : s.client_ids) {
    Client& c = *s.find(id);
    c.window_sent = false;
    c.added_us_max = 0;  // the bound is another
    c.ended_gap = {};
  }
  s.refresh_windows();
  s.dispatch();
  return s.decisions;
}

}  // namespace heddle::core
