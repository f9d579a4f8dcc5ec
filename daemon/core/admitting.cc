#include "daemon/core/admitting.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "daemon/core/trial.h"

namespace heddle::core {
namespace {

// While launches wait and the policy says IDLE, it is asked again at this interval. By then a
// budget may have grown, or a gap estimate may have been wrong. The policy may ask for less, down
// to kRetryUsMin.
constexpr double kRetryUs = 1000, kRetryUsMin = 10;

// The share of the starvation bound after which the core lets a launch go: a little before the shim
// would do so by its own clock.
constexpr double kStarvationShare = 0.95;

TimeNs starve_ns(const Config& config) { return to_ns(config.starvation_us * kStarvationShare); }

// Whether another stoppable client of the same priority has work on the GPU. Only one of them may
// have any: stopping each takes a driver call, one after the other, before a more important client
// gets the GPU.
bool equal_works(const Situation& now, const Roster& roster, const Client& c) {
  if (now.stoppable == 0 || now.config.mps) return false;
  const auto active = roster.active();
  return std::any_of(active.begin(), active.end(), [&](const Client* other) {
    return other != &c && other->rule.priority == c.rule.priority &&
           other->stop.able == ipc::kStopYes && !other->work.outstanding.empty() &&
           !other->work.awaits_others;
  });
}

}  // namespace

void Admitting::posted(Client& c, const Event& e) {
  const LaunchBody& b = e.launch;
  ++now_.stats.posted;
  const bool launch = b.kind == LaunchKind::kKernel || b.kind == LaunchKind::kGraph;
  // A captured launch does not run now. Copies leave the SMs idle, so they end no gap.
  if (b.admission == Admission::kSelfCapturing || !launch) return;
  const bool gated = b.admission == Admission::kGated;
  progress_.touch(c, e.at);
  Work work;
  work.seq = b.stream_seq;
  work.posted_at = e.at;
  work.kernel = b.kernel;
  work.kind = b.kind;
  sizes_.ask_about(c, b.kernel);
  work.sm_set = c.set_of(b.kernel);
  work.strayed = b.unmovable;
  if (work.strayed) work.sm_set = {};
  c.predict(work);
  work.wanted_since = e.at;
  if (gated)
    stood_at_gate(c, b.may_follow, c.work.take_recalled(b.stream, b.stream_seq).ran_us, work);
  work.granted = b.ask_seq != 0;
  if (work.granted && b.ask_seq != c.standing.opening.unit)
    c.standing.opening.open_us += work.predicted_us;
  if (b.admission == Admission::kSelfExempt) c.work.awaits_others = true;
  work.stream = b.stream;
  progress_.add_work(c, work);
  if (ceilings_.holds(c)) withhold(c);
  if (b.may_follow > 0 && !gated) c.work.row_until = e.at + kRowNs;
}

// Sets what is left of a launch that stood at a gate, and how long until it can be stopped at its
// next gate. At least a piece is left, even if it ran longer than predicted.
void Admitting::stood_at_gate(const Client& c, uint16_t gates_inside, double ran_us, Work& work) {
  work.gated = true;
  work.ran_us = ran_us;
  work.stop_us = work.predicted_us / (gates_inside + 1);
  // A graph that goes beside a busy, more important client asks again after each piece.
  const bool beside = gates_inside > 0 && roster_.busy(c.rule.priority, now_.clock);
  work.predicted_us = beside ? work.stop_us : std::max(work.stop_us, work.predicted_us - ran_us);
}

void Admitting::asked(Client& c, const Event& e) {
  const LaunchBody& b = e.launch;
  if (c.head.any()) {  // only a client's oldest held unit may ask
    ++now_.stats.rejected;
    return;
  }
  ++now_.stats.asked;
  progress_.touch(c, e.at);
  const uint32_t slot = heads_.add(c, b, e.at);
  starve_at_ = std::min(starve_at_, heads_[slot].wanted_since + starve_ns(now_.config));
  sizes_.ask_about(c, b.kernel);
  heads_[slot].open_us = std::exchange(c.standing.opening.open_us, 0);
  heads_.take_turn(slot);
  enqueue(slot);
  now_.dispatch_wanted = true;
}

void Admitting::withdrawn(Client& c, const LaunchBody& b) {
  if (c.head.any() && heads_[c.head.slot].ask_seq == b.ask_seq) release(c.head.slot);
}

void Admitting::forget(const Client& c) {
  if (c.head.any()) release(c.head.slot);
}

void Admitting::ask_again(const Client& c) {
  if (!c.head.any()) return;
  take_back(c.head.slot);
  enqueue(c.head.slot);
}

void Admitting::ask_again_all() {
  for (uint32_t slot = 0; slot < heads_.slots(); ++slot) {
    heads_[slot].queue = -1;
    if (heads_[slot].client != nullptr) enqueue(slot);
  }
}

void Admitting::settle() {
  if (allowances_.due()) refresh_allowances();
  if (heads_.count() > 0) {
    if (now_.clock >= withheld_until_) let_in();
    if (now_.clock >= starve_at_) starve();
    if (now_.dispatch_wanted || now_.clock >= retry_at_) dispatch();
  }
  now_.dispatch_wanted = false;
}

void Admitting::reconsider() {
  refresh_allowances();
  dispatch();
}

void Admitting::enqueue(uint32_t slot) {
  const Client& c = *heads_[slot].client;
  heads_.withhold(slot, ceilings_.holds(c));
  if (heads_[slot].withheld) return look_again(c);
  if (seat_.enqueue(slot)) grant(heads_.id_of(slot), Decider::kPolicy, {});
}

void Admitting::take_back(uint32_t slot) {
  Head& w = heads_[slot];
  if (w.queue >= 0) w.open_us = 0;  // the policy has counted open_us when it placed the launch
  seat_.orders().queues().remove(heads_.id_of(slot), w.queue);
}

void Admitting::withhold(const Client& c) {
  if (c.wants()) {
    take_back(c.head.slot);
    heads_.withhold(c.head.slot, true);
  }
  look_again(c);
}

void Admitting::look_again(const Client& c) {
  withheld_until_ = std::min(withheld_until_, now_.clock + to_ns(c.ceiling.owes_us()) + 1);
}

void Admitting::let_in() {
  withheld_until_ = kNever;
  for (uint32_t slot = 0; slot < heads_.slots(); ++slot) {
    const Head& w = heads_[slot];
    if (w.client == nullptr || !w.withheld) continue;
    enqueue(slot);
    now_.dispatch_wanted |= !w.withheld;
  }
}

void Admitting::release(uint32_t slot) {
  Head& w = heads_[slot];
  seat_.orders().queues().remove(heads_.id_of(slot), w.queue);
  HEDDLE_CHECK_IN(now_, w.client != nullptr && w.client->head.slot == slot && heads_.count() > 0);
  if (trial_ != nullptr) trial_->forget(slot);
  heads_.release(slot);
}

bool Admitting::grant(LaunchId id, Decider decider, const DispatchVerdict& verdict) {
  const uint32_t slot = heads_.slot_of(id);
  if (slot == kNoHead) return false;
  const Head w = heads_[slot];
  if (w.withheld && decider == Decider::kPolicy) return false;  // was taken back from the policy
  Client& c = *w.client;
  if (now_.clock > w.asked_at) {
    const bool by_policy = decider == Decider::kPolicy;
    told_.granted(c, w, decider,
                  by_policy ? told_.reason(seat_.policy(), verdict.reason) : verdict.reason);
  }
  const bool stuck = decider == Decider::kBuiltin && verdict.reason == Reasons::kStuck;
  const bool forced = stuck || decider == Decider::kStarvation;
  if (trial_ != nullptr) trial_->granted(slot, decider, forced);
  release(slot);
  Decision d = telling_.make(DecisionKind::kGrant, c);
  d.decider = decider;
  d.ask_seq = w.ask_seq;
  d.thread = w.thread;
  const Kernel* kernel = c.kernel(w.kernel);
  int launch_priority = verdict.launch_priority;
  if (launch_priority == kBuiltinPriority && kernel != nullptr) {
    launch_priority = kernel->launch_priority;
  }
  d.launch_priority = launch_priority == kBuiltinPriority ? c.launch_priority(now_.config)
                                                          : static_cast<int8_t>(launch_priority);
  d.sm_set = places_.place(c, w, verdict.sm);
  ++c.told.granted;
  ++now_.stats.granted;
  if (decider == Decider::kBuiltin) ++now_.stats.by_builtin;
  heads_.served(w);
  Work work;
  work.seq = w.stream_seq;
  work.posted_at = now_.clock;
  work.waited_us = to_us(now_.clock - w.asked_at);
  work.wanted_since = w.wanted_since;
  c.told.waits.add(work.waited_us);
  work.kernel = w.kernel;
  work.kind = w.kind;
  work.strayed = w.unmovable && w.gate.sm_set.empty();
  if (!work.strayed) work.sm_set = d.sm_set;
  work.granted = true;
  c.predict(work);
  if (w.at_gate()) stood_at_gate(c, w.gate.inside, w.gate.ran_us, work);
  c.rhythm.gap_open = false;
  work.stream = w.stream;
  progress_.add_work(c, work);
  if (ceilings_.holds(c)) withhold(c);
  progress_.settle(c);
  telling_.grant(d);
  if (w.at_gate()) openings_.granted(c, w, verdict.open, decider == Decider::kStarvation);
  return true;
}

LaunchId Admitting::pick_builtin(bool unplaced_only, const Candidate* world) const {
  const auto turn = [](const Head& w) {
    return std::tuple(w.client->rule.priority, w.turn_us, w.arrival);
  };
  uint32_t best = kNoHead;
  for (uint32_t slot = 0; slot < heads_.slots(); ++slot) {
    const Head& w = heads_[slot];
    if (w.client == nullptr || w.withheld || w.early || w.client->held_back()) continue;
    if (world != nullptr && !world->holds(slot)) continue;
    if (unplaced_only && (world != nullptr ? world->queue_of(slot) : w.queue) >= 0) continue;
    // A client that is not gated has no closed gate: its launch goes at once.
    const bool gated = world != nullptr ? world->allowance_of(*w.client) == Allowance::kGated
                                        : w.client->standing.gated();
    const AllowanceChoice choice =
        world != nullptr ? world->choice_of(*w.client) : w.client->standing.choice;
    const bool at_work =
        world != nullptr ? world->at_work(*w.client) : !w.client->work.outstanding.empty();
    const bool fits = !gated || (!roster_.busy(w.client->rule.priority, now_.clock) &&
                                 (!at_work || goes_ahead(*w.client, choice)) &&
                                 !equal_works(now_, roster_, *w.client));
    if (!fits) continue;
    if (best == kNoHead || turn(w) < turn(heads_[best])) best = slot;
  }
  return best != kNoHead ? heads_.id_of(best) : 0;
}

// Whether a gated client's launch may go behind others of its own on the GPU: while no more
// important client is active, and neither a policy nor a ceiling says otherwise. Pauses limits how
// much goes ahead.
bool Admitting::goes_ahead(const Client& c, const AllowanceChoice& choice) const {
  return !choice.any(now_.clock) && !ceilings_.limits(c) &&
         roster_.highest_active() >= c.rule.priority;
}

void Admitting::refresh_allowances() {
  starve_at_ = 0;  // look again: a client that was refused may have been accepted
  allowances_.refresh();
  if (withheld_until_ != kNever) let_in();
}

// Makes one decision. False: there is nothing more to decide now.
bool Admitting::dispatch_once() {
  if (now_.bypass) {
    for (uint32_t slot = 0; slot < heads_.slots(); ++slot) {
      if (heads_[slot].client != nullptr) return grant(heads_.id_of(slot), Decider::kBypass, {});
    }
    return false;
  }
  if (heads_.wanting() == pauses_.kept_back()) {  // no launch waits for the policy
    stalls_.idle(false);
    return false;
  }
  seat_.orders().take_saw();
  DispatchVerdict verdict = seat_.dispatch();
  if (verdict.result == HookResult::kDecided && verdict.run != 0) {
    // A stale handle is the policy's mistake. It counts as a fault, or a policy that returned one
    // each time would never let this loop end.
    if (grant(verdict.run, Decider::kPolicy, verdict)) {
      stalls_.idle(false);
      return true;
    }
    verdict.result = HookResult::kFault;
  }
  if (verdict.again_us > 0) again_us_ = std::clamp(verdict.again_us, kRetryUsMin, kRetryUs);
  const bool fault = seat_.faulted(verdict.result);
  const bool idle = verdict.result == HookResult::kDecided && !fault;
  // IDLE holds back the launches that the policy placed. The built-in serves those that it did not
  // place, and all of them if the policy returned nothing.
  const LaunchId pick = pick_builtin(idle);
  if (pick == 0) {
    told_.held(seat_.orders().take_saw(), seat_.number(),
               idle ? told_.reason(seat_.policy(), verdict.reason) : uint16_t{0}, idle);
  }
  stalls_.idle(pick == 0 && idle);
  DispatchVerdict own;
  own.open = !idle && !fault;  // else the policy would be asked about this client no more
  return pick != 0 && grant(pick, Decider::kBuiltin, own);
}

// A kernel on the device may wait for a launch of its own client that stands at a gate. If its
// client's work seems stuck, that launch goes, whatever the policy says.
void Admitting::free_stuck() {
  for (uint32_t slot = 0; slot < heads_.slots(); ++slot) {
    const Head& w = heads_[slot];
    if (w.client == nullptr || !w.at_gate() || w.client->work.stands) continue;
    // The oldest outstanding launch is behind this one in the same stream, so it cannot run before.
    const Work* const oldest = w.client->work.outstanding.oldest();
    const bool first = oldest != nullptr && oldest->stream == w.stream &&
                       oldest->seq > w.stream_seq &&
                       !roster_.busy(w.client->rule.priority, now_.clock);
    if (!first && !w.client->work.stuck_behind(w.stream, now_.clock)) continue;
    DispatchVerdict own;
    own.reason = Reasons::kStuck;
    grant(heads_.id_of(slot), Decider::kBuiltin, own);
  }
}

void Admitting::dispatch() {
  free_stuck();
  uint32_t decided = 0;
  const double soon_us = pauses_.keep_back();
  again_us_ = kRetryUs;
  while (heads_.count() > 0 && decided < now_.config.dispatch_max && dispatch_once()) ++decided;
  again_us_ = std::min(again_us_, std::max(soon_us, kRetryUsMin));
  retry_at_ = decided == now_.config.dispatch_max ? now_.clock : now_.clock + to_ns(again_us_);
  if (now_.allowances_dirty) refresh_allowances();
}

void Admitting::starve() {
  starve_at_ = kNever;
  for (uint32_t slot = 0; slot < heads_.slots(); ++slot) {
    const Head& w = heads_[slot];
    if (w.client == nullptr || w.client->held_back()) continue;
    if (w.client->work.stands) {  // the stop ends by the same bound; look again until then
      starve_at_ = std::min(starve_at_, now_.clock + to_ns(kRetryUs));
      continue;
    }
    if (const TimeNs at = w.wanted_since + starve_ns(now_.config); now_.clock < at) {
      starve_at_ = std::min(starve_at_, at);
      continue;
    }
    ++now_.stats.starved;
    if (!w.withheld) stalls_.starved(w);
    grant(heads_.id_of(slot), Decider::kStarvation, {});
  }
}

}  // namespace heddle::core
