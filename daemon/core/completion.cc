// What begins and ends: work that is done, as far as there is evidence, and what it took.
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

// A launch takes no longer than from when it was seen to when it was seen to be done, whatever its
// client measured.
float believed_us(const Work& work, TimeNs at, float us) {
  return std::min(us, static_cast<float>(to_us(std::max<TimeNs>(0, at - work.posted_at))));
}

}  // namespace

void Scheduler::State::finish(Client& c, const Work& work, TimeNs at, float measured_us,
                              Seen seen) {
  if (measured_us > 0) {
    add_duration(c, work, static_cast<double>(measured_us));
  } else if (seen == Seen::kNot) {
    c.undated.add(work);
  }
  charge(c, measured_us > 0 ? static_cast<double>(measured_us) : work.predicted_us);
  if (seen == Seen::kWhen) judge_gaps(c, work, at, measured_us, c.done_at);
  if (seen != Seen::kNot) c.done_at = at;
  stopped(c, work, measured_us);
}

void Scheduler::State::started(Client& c, const Work& work) {
  if (policy == nullptr || !policy->hears_running()) return;
  LaunchView view;
  fill(c, work.kernel, work.kind, view);
  view.wait_us = work.waited_us;
  faulted(policy->running(*this, view));
}

void Scheduler::State::stopped(Client& c, const Work& work, float measured_us) {
  if (policy == nullptr || !policy->hears_stopping()) return;
  LaunchView view;
  fill(c, work.kernel, work.kind, view);
  view.run_us = measured_us;
  view.wait_us = work.waited_us;
  faulted(policy->stopping(*this, view));
}

void Scheduler::State::on_completed(Client& c, const Event& e) {
  const DoneBody& b = e.done;
  Work work;
  if (b.evidence == Evidence::kFailed) {  // it never ran; what came before it may still run
    if (c.outstanding.drop(b.stream, b.stream_seq, work)) {
      // Where more was predicted than is believed, what is left is so still.
      if (to_ns(c.outstanding.predicted_us()) < kClaimedNs) {
        c.busy_until -= to_ns(work.predicted_us);
      }
      stopped(c, work, 0);
    }
    dispatch_wanted = true;
    return;
  }
  if (const Work* late = c.undated.find(b.stream, b.stream_seq)) {
    const float us = believed_us(*late, e.at, b.duration_us);
    judge_gaps(c, *late, e.at, us, e.at);  // what came before it may have ended now
    c.done_at = e.at;
    if (us > 0) {
      add_duration(c, *late, static_cast<double>(us));
      c.undated.forget(*late);
    }
  }
  bool any = false;
  const TimeNs until = c.waiting_since != 0 ? c.waiting_since : e.at;
  while (b.stream == kEveryStream ? c.outstanding.take_oldest(until, work)
                                  : c.outstanding.take(b.stream, b.stream_seq, work)) {
    any = true;
    const bool every = b.stream == kEveryStream;
    const bool told = !every && work.seq == b.stream_seq;
    const bool last = every ? !c.outstanding.any_from(until) : told;
    const float us = told ? believed_us(work, e.at, b.duration_us) : 0;
    finish(c, work, e.at, us, last ? Seen::kWhen : Seen::kDone);
  }
  if (b.evidence == Evidence::kSynchronized) {
    if (c.unsynchronized && c.outstanding.empty()) end_run(c, e.at);
    c.waiting_since = 0;
    c.unsynchronized = !c.outstanding.empty();
    c.gap_synchronized = !c.unsynchronized;
    c.awaits_others &= c.unsynchronized;
    if (!c.unobserved()) c.unseen_until = 0;
  }
  if (!any && b.evidence != Evidence::kSynchronized) return;
  // What is left starts now at the earliest.
  c.set_busy_until(e.at + to_ns(c.outstanding.predicted_us()), e.at);
  dispatch_wanted = true;
  if (c.gap_open && c.outstanding.empty()) c.gap_start = std::min(c.gap_start, e.at);
}

}  // namespace heddle::core
