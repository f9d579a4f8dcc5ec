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
    learning.timed(c, work, static_cast<double>(measured_us));
  } else if (seen == Seen::kNot) {
    c.work.undated.add(work);
  }
  charge(c, measured_us > 0 ? static_cast<double>(measured_us) : work.predicted_us);
  if (seen == Seen::kWhen) bounds.work_done(c, work, at, measured_us, c.work.done_at);
  if (seen != Seen::kNot) c.work.done_at = at;
  seat.stopped(c, work, measured_us);
}

void Scheduler::State::on_completed(Client& c, const Event& e) {
  const DoneBody& b = e.done;
  Work work;
  if (b.evidence == Evidence::kFailed) {  // it never ran; what came before it may still run
    if (c.work.outstanding.drop(b.stream, b.stream_seq, work)) {
      // Where more was predicted than is believed, what is left is so still.
      if (to_ns(c.work.outstanding.predicted_us()) < kClaimedNs) {
        c.work.busy_until -= to_ns(work.predicted_us);
      }
      seat.stopped(c, work, 0);
    }
    dispatch_wanted = true;
    return;
  }
  if (const Work* late = c.work.undated.find(b.stream, b.stream_seq)) {
    const float us = believed_us(*late, e.at, b.duration_us);
    bounds.work_done(c, *late, e.at, us, e.at);  // what came before it may have ended now
    c.work.done_at = e.at;
    if (us > 0) {
      learning.timed(c, *late, static_cast<double>(us));
      c.work.undated.forget(*late);
    }
  }
  bool any = false;
  const TimeNs until = c.work.waiting_since != 0 ? c.work.waiting_since : e.at;
  while (b.stream == kEveryStream ? c.work.outstanding.take_oldest(until, work)
                                  : c.work.outstanding.take(b.stream, b.stream_seq, work)) {
    any = true;
    const bool every = b.stream == kEveryStream;
    const bool told = !every && work.seq == b.stream_seq;
    const bool last = every ? !c.work.outstanding.any_from(until) : told;
    const float us = told ? believed_us(work, e.at, b.duration_us) : 0;
    finish(c, work, e.at, us, last ? Seen::kWhen : Seen::kDone);
  }
  if (b.evidence == Evidence::kSynchronized) {
    if (c.run.going && c.work.outstanding.empty() && learning.run_ended(c, e.at)) {
      for (uint32_t i = 0; i < c.known.kernels.size(); ++i) sizes.ask_anew(c, i);
    }
    c.work.waiting_since = 0;
    c.run.going = !c.work.outstanding.empty();
    c.rhythm.gap_synchronized = !c.run.going;
    c.work.awaits_others &= c.run.going;
    if (!c.work.unobserved()) c.work.unseen_until = 0;
  }
  if (!any && b.evidence != Evidence::kSynchronized) return;
  // What is left starts now at the earliest.
  c.work.set_busy_until(e.at + to_ns(c.work.outstanding.predicted_us()), e.at);
  dispatch_wanted = true;
  if (c.rhythm.gap_open && c.work.outstanding.empty())
    c.rhythm.gap_start = std::min(c.rhythm.gap_start, e.at);
}

}  // namespace heddle::core
