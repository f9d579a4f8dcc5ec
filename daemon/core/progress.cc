#include "daemon/core/progress.h"

#include <algorithm>

namespace heddle::core {

void Progress::touch(Client& c, TimeNs at) {
  if (now_.clock >= c.settled_until) settle(c);
  if (c.rhythm.gap_open) {
    // When a launch at a gate may have begun says little about the client's own rhythm, so no gap
    // is learned from it.
    if (!c.holds_on_device() || c.standing.leased()) learning_.gap_ended(c, at);
    c.rhythm.gap_open = false;
    bounds_.gap_ended(c, at);
  }
  if (!c.active) {
    roster_.activate(c);
    now_.allowances_dirty = true;
    seat_.allowance(c, &Policy::client_active);
  }
}

void Progress::add_work(Client& c, const Work& work) {
  Work dropped;
  if (c.work.outstanding.add(work, dropped)) finish(c, dropped, now_.clock, 0, Seen::kNot);
  c.work.follow(work);
  if (work.gated) c.work.untimed.clear();  // a call's end then tells nothing about durations
  c.run.launched(work.kernel, work.posted_at, work.predicted_us);
  promises_.charge(c, work);
  ceilings_.spend(c, work);
  c.rhythm.launched(work.kernel);
  if (!work.resumed()) {
    ++c.told.launches;
    c.told.work_us += c.predict_us(work.kernel);
  }
  const Kernel* k = c.kernel(work.kernel);
  if (k == nullptr || c.work.unobserved()) c.rhythm.context.forget();  // launches may be missing
  if (k != nullptr) {
    c.rhythm.context.launched(k->facts.id);
    ++k->stats->launches;
    if (!k->stats->duration.timed() && work.sm_set.empty() && !work.gated &&
        c.work.untimed.size() < Outstanding::kWorkMax) {
      c.work.untimed.push_back({work.kernel, work.predicted_us});
    }
  }
  seat_.started(c, work);
}

void Progress::finish(Client& c, const Work& work, TimeNs at, float measured_us, Seen seen) {
  if (work.stopped && work.ran_us == 0)
    learning_.stopped(c, work, static_cast<double>(measured_us));
  if (work.resumed()) measured_us = 0;
  if (measured_us > 0) {
    learning_.timed(c, work, static_cast<double>(measured_us));
  } else if (seen == Seen::kNot && !work.resumed()) {
    c.work.undated.add(work);
  }
  charge(c, measured_us > 0 ? static_cast<double>(measured_us) : work.predicted_us);
  if (seen == Seen::kWhen) bounds_.work_done(c, work, at, measured_us, c.work.done_at);
  if (seen != Seen::kNot) c.work.done_at = at;
  seat_.stopped(c, work, measured_us);
}

void Progress::waits(Client& c, TimeNs at) {
  c.work.row_until = 0;
  const bool has_work = c.run.going || at < c.work.unseen_until;
  if (!has_work || c.work.waiting_since != 0) return;
  c.work.waiting_since = at;
  c.work.predicted_end = c.work.busy_until;
  if (c.rhythm.gap_open) bounds_.gap_ended(c, at);
  c.rhythm.gap_open = false;
}

void Progress::settle(Client& c) {
  c.settled_until = c.busy_deadline();
  c.at_work = now_.clock < c.settled_until;
  gpu_time_.set_resident(c.gpu_time, (c.at_work && !c.work.stands) || now_.clock < c.work.row_until,
                         c.standing.slice_weight());
  if (!c.at_work && c.active) settle_idle(c);
  if (c.active) settle_at_ = std::min(settle_at_, c.settled_until);
}

[[gnu::noinline]] void Progress::settle_idle(Client& c) {
  if (!c.work.outstanding.empty()) {  // its predicted end, and the patience after it, have passed
    for (Work work; c.work.outstanding.take_oldest(kNever, work);) {
      finish(c, work, now_.clock, 0, Seen::kNot);
    }
    now_.dispatch_wanted = true;
  }
  c.settled_until = kNever;
  if (c.head.any()) return;
  if (!c.rhythm.gap_open) {
    c.rhythm.open_gap(std::min(now_.clock, std::max(c.work.busy_until, c.work.unseen_until)));
    c.work.waiting_since = c.work.unseen_until = 0;
    now_.dispatch_wanted = true;
  }
  const double patience_us = c.patience_us(now_.config.idle_us, now_.config.idle_us_max);
  c.settled_until = std::max(c.rhythm.gap_start + to_ns(patience_us), c.work.row_until);
  if (now_.clock >= c.settled_until) {
    roster_.retire(c);
    if (c.standing.opening.any()) c.standing.end_opening();
    now_.allowances_dirty = now_.dispatch_wanted = true;
    seat_.allowance(c, &Policy::client_idle);
  }
}

void Progress::settle_all(Client* own) {
  if (now_.clock < settle_at_) {
    if (own != nullptr) settle(*own);
    return;
  }
  settle_at_ = kNever;
  for (size_t i = roster_.active().size(); i-- > 0;) {
    Client& c = *roster_.active()[i];
    if ((own != nullptr && &c == own) || now_.clock >= c.settled_until) {
      settle(c);
    } else {
      settle_at_ = std::min(settle_at_, c.settled_until);
    }
  }
}

void Progress::unsettle(Client& c) {
  c.at_work = c.busy(now_.clock);
  c.settled_until = settle_at_ = 0;
}

void Progress::charge(Client& c, double us) {
  gpu_time_.charge(c.gpu_time, us, c.work.outstanding.predicted_us());
}

}  // namespace heddle::core
