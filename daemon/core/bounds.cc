#include "daemon/core/bounds.h"

#include <algorithm>

#include "ipc/gate_sizes.h"

namespace heddle::core {
namespace {

// From the end of work until its client reports it: a nap between two polls of a waiting thread
// (shim/admission/at_gate.cc, 60 µs), and the marker's own delay (measured: 7 µs).
constexpr double kNoticeUs = 70;
// From a grant until the driver has the launch: a thread wakes up, and calls the driver.
constexpr double kReachUs = 20;

// How long a client with gates may run before it stops at its next gates.
double until_stopped_us(const Client& c) {
  const bool goes = !c.work.outstanding.empty() || c.standing.opening.gates;
  return goes ? std::max<double>(ipc::kGateUnitUs, c.work.outstanding.until_stopped_us()) : 0;
}

}  // namespace

// True if the blocks of `above` are placed before those of `below` that wait for room.
bool Bounds::goes_first(const Client& above, const Client& below) const {
  return now_.config.mps && above.launch_priority(now_.config) < below.launch_priority(now_.config);
}

// Time-sliced, an SM set keeps no SMs free for other clients.
double Bounds::on_sets_us(const Client& c) const {
  return now_.config.mps ? std::min(c.work.outstanding.on_sets_us(), c.remaining_us(now_.clock))
                         : 0;
}

// A gated client has in flight what it was granted. A client whose gates stand open has that and
// one launch more, which may be on its way.
double Bounds::bound_us(const Client& c) const {
  double sum_us = 0, hold_us = 0;
  for (const Client* other : roster_.below(c.rule.priority)) {
    const bool gated = other->standing.gated();
    const bool stops = other->holds_on_device() && !other->standing.leased();
    if (goes_first(c, *other)) {
      const double in_flight_us = other->work.outstanding.longest_hold_us();
      hold_us = std::max({hold_us, gated || stops ? 0 : other->work.longest_hold_us, in_flight_us});
    } else if (other->standing.leased()) {
      return kUnlimitedUs;
    } else if (stops) {
      sum_us += until_stopped_us(*other);
    } else {
      sum_us += other->remaining_us(now_.clock) - on_sets_us(*other);
      if (!gated) sum_us += other->work.longest_us;
    }
  }
  const double in_the_way_us = sum_us + hold_us;
  return in_the_way_us > 0 ? in_the_way_us + now_.config.switch_us + kNoticeUs : 0;
}

// Whether work that was in the way when the last gap ended still is, so that this gap may yet be
// judged. Under MPS work that waited behind the client's blocks does not count: a client with many
// short gaps would have few of them judged.
bool Bounds::still_in_the_way(const Client& c) const {
  const TimeNs since = c.bound.last.at;
  const auto below = roster_.below(c.rule.priority);
  return !c.bound.last.judged && std::any_of(below.begin(), below.end(), [&](const Client* other) {
    return other->work.outstanding.any_from(since) &&
           (other->work.done_at < since || !goes_first(c, *other));
  });
}

void Bounds::gap_ended(Client& c, TimeNs at) {
  if (at <= c.rhythm.gap_start) return;  // no gap: between a row and the record that reports it
  const double bound = bound_us(c);
  if (bound == 0) return;
  if (!still_in_the_way(c)) c.bound.last = {at, bound, c.gpu_time.worked_us, bound == kUnlimitedUs};
  c.bound.added_us_max = std::max(c.bound.added_us_max, bound);
  ++c.bound.gaps_filled;
  ++now_.stats.gaps_filled;
}

// Judges the gaps above that ended while this work of `c` was in flight: did it outlast the bound?
//
// Under MPS only work that was running when the gap ended counts, because all other work waits for
// the clients above. That is the first work in flight, unless it was let go just before; or work
// whose measured time says that it began before the gap's end, or within the notice after it. And
// it must be a kernel of one wave. Time-sliced, the work also waits during the slices of the client
// above, which are subtracted. If a thread began to look only after the bound, the work may have
// ended long before, unless its measured time tells.
void Bounds::work_done(const Client& c, const Work& work, TimeNs at, float measured_us,
                       TimeNs done_before) {
  if (now_.config.mps && !work.sm_set.empty()) return;
  TimeNs looks_since = c.head.any() ? c.head.since : kNever;
  if (c.work.waiting_since != 0) looks_since = std::min(looks_since, c.work.waiting_since);
  for (Client* above : roster_.above(c.rule.priority)) {
    EndedGap& gap = above->bound.last;
    if (gap.judged || work.posted_at > gap.at) continue;
    const bool looked = looks_since <= gap.at + to_ns(gap.bound_us - kNoticeUs);
    if (!looked && measured_us == 0) continue;
    const TimeNs ended = looked ? at : work.posted_at + to_ns(static_cast<double>(measured_us));
    double lasted_us = to_us(ended - gap.at);
    if (goes_first(*above, c)) {
      const double began_us = lasted_us - static_cast<double>(measured_us);  // after the gap's end
      const bool ran = looked && measured_us > 0 && began_us <= kNoticeUs;
      if ((done_before >= gap.at && !ran) || work.hold_us < work.predicted_us) continue;
      if (work.posted_at + to_ns(kReachUs + now_.config.switch_us) > gap.at) continue;
      if (measured_us > 0) lasted_us = std::min(lasted_us, static_cast<double>(measured_us));
    } else if (!now_.config.mps) {
      lasted_us -= above->gpu_time.worked_us - gap.worked_us;
    }
    if (lasted_us <= gap.bound_us) continue;
    ++now_.stats.bound_violations;
    const double before_us = to_us(gap.at - work.posted_at);
    above->bound.exceeded(
        {c.id, work.kernel, lasted_us, gap.bound_us, before_us, work.predicted_us, measured_us});
  }
}

}  // namespace heddle::core
