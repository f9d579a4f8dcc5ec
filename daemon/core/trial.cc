#include "daemon/core/trial.h"

namespace heddle::core {
namespace {

constexpr int kInARow = 8;           // launches that the candidate may let go in one step
constexpr size_t kCountedMax = 256;  // clients with counts of their own

}  // namespace

Trial::Trial(const Scene& scene, const Allowances& allowances, const Admitting& admission,
             Policy& candidate, const ShadowLimits& limits)
    : now_(scene.now),
      roster_(scene.roster),
      heads_(scene.heads),
      admission_(admission),
      candidate_(candidate),
      limits_(limits),
      world_(scene, allowances) {
  so_far_.since = refilled_at_ = now_.clock;
  budget_ns_ = limits.burst_ns;
  if (candidate_.init(world_) == HookResult::kFault) {
    end("the candidate faulted", true);
    return;
  }
  for (const ClientId id : roster_.ids()) {
    meet(id);
    if (roster_.find(id)->active) allowance(&Policy::client_active, id);
  }
  for (uint32_t slot = 0; slot < heads_.slots(); ++slot) {
    if (heads_[slot].client != nullptr) asked(heads_.id_of(slot));
  }
}

void Trial::end(const std::string& why, bool faulted) {
  if (over()) return;
  ended_ = why;
  so_far_.faulted = faulted;
  so_far_.now = now_.clock;
  candidate_.exit(world_, faulted ? Ending::kFaulted : Ending::kReplaced);
}

ShadowReport Trial::report() const {
  ShadowReport all = so_far_;
  all.ended = ended_;
  if (!over()) all.now = now_.clock;
  all.clients = counted_;
  for (ShadowOfClient& one : all.clients) {
    const Client* c = roster_.find(one.id);
    one.there = c != nullptr;
    if (c == nullptr) continue;
    one.live_allowed = c->standing.allowed;
    one.allowed = world_.allowance_of(*c);
  }
  return all;
}

bool Trial::affords() {
  const double passed = static_cast<double>(now_.clock - refilled_at_) * limits_.share;
  budget_ns_ = std::min(limits_.burst_ns, budget_ns_ + static_cast<TimeNs>(passed));
  refilled_at_ = now_.clock;
  return limits_.clock == nullptr || budget_ns_ > 0;
}

void Trial::allowance(AllowanceVerdict (Policy::*hook)(Gpu&, ClientId), ClientId id) {
  const auto ask_it = [&](Policy& p, Gpu& g) { return (p.*hook)(g, id); };
  world_.choice(id).take(ask<AllowanceVerdict>(false, ask_it));
}

void Trial::meet(ClientId id) {
  world_.choice(id) = {};
  allowance(&Policy::client_init, id);
}

void Trial::leave(ClientId id) {
  ask<HookResult>(false, [&](Policy& p, Gpu& g) { return p.client_exit(g, id); });
  world_.forget_choice(id);
}

void Trial::asked(LaunchId id) {
  const uint32_t slot = heads_.slot_of(id);
  world_.meet(slot);
  if (over() || !world_.holds(slot)) return;
  const Client& c = *heads_[slot].client;
  if (world_.allowance_of(c) > c.standing.allowed) return world_.let_go(slot);
  const uint64_t skipped = so_far_.skipped;
  const auto verdict =
      ask<EnqueueVerdict>(true, [&](Policy& p, Gpu& g) { return p.enqueue(g, id); });
  world_.set_unseen(slot, so_far_.skipped != skipped);
  if (verdict.result == HookResult::kDecided && verdict.run) world_.let_go(slot);
}

void Trial::decide() {
  for (int i = 0; i < kInARow && decide_once(); ++i) {
  }
}

bool Trial::decide_once() {
  if (over() || !world_.holds_any()) return false;
  const uint64_t skipped = so_far_.skipped;
  const auto verdict = ask<DispatchVerdict>(true, [](Policy& p, Gpu& g) { return p.dispatch(g); });
  if (over() || so_far_.skipped != skipped) return false;
  const bool decided = verdict.result == HookResult::kDecided;
  LaunchId pick = verdict.run;
  if (!decided || pick == 0) pick = admission_.pick_builtin(decided, &world_);
  if (pick == 0) return false;
  const uint32_t slot = heads_.slot_of(pick);
  if (slot == kNoHead || !world_.holds(slot)) {
    end("the candidate ran a launch that does not wait", true);
    return false;
  }
  world_.let_go(slot);
  return true;
}

ShadowCounts& Trial::counts_of(const Client& c) {
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

void Trial::granted(uint32_t slot, Decider decider, bool forced) {
  if (over()) return;
  const Head& w = heads_[slot];
  ShadowCounts& counts = counts_of(*w.client);
  const Candidate::Launch launch = world_.launch_in(slot);
  const bool held = launch.let_go < 0;
  if (launch.id == 0 || launch.unseen || decider == Decider::kBypass ||
      (held && skipped_at_ >= w.asked_at)) {
    ++counts.unseen;
    return;
  }
  const bool sooner = !held && launch.let_go < now_.clock;
  ++(held && !forced ? counts.later : sooner ? counts.sooner : counts.alike);
  counts.live.add(to_us(now_.clock - w.asked_at));
  counts.candidate.add(to_us((held ? now_.clock : launch.let_go) - w.asked_at));
}

}  // namespace heddle::core
