// The conductor: one event goes to the owners that it concerns, in the order of STEP.md.
#include "daemon/core/scheduler.h"

#include <algorithm>
#include <utility>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

constexpr uint32_t kKernelIndexMax = 1 << 16;
constexpr uint64_t kCheckEvery = 1024;  // events

}  // namespace

Scheduler::State::State(const Config& c) : Situation(c) {}
Scheduler::State::~State() = default;

void Scheduler::State::on_kernel(Client& c, const KernelBody& body) {
  if (body.index >= kKernelIndexMax) {
    ++stats.rejected;
    return;
  }
  learning.meet(c, body, promises);
  sizes.ask_anew(c, body.index);
}

void Scheduler::State::advance(TimeNs to) {
  if (to <= clock) return;
  busy_time.pass(to - clock);
  gpu_time.pass(to_us(to - clock));
  promises.pass(to_us(to - clock));
  ceilings_.pass(to_us(to - clock));
  const int64_t second = to / kSecondNs;
  if (second != clock / kSecondNs) [[unlikely]] {
    for (auto& [id, c] : roster.all()) c->got.pass(second, c->gpu_time.had_us);
  }
  clock = to;
}

void Scheduler::State::note_busy() {
  const auto busy = std::find_if(roster.active().begin(), roster.active().end(),
                                 [](const Client* c) { return c->at_work; });
  busy_time.note(busy != roster.active().end() ? (*busy)->rule.priority : kPriorityCount);
}

// ---- public -----------------------------------------------------------------------------------

Scheduler::Scheduler(const Config& config) : state_(std::make_unique<State>(config)) {}

Scheduler::~Scheduler() = default;

std::span<const Decision> Scheduler::step(const Event& e) {
  State& s = *state_;
  HEDDLE_CHECK_IN(s, !s.stepping);  // a hook drives the scheduler that called it
  if (std::exchange(s.stepping, true)) return {};
  s.telling.begin();
  ++s.stats.events;
  s.advance(e.at);
  Client* c = s.roster.find(e.client);
  const bool has_client =
      e.kind == EventKind::kAttached || e.kind == EventKind::kTick || c != nullptr;
  if (e.version != kEventVersion || !has_client) {
    ++s.stats.rejected;
  } else if (e.kind == EventKind::kAttached) {
    s.members.attached(e);
  } else {
    switch (e.kind) {
      case EventKind::kDetached:
        s.members.detached(*c);
        c = nullptr;
        break;
      case EventKind::kKernel:
        s.on_kernel(*c, e.kernel);
        break;
      case EventKind::kNodes:
        s.learning.meet_nodes(*c, e.nodes);
        s.sizes.ask_about(*c, e.nodes.graph);
        break;
      case EventKind::kProfile:
        s.learning.profile(*c, e.profile, s.promises);
        break;
      case EventKind::kPosted:
        s.admission.posted(*c, e);
        break;
      case EventKind::kAsked:
        s.admission.asked(*c, e);
        break;
      case EventKind::kWithdrawn:
        s.admission.withdrawn(*c, e.launch);
        break;
      case EventKind::kWaiting:
        s.progress.waits(*c, e.at);
        break;
      case EventKind::kCompleted:
        s.witness.completed(*c, e);
        break;
      case EventKind::kUnobserved:
        s.witness.unobserved(*c, e);
        break;
      case EventKind::kObserved:
        s.witness.observed(*c, e);
        break;
      case EventKind::kRow:
        s.witness.row(*c, e);
        break;
      case EventKind::kTerms:
        s.members.terms(*c, e.terms);
        break;
      case EventKind::kStreamEnd:
        c->work.undated.forget(e.done.stream);
        break;
      case EventKind::kRecalled:
        s.witness.recalled(*c, e);
        break;
      case EventKind::kStops:
        s.on_stops(*c, e.stop);
        break;
      case EventKind::kMemory:
        c->place.memory = {e.memory.bytes, e.memory.parked};
        break;
      case EventKind::kGatesLeft:
        s.members.left_gates(*c);
        break;
      case EventKind::kTick:
      case EventKind::kAttached:
        break;
    }
  }
  s.progress.settle_all(c);
  s.seat.tick();
  s.openings.close();
  s.admission.settle();
  s.settle_stops();
  if (s.parking_dirty) s.settle_parking();
  s.note_busy();
  const bool thorough = e.kind == EventKind::kAttached || e.kind == EventKind::kDetached;
  if (thorough || s.stats.events % kCheckEvery == 0) s.check();
  s.stepping = false;
  return s.telling.decisions();
}

