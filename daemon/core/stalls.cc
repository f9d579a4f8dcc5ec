#include "daemon/core/stalls.h"

#include <algorithm>

namespace heddle::core {

// The policy holds all launches on an idle device. While the core wants runs alone to compare, the
// policy is not to blame.
void Stalls::idle(bool by_policy) {
  const auto at_work = [](const Client* c) { return c->at_work; };
  const bool idle = by_policy &&
                    std::none_of(roster_.active().begin(), roster_.active().end(), at_work) &&
                    !roster_.comparing(kPriorityCount, now_.clock);
  if (!idle) idle_since_ = -1;
  if (idle && idle_since_ < 0) idle_since_ = now_.clock;
}

void Stalls::starved(const Head& w) {
  Stall stall{now_.clock, Staller::kNobody, w.client->id, 0, to_us(now_.clock - w.asked_at), 0};
  uint32_t overdue = 0;
  for (const Client* c : roster_.active()) {
    if (c->work.waiting_since == 0 || c->work.unobserved()) continue;
    const TimeNs late = now_.clock - std::max(c->work.busy_until, c->work.waiting_since);
    if (late < kStallNs) continue;
    ++overdue;
    if (to_us(late) > stall.stalled_us) stall.staller = c->id;
    stall.stalled_us = std::max(stall.stalled_us, to_us(late));
  }
  if (overdue > 0) {
    stall.by = overdue == 1 ? Staller::kClient : Staller::kGpu;
    ++(overdue == 1 ? counts_.client : counts_.gpu);
    if (overdue > 1) stall.staller = 0;
  } else if (idle_since_ >= 0 && now_.clock - idle_since_ >= kStallNs) {
    stall.by = Staller::kPolicy;
    stall.stalled_us = to_us(now_.clock - idle_since_);
    ++counts_.policy;
  } else {
    return;
  }
  last_ = stall;
}

}  // namespace heddle::core
