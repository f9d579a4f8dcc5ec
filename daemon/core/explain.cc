// Why launches wait.
#include "daemon/core/explain.h"

#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

const char* const kWindowFull = "its window is full";

}  // namespace

std::vector<PastWait> PastWaits::all() const {
  std::vector<PastWait> all;
  for (uint64_t i = count_; i-- > 0 && all.size() < kKept;) all.push_back(waits_[i % kKept]);
  return all;
}

uint16_t Reasons::intern(std::string_view text) {
  const auto at = std::find(texts_.begin() + 1, texts_.end(), text);
  if (at != texts_.end()) return static_cast<uint16_t>(at - texts_.begin());
  if (texts_.size() >= kTextsMax) return intern("another reason");
  texts_.emplace_back(texts_.size() + 1 < kTextsMax ? text : "another reason");
  return static_cast<uint16_t>(texts_.size() - 1);
}

uint16_t Scheduler::State::reason_of(const DispatchVerdict& verdict) {
  if (policy == nullptr) return 0;
  return reasons.number(verdict.reason, [this](uint16_t own) { return policy->reason(own); });
}

// Nothing that waits may go.
void Scheduler::State::note_held(const DispatchVerdict& verdict, bool by_policy) {
  held.at = clock;
  held.saw = saw;
  held.generation = policy_number;
  held.reason = by_policy ? reason_of(verdict) : uint16_t{0};
  held.waiting = static_cast<uint16_t>(std::min<size_t>(asks.count(), UINT16_MAX));
  held.by_policy = by_policy;
}

void Scheduler::State::note_wait(Client& c, const Waiting& w, Decider decider,
                                 const DispatchVerdict& verdict) {
  PastWait wait;
  wait.asked_at = w.asked_at;
  wait.granted_at = clock;
  if (held.at >= w.asked_at) wait.held = held;
  wait.kernel = w.kernel;
  wait.reason = decider == Decider::kPolicy ? reason_of(verdict) : uint16_t{0};
  wait.decider = decider;
  wait.placed = w.queue >= 0;
  c.told.past_waits.add(wait);
}

// Of one that the built-in serves: pick_builtin's conditions, in words.
std::string Scheduler::State::why_builtin(const Waiting& w) const {
  const Client& c = *w.client;
  if (c.held_back()) return "the policy has refused its client, which is fail-closed";
  if (c.standing.window_us != kWindowGated) return kWindowFull;
  for (const Client* above : roster.above(c.rule.priority)) {
    if (above->asking.queued > 0)
      return "client " + std::to_string(above->id) + ", above it, waits too";
    if (above->busy(clock)) {
      return "client " + std::to_string(above->id) + ", above it, has work on the GPU";
    }
  }
  return c.work.outstanding.empty() ? "it is next" : "its client's last launch is not done yet";
}

HeldTold Scheduler::State::tell(const Held& what) const {
  if (what.at < 0) return {};
  return {to_us(clock - what.at), what, reasons.text(what.reason)};
}

std::string Scheduler::State::kernel_name(const Client& c, uint32_t kernel) const {
  const Kernel* k = c.kernel(kernel);
  return k != nullptr ? k->facts.name : "";
}

Explanation Scheduler::explain(ClientId id) const {
  const State& s = *state_;
  Explanation all;
  const auto found = s.roster.all().find(id);
  if (found == s.roster.all().end()) return all;
  const Client& c = *found->second;
  all = {true, s.policy_number, c.told.granted, c.told.past_waits.count(), {}, {}};
  for (const uint32_t slot : c.asking.by_thread) {
    if (slot == kNoAsk) continue;
    const Waiting& w = s.asks[slot];
    WaitTold one;
    one.kernel = s.kernel_name(c, w.kernel);
    one.waited_us = to_us(s.clock - w.asked_at);
    one.placed = w.queue >= 0;
    if (one.placed) one.queue = s.queues[static_cast<size_t>(w.queue)].name();
    if (!one.placed) one.why = s.why_builtin(w);
    if (s.held.at >= w.asked_at) one.held = s.tell(s.held);
    all.now.push_back(std::move(one));
  }
  std::sort(all.now.begin(), all.now.end(),
            [](const WaitTold& a, const WaitTold& b) { return a.waited_us > b.waited_us; });
  for (const PastWait& wait : c.told.past_waits.all()) {
    WaitTold one;
    one.kernel = s.kernel_name(c, wait.kernel);
    one.us_ago = to_us(s.clock - wait.granted_at);
    one.waited_us = to_us(wait.granted_at - wait.asked_at);
    one.held = s.tell(wait.held);
    one.reason = s.reasons.text(wait.reason);
    one.decider = wait.decider;
    one.placed = wait.placed;
    all.past.push_back(std::move(one));
  }
  return all;
}

}  // namespace heddle::core
