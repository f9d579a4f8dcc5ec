// Who keeps the device from a launch that waited for the starvation bound.
#include "daemon/core/stall.h"

#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

// The policy holds everybody on an idle device; pauses to compare runs are the core's own wish.
void Scheduler::State::note_idle(bool by_policy) {
  const auto at_work = [](const Client* c) { return c->at_work; };
  const bool idle = by_policy &&
                    std::none_of(roster.active().begin(), roster.active().end(), at_work) &&
                    !comparing(kPriorityCount);
  if (!idle) idle_since = -1;
  if (idle && idle_since < 0) idle_since = clock;
}

void Scheduler::State::note_stall(const Waiting& w) {
  Stall stall{clock, Staller::kNobody, w.client->id, 0, to_us(clock - w.asked_at), 0};
  uint32_t overdue = 0;
  for (const Client* c : roster.active()) {
    if (c->work.waiting_since == 0 || c->work.unobserved()) continue;
    const TimeNs late = clock - std::max(c->work.busy_until, c->work.waiting_since);
    if (late < kStallNs) continue;
    ++overdue;
    if (to_us(late) > stall.stalled_us) stall.staller = c->id;
    stall.stalled_us = std::max(stall.stalled_us, to_us(late));
  }
  if (overdue > 0) {
    stall.by = overdue == 1 ? Staller::kClient : Staller::kGpu;
    ++(overdue == 1 ? stalls.client : stalls.gpu);
    if (overdue > 1) stall.staller = 0;
  } else if (idle_since >= 0 && clock - idle_since >= kStallNs) {
    stall.by = Staller::kPolicy;
    stall.stalled_us = to_us(clock - idle_since);
    ++stalls.policy;
  } else {
    return;
  }
  last_stall = stall;
}

const Stall& Scheduler::last_stall() const { return state_->last_stall; }
const StallCounts& Scheduler::stalls() const { return state_->stalls; }

}  // namespace heddle::core