void Scheduler::State::settle_parking() {
  parking_dirty = false;
  for (const ClientId id : roster.ids()) {
    Client& c = *roster.find(id);
    if (!std::exchange(c.place.memory.to_move, false)) continue;
    Decision d = telling.make(DecisionKind::kPark, c);
    d.off = !c.place.memory.parked;
    telling.add(d);
  }
}

void Scheduler::set_device_model(const DeviceModel& model) { state_->promises.set_model(model); }

void Scheduler::set_use(uint32_t uid, uint64_t task, uint64_t kernel_id, const Use& use) {
  KernelStats* stats = state_->learning.find(uid, task, kernel_id);
  if (stats != nullptr) state_->promises.set_use(*stats, use);
}

void Scheduler::set_on_broken(OnBroken on_broken) { state_->on_broken = std::move(on_broken); }

TimeNs Scheduler::next_deadline() const { return state_->deadline(); }

bool Scheduler::take_quarantined() { return state_->seat.take_quarantined(); }
Scheduler::View Scheduler::view() const { return View(*state_); }
const Stats& Scheduler::stats() const { return state_->stats; }
const Config& Scheduler::config() const { return state_->config; }
size_t Scheduler::waiting() const { return state_->heads.count(); }
bool Scheduler::bypassed() const { return state_->bypass; }
bool Scheduler::hears_launches() const {
  const Seat& seat = state_->seat;
  return seat.hears(&Policy::hears_running) || seat.hears(&Policy::hears_stopping);
}
TaskProfile Scheduler::take_profile(ClientId id) {
  Client* c = state_->roster.find(id);
  if (c == nullptr || !c->known.profile_grown) return {};
  c->known.profile_grown = false;
  return state_->learning.profile_of(*c, true);
}

bool Scheduler::start_policy(Policy& next, TimeNs now) {
  State& s = *state_;
  s.advance(now);
  const bool beside = s.shadow != nullptr && s.seat.policy() == s.shadow.get();
  Policy* live = beside ? s.shadow->live() : s.seat.policy();
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
  // The policy may be dropped for its faults within this loop. Then all allowances are the
  // built-in's.
  for (const ClientId id : s.roster.ids()) {
    s.seat.allowance(*s.roster.find(id), &Policy::client_init);
  }
  s.admission.ask_again_all();
  s.admission.reconsider();
  s.settle_stops();
  s.check();
  return s.telling.decisions();
}

std::span<const Decision> Scheduler::set_bypass(bool on, TimeNs now) {
  State& s = *state_;
  s.telling.begin();
  s.advance(now);
  s.bypass = on;
  if (!on) s.kernels_dirty = true;  // the policy was not asked about kernels during the bypass
  s.admission.reconsider();
  s.settle_stops();
  return s.telling.decisions();
}

std::span<const Decision> Scheduler::set_alone(bool alone, TimeNs now) {
  State& s = *state_;
  s.telling.begin();
  s.advance(now);
  s.config.alone = alone;
  s.admission.reconsider();
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
  // An allowance carries the launch priority, which the mode decides as well.
  for (const ClientId id : s.roster.ids()) {
    Client& c = *s.roster.find(id);
    c.standing.allowance_sent = false;
    c.bound.added_us_max = 0;  // the bound is computed otherwise now
    c.bound.last = {};
  }
  s.admission.reconsider();
  s.settle_stops();
  return s.telling.decisions();
}

bool Scheduler::begin_shadow(Policy& candidate, const ShadowLimits& limits, TimeNs now) {
  end_shadow("another candidate took its place");
  State& s = *state_;
  s.advance(now);
  s.shadow = std::make_unique<Shadow>(s.scene(), s.allowances, s.admission, s.seat.policy(),
                                      candidate, limits);
  if (s.shadow->trial().over()) {
    s.shadow.reset();
    return false;
  }
  s.seat.put(s.shadow.get());
  s.admission.set_trial(&s.shadow->trial());
  return true;
}

std::optional<ShadowReport> Scheduler::shadow() const {
  if (state_->shadow == nullptr) return std::nullopt;
  return state_->shadow->trial().report();
}

bool Scheduler::shadow_is_over() const {
  return state_->shadow != nullptr && state_->shadow->trial().over();
}

std::optional<ShadowReport> Scheduler::end_shadow(const std::string& why) {
  State& s = *state_;
  if (s.shadow == nullptr) return std::nullopt;
  s.shadow->trial().end(why, false);
  ShadowReport report = s.shadow->trial().report();
  if (s.seat.policy() == s.shadow.get()) s.seat.put(s.shadow->live());
  s.admission.set_trial(nullptr);
  s.shadow.reset();
  return report;
}

}  // namespace heddle::core
