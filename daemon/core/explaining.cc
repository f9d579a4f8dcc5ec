#include "daemon/core/explaining.h"

#include <algorithm>

namespace heddle::core {
namespace {

const char* const kEarly = "a more important client's pause just began, and it is long";
const char* const kAhead = "its client has a millisecond of work on the GPU";
const char* const kStands = "its client is stopped for a more important one";

std::string kernel_name(const Client& c, uint32_t kernel) {
  const Kernel* k = c.kernel(kernel);
  return k != nullptr ? k->facts.name : "";
}

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

uint16_t Explaining::reason(const Policy* policy, uint16_t own) {
  if (policy == nullptr) return 0;
  return reasons_.number(own, [&](uint16_t number) { return policy->reason(number); });
}

void Explaining::held(const Saw& saw, uint32_t generation, uint16_t reason, bool by_policy) {
  held_ = {now_.clock,
           saw,
           generation,
           reason,
           static_cast<uint16_t>(std::min<size_t>(heads_.count(), UINT16_MAX)),
           by_policy};
}

void Explaining::granted(Client& c, const Head& w, Decider decider, uint16_t reason) const {
  const Held held = held_.at >= w.asked_at ? held_ : Held{};
  c.told.past_waits.add({w.asked_at, now_.clock, held, w.kernel, reason, decider, w.queue >= 0,
                         w.was_withheld, w.was_early});
}

// Why a launch waits that the built-in serves: the conditions of pick_builtin() in words.
std::string Explaining::why_builtin(const Head& w) const {
  const Client& c = *w.client;
  if (const auto channel = c.ceiling.spent(); w.withheld && channel) {
    return "its client has used all that its rule allows of " +
           std::string(kChannelNames[index_of(*channel)]) + " beside others";
  }
  if (c.held_back()) return "the policy has refused its client, which is fail-closed";
  if (!c.standing.gated()) return "it is on its way";
  for (const Client* above : roster_.above(c.rule.priority)) {
    if (above->wants()) return "client " + std::to_string(above->id) + ", above it, waits too";
    if (above->busy(now_.clock)) {
      return "client " + std::to_string(above->id) + ", above it, has work on the GPU";
    }
  }
  return c.work.outstanding.empty() ? "it is next" : "its client's last launch is not done yet";
}

HeldTold Explaining::tell(const Held& what) const {
  if (what.at < 0) return {};
  return {to_us(now_.clock - what.at), what, reasons_.text(what.reason)};
}

Explanation Explaining::of(const Client& c, std::span<const Queue> queues,
                           uint32_t generation) const {
  Explanation all{true, generation, c.told.granted, c.told.past_waits.count(), {}, {}};
  if (c.head.any()) {
    const Head& w = heads_[c.head.slot];
    WaitTold one;
    one.kernel = kernel_name(c, w.kernel);
    one.waited_us = to_us(now_.clock - w.asked_at);
    one.placed = w.queue >= 0;
    if (one.placed) one.queue = queues[static_cast<size_t>(w.queue)].name();
    one.early = w.early && !w.withheld && !roster_.busy(c.rule.priority, now_.clock);
    if (!one.placed) one.why = why_builtin(w);
    if (one.early) one.why = c.work.stands ? kStands : w.at_gate() ? kEarly : kAhead;
    one.withheld = w.withheld;
    if (held_.at >= w.asked_at && !w.withheld) one.held = tell(held_);
    all.now.push_back(std::move(one));
  }
  for (const PastWait& wait : c.told.past_waits.all()) {
    WaitTold one;
    one.kernel = kernel_name(c, wait.kernel);
    one.us_ago = to_us(now_.clock - wait.granted_at);
    one.waited_us = to_us(wait.granted_at - wait.asked_at);
    one.held = tell(wait.held);
    one.reason = reasons_.text(wait.reason);
    one.decider = wait.decider;
    one.placed = wait.placed;
    one.withheld = wait.withheld;
    one.early = wait.early;
    all.past.push_back(std::move(one));
  }
  return all;
}

}  // namespace heddle::core
