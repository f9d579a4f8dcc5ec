#include "daemon/core/witness.h"

#include <algorithm>

namespace heddle::core {
namespace {

// A measured duration cannot be longer than from the launch's record to its completion, whatever
// the client reports.
float believed_us(const Work& work, TimeNs at, float us) {
  return std::min(us, static_cast<float>(to_us(std::max<TimeNs>(0, at - work.posted_at))));
}

}  // namespace

// The driver refused the launch, so it never ran. Work before it may still run.
void Witness::failed(Client& c, const DoneBody& b) {
  now_.dispatch_wanted = true;
  Work work;
  if (!c.work.outstanding.drop(b.stream, b.stream_seq, work)) return;
  // busy_until is capped at kClaimedNs: only below that does the launch's time come off.
  if (to_ns(c.work.outstanding.predicted_us()) < kClaimedNs) {
    c.work.busy_until -= to_ns(work.predicted_us);
  }
  seat_.stopped(c, work, 0);
}

// Evidence for a launch that the core had counted as done when its predicted end passed (Undated).
void Witness::dated(Client& c, const Work& late, const Event& e) {
  const float us = believed_us(late, e.at, e.done.duration_us);
  bounds_.work_done(c, late, e.at, us, e.at);  // the work before it may have ended only now
  c.work.done_at = e.at;
  if (us <= 0) return;
  learning_.timed(c, late, static_cast<double>(us));
  c.work.undated.forget(late);
}

void Witness::synchronized(Client& c, TimeNs at) {
  if (c.run.going && c.work.outstanding.empty() && learning_.run_ended(c, at)) {
    for (uint32_t i = 0; i < c.known.kernels.size(); ++i) sizes_.ask_anew(c, i);
  }
  c.work.waiting_since = 0;
  c.run.going = !c.work.outstanding.empty();
  c.rhythm.gap_synchronized = !c.run.going;
  c.work.awaits_others &= c.run.going;
  if (!c.work.unobserved()) c.work.unseen_until = 0;
}

void Witness::completed(Client& c, const Event& e) {
  const DoneBody& b = e.done;
  if (b.evidence == Evidence::kFailed) return failed(c, b);
  if (const Work* late = c.work.undated.find(b.stream, b.stream_seq)) dated(c, *late, e);
  Work work;
  bool any = false;
  const TimeNs until = c.work.waiting_since != 0 ? c.work.waiting_since : e.at;
  while (b.stream == kEveryStream ? c.work.outstanding.take_oldest(until, work)
                                  : c.work.outstanding.take(b.stream, b.stream_seq, work)) {
    any = true;
    const bool every = b.stream == kEveryStream;
    const bool told = !every && work.seq == b.stream_seq;
    const bool last = every ? !c.work.outstanding.any_covered(until) : told;
    const float us = told ? believed_us(work, e.at, b.duration_us) : 0;
    progress_.finish(c, work, e.at, us, last ? Seen::kWhen : Seen::kDone);
  }
  if (b.evidence == Evidence::kSynchronized) synchronized(c, e.at);
  if (!any && b.evidence != Evidence::kSynchronized) return;
  // The remaining work starts now at the earliest.
  c.work.set_busy_until(e.at + to_ns(c.work.outstanding.predicted_us()), e.at);
  now_.dispatch_wanted = true;
  if (c.rhythm.gap_open && c.work.outstanding.empty())
    c.rhythm.gap_start = std::min(c.rhythm.gap_start, e.at);
}

// The graph is charged for the time that it ran. Its duration is unknown, so nothing is learned.
void Witness::recalled(Client& c, const Event& e) {
  const LaunchBody& b = e.launch;
  Work work;
  if (!c.work.outstanding.drop(b.stream, b.stream_seq, work)) return;
  const double ran_us =
      std::clamp(to_us(e.at - work.posted_at), 1.0, std::max(1.0, work.predicted_us));
  c.work.take_recalled(b.stream, b.stream_seq);
  c.work.recalled.push_back({b.stream, b.stream_seq, work.ran_us + ran_us, work.wanted_since});
  progress_.charge(c, ran_us);
  ceilings_.give_back(c, work, ran_us);
  c.work.set_busy_until(e.at + to_ns(c.work.outstanding.predicted_us()), e.at);
  c.work.untimed.clear();
  c.run.stopped = true;
  c.rhythm.last_kernel = kUnknownKernel;
  c.rhythm.context.forget();
  seat_.stopped(c, work, 0);
  now_.dispatch_wanted = true;
}

void Witness::unobserved(Client& c, const Event& e) {
  count_untold(c, e.untold.launches);
  c.rhythm.gap_open = c.run.going = false;  // the length of an open gap stays unknown
  c.rhythm.last_kernel = kUnknownKernel;
  progress_.touch(c, e.at);
  c.work.unseen_until = kNever;
}

void Witness::observed(Client& c, const Event& e) {
  count_untold(c, e.untold.launches);
  if (c.work.unobserved()) c.work.unseen_until = e.at + to_ns(now_.config.idle_us);
}

void Witness::count_untold(Client& c, uint64_t launches) {
  c.rhythm.context.forget();
  if (c.told.launches > 0) {
    progress_.charge(c, static_cast<double>(launches) *
                            (c.gpu_time.worked_us / static_cast<double>(c.told.launches)));
  }
  c.told.launches += launches;
  now_.stats.posted += launches;
}

void Witness::row(Client& c, const Event& e) {
  if (e.untold.launches == 0) return;
  count_untold(c, e.untold.launches);
  c.rhythm.last_kernel = kUnknownKernel;
  if (!c.active) progress_.touch(c, e.at);
  c.rhythm.gap_open = false;
  Work last;
  last.posted_at = e.at;
  last.kernel = c.rhythm.last_kernel = e.untold.kernel;
  c.run.launched(last.kernel, last.posted_at, 0);
  c.run.launches += static_cast<uint32_t>(e.untold.launches) - 1;
  const TimeNs backlog = e.at + to_ns(static_cast<double>(e.untold.backlog_us));
  c.work.set_busy_until(std::max(c.work.busy_until, backlog), e.at);
}

}  // namespace heddle::core
