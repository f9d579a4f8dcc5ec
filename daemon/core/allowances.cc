#include "daemon/core/allowances.h"

#include <algorithm>

namespace heddle::core {

void Allowances::refresh() {
  now_.allowances_dirty = false;
  if (now_.kernels_dirty) sizes_.ask_about_all();
  lent_until_ = kNever;
  highest_attached_ = roster_.highest_attached();
  for (const ClientId id : roster_.ids()) {
    Client& c = *roster_.find(id);
    if (c.standing.choice.lends(now_.clock))
      lent_until_ = std::min(lent_until_, c.standing.choice.lent_until);
    if (now_.clock < c.standing.kept_to.until)
      lent_until_ = std::min(lent_until_, c.standing.kept_to.until);
    refresh(c);
  }
}

void Allowances::refresh(Client& c) {
  send(c, now_.bypass ? Allowance::kLeased : of(c, c.standing.choice));
}

bool Allowances::kernels_ask(const Client& c) const {
  return c.rule.gates && seat_.policy() != nullptr && seat_.policy()->chooses_per_launch;
}

Allowance Allowances::of(const Client& c, const AllowanceChoice& choice) const {
  if (choice.refused) return c.rule.fail_closed ? Allowance::kGated : Allowance::kLeased;
  if (c.rule.ungated) return Allowance::kOpen;
  if (ceilings_.limits(c)) return Allowance::kGated;
  const bool recalled = c.rule.gates && !kernels_ask(c);
  const Allowance builtin =
      builtin_allowance(c, roster_.highest_active(), highest_attached_, recalled, now_.config);
  const Allowance chosen = choice.of(builtin, now_.clock);
  return c.standing.opening.gates && chosen == Allowance::kGated ? Allowance::kOpen : chosen;
}

void Allowances::send(Client& c, Allowance allowed) {
  const SmSet set = now_.bypass ? SmSet() : places_.standing_set(c);
  const bool gated = allowed == Allowance::kGated, above = highest_attached_ < c.rule.priority;
  const bool beside = !now_.config.alone && allowed != Allowance::kLeased;
  const bool gates_soon = c.rule.gates && !now_.bypass && (beside || above);
  // A gated client's graphs may be stopped for any other client, so they need gates inside.
  const bool gates_inside = gates_soon && (gated || c.standing.opening.gates || above);
  const bool kernels_ask = this->kernels_ask(c);
  if (c.standing.allowance_sent && c.standing.allowed == allowed &&
      c.standing.gates_soon == gates_soon && c.standing.gates_inside == gates_inside &&
      c.standing.kernels_ask == kernels_ask &&
      c.standing.refused_sent == c.standing.choice.refused && c.place.cut_set == set) {
    return;
  }
  c.place.cut_set = set;
  c.standing.allowance_sent = true;
  c.standing.refused_sent = c.standing.choice.refused;
  c.standing.allowed = allowed;
  c.standing.gates_soon = gates_soon;
  c.standing.gates_inside = gates_inside;
  c.standing.kernels_ask = kernels_ask;
  progress_.unsettle(c);
  telling_.allowance(c, now_.bypass);
  // A launch that waits may go now: dispatch, or it would wait in vain.
  if (!gated) now_.dispatch_wanted = true;
}

// Asks the policy about a kernel, and tells the client where its launches run.
void KernelSizes::ask(Client& c, uint32_t kernel) {
  Kernel& k = c.known.kernels[kernel];
  k.policy = now_.bypass ? 0 : seat_.number();
  k.size = {};
  k.timed = false;
  k.launch_priority = kBuiltinPriority;
  const KernelVerdict verdict = seat_.kernel(c, kernel);
  if (verdict.result == HookResult::kDecided) {
    k.size = c.place.size_for(verdict.sm);
    k.timed = verdict.timed;
    k.launch_priority = verdict.launch_priority;
    c.place.sized |= k.sized();
  }
  learning_.tell(c, kernel);
}

void KernelSizes::ask_anew(Client& c, uint32_t kernel) {
  if (c.kernel(kernel) != nullptr) ask(c, kernel);
}

void KernelSizes::ask_about(Client& c, uint32_t kernel) {
  if (c.kernel(kernel) == nullptr) return;
  Kernel& k = c.known.kernels[kernel];
  learning_.renew(c, k, promises_);
  if (!now_.bypass && k.policy != seat_.number()) ask(c, kernel);
}

// Calls the hook for 1024 kernels at most, so that no step takes too long. The policy is asked
// about the rest when they are launched.
void KernelSizes::ask_about_all() {
  constexpr uint32_t kInARow = 1024;
  uint32_t asked = 0;
  now_.kernels_dirty = false;
  for (const ClientId id : roster_.ids()) {
    Client& c = *roster_.find(id);
    c.place.sized = false;
    for (uint32_t i = 0; i < c.known.kernels.size() && asked < kInARow; ++i) {
      if (c.kernel(i) == nullptr) continue;
      if (const Kernel& k = c.known.kernels[i]; k.policy == seat_.number()) {
        c.place.sized |= k.sized();
        continue;
      }
      ++asked;
      ask(c, i);
    }
  }
}

}  // namespace heddle::core
