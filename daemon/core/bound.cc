// The bound: how much later a client may be served because others' work was let into its gap.
//
// What can be in the way when a gap ends is known then: it is less important and in flight. Under
// MPS, where the client's blocks go first, that is one wave of blocks; else all that is predicted
// to be left of it. To this come the cost of the switch and the time until anybody sees that work
// is done. A gap is exceeded if work that was in flight is seen to outlast that: a kernel that ran
// for longer than predicted, or one that nobody gated. daemon/core/MEASURING.md, "The bound".
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

// From the end of work until its client says so: a nap between two looks of a waiting thread
// (shim/admission/gate.cc, 60 µs), and the marker's own delay (measured: 7 µs).
constexpr double kNoticeUs = 70;
// From a grant until the launch is on its way to the GPU, which takes a switch: a thread wakes, and
// calls the driver.
constexpr double kReachUs = 20;

}  // namespace

// True if the blocks of `above` are placed before those of `below` that wait for room.
bool Scheduler::State::goes_first(const Client& above, const Client& below) const {
  return config.mps && launch_priority_of(above) < launch_priority_of(below);
}

// Of what the client has in flight, what is in nobody's way: time-sliced an SM set keeps nobody's
// SMs free.
double Scheduler::State::on_sets_us(const Client& c) const {
  return config.mps ? std::min(c.outstanding.on_sets_us(), c.remaining_us(clock)) : 0;
}

// Of a gap that ended now. 0: nothing is in the way. Whoever is gated has in flight what it was
// granted, its credit included; whoever has a window, that and one launch more, or one in each of
// its free streams, known or not yet.
double Scheduler::State::bound_us(const Client& c) const {
  double sum_us = 0, hold_us = 0;
  for (const Client* other : active_below(c.priority)) {
    const bool gated = other->window_us == kWindowGated;
    if (goes_first(c, *other)) {
      const double in_flight_us = other->outstanding.longest_hold_us();
      hold_us =
          std::max({hold_us, gated ? other->credit_us : other->longest_hold_us, in_flight_us});
    } else if (other->leased()) {
      return kUnlimitedUs;
    } else {
      const double in_flight_us = other->remaining_us(clock) - on_sets_us(*other);
      const double launches =
          std::max(1u, std::min(other->free_streams, other->outstanding.used_streams()));
      const double window_us = other->window_us + launches * other->longest_us;
      sum_us += gated ? in_flight_us + other->credit_us : std::max(in_flight_us, window_us);
    }
  }
  const double in_the_way_us = sum_us + hold_us;
  return in_the_way_us > 0 ? in_the_way_us + config.switch_us + kNoticeUs : 0;
}

// Whether work that was in the way when the gap ended still is, so that it may yet be judged; not
// for what is measured alone, or a client of many short gaps would have few of them judged.
bool Scheduler::State::still_in_the_way(const Client& c) const {
  const TimeNs since = c.ended_gap.at;
  const auto below = active_below(c.priority);
  return !c.ended_gap.judged && std::any_of(below.begin(), below.end(), [&](const Client* other) {
    return other->outstanding.any_from(since) && (other->done_at < since || !goes_first(c, *other));
  });
}

void Scheduler::State::end_gap(Client& c, TimeNs at) {
  if (at <= c.gap_start) return;  // between a row and what tells of it nobody is let in
  const double bound = bound_us(c);
  if (bound == 0) return;
  if (!still_in_the_way(c)) c.ended_gap = {at, bound, c.worked_us, bound == kUnlimitedUs};
  c.added_us_max = std::max(c.added_us_max, bound);
  ++c.gaps_filled;
  ++stats.gaps_filled;
}

// Work of `c` is seen to be done, and the last before it at `done_before`. Under MPS only what ran
// as the gap ended tells when the blocks ended that were on the GPU, for all else waits for those
// above: the first of what was in flight, unless it was let go just before, or what was measured
// and began before (or by the notice later); and only a kernel of one wave. Time-sliced it waits in
// their slices, which are taken off. What a thread began to look for when the bound was over may
// have ended long before, unless its measured time says otherwise.
void Scheduler::State::judge_gaps(const Client& c, const Work& work, TimeNs at, float measured_us,
                                  TimeNs done_before) {
  if (config.mps && !work.sm_set.empty()) return;
  TimeNs looks_since = c.queued > 0 ? c.asking_since : kNever;
  if (c.waiting_since != 0) looks_since = std::min(looks_since, c.waiting_since);
  for (Client* above : active_above(c.priority)) {
    EndedGap& gap = above->ended_gap;
    if (gap.judged || work.posted_at > gap.at) continue;
    const bool looked = looks_since <= gap.at + to_ns(gap.bound_us - kNoticeUs);
    if (!looked && measured_us == 0) continue;
    const TimeNs ended = looked ? at : work.posted_at + to_ns(static_cast<double>(measured_us));
    double lasted_us = to_us(ended - gap.at);
    if (goes_first(*above, c)) {
      const double began_us = lasted_us - static_cast<double>(measured_us);  // after the gap's end
      const bool ran = looked && measured_us > 0 && began_us <= kNoticeUs;
      if ((done_before >= gap.at && !ran) || work.hold_us < work.predicted_us) continue;
      if (work.posted_at + to_ns(kReachUs + config.switch_us) > gap.at) continue;
      if (measured_us > 0) lasted_us = std::min(lasted_us, static_cast<double>(measured_us));
    } else if (!config.mps) {
      lasted_us -= above->worked_us - gap.worked_us;
    }
    if (lasted_us <= gap.bound_us) continue;
    gap.judged = true;
    ++above->gaps_exceeded;
    ++stats.bound_violations;
    const double before_us = to_us(gap.at - work.posted_at);
    const Violation found{c.id,      work.kernel,       lasted_us,  gap.bound_us,
                          before_us, work.predicted_us, measured_us};
    if (found.over_us() > above->worst.over_us()) above->worst = found;
  }
}

}  // namespace heddle::core
