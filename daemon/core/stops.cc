#include "daemon/core/stops.h"

#include <algorithm>

namespace heddle::core {
namespace {

// Work is stopped if it is predicted to last kClearly times as long as a stop takes, or has already
// lasted kLastedTimes as long.
constexpr double kClearly = 1.25, kLastedTimes = 2;
// A µs lost above counts as much as 4 below: a pause must be worth going on and stopping again.
constexpr double kAboveCounts = 4;
// The part of the driver's call after which the kernels stand, or go on (H200: 340 of 626 µs).
constexpr double kOfCall = 0.55;
// Each call moves the estimate by this factor, so that it follows the median, not the mean: a
// thread that waits for a processor makes some calls take a hundred times as long.
constexpr double kLearned = 1.05;
// After a stop as long as the starvation bound, the client goes on for this part of the bound.
constexpr double kFreePart = 0.1;
// In a pause one of several stopped equals goes on. Each has to be stopped again, by a driver call
// of its own, before the clients above get the GPU back. The others go on in a pause of this
// length.
constexpr double kAllGoOnUs = 50'000;
// A shim that has carried out no order for this long cannot: its process is suspended, or gets no
// processor. A quota of processor time makes it wait for a tenth of a second.
constexpr TimeNs kDeafNs = 250'000'000;
// The time slice of a client that alone has work below the top: with it the client gives the GPU
// back sooner until it is stopped. Two clients with short slices would hold each other up.
constexpr uint32_t kShortSliceUs = 100;

}  // namespace

void Stops::told(Client& c, const StopBody& b) {
  if (b.able >= ipc::kStopAbleCount) {
    ++now_.stats.rejected;
    return;
  }
  const bool was = c.stop.able == ipc::kStopYes, is = b.able == ipc::kStopYes;
  c.stop.able = static_cast<ipc::StopAble>(b.able);
  c.stop.unanswered_since = 0;
  now_.stoppable += is ? 1 : 0;
  now_.stoppable -= was ? 1 : 0;
  if (!is) c.stop.order = {};
  if (b.took_us > 0) {
    double& us = b.off ? stop_us_ : go_us_;
    us *= kOfCall * static_cast<double>(b.took_us) > us ? kLearned : 1 / kLearned;
  }
  if (c.work.stands && !b.off && !c.stop.order.off) go_on(c);
}

void Stops::go_on(Client& c) {
  const TimeNs stood = now_.clock - c.stop.since;
  c.stop.stood_us += to_us(stood);
  c.work.go_on(stood, now_.clock);
  c.run.stopped = true;
  progress_.unsettle(c);
  now_.dispatch_wanted = true;
}

void Stops::forget(const Client& c) { now_.stoppable -= c.stop.able == ipc::kStopYes ? 1 : 0; }

void Stops::settle(StopWhen builtin) {
  look_at_ = kNever;
  if (now_.stoppable == 0) return;
  for (const ClientId id : roster_.ids()) {
    Client& c = *roster_.find(id);
    if (c.stop.able != ipc::kStopYes) continue;
    const bool may = !now_.bypass && !now_.config.mps && !is_deaf(c);
    settle(c, may ? c.standing.stop_when.value_or(builtin) : StopWhen::kNever);
  }
}

void Stops::settle(Client& c, StopWhen when) {
  ipc::StopOrder next = c.stop.order;
  if (next.off) {
    next.off = when != StopWhen::kNever && !may_go_on(c);
  } else {
    next.off = is_due(c, when) && afford();
  }
  next.slice_us = slice_us(c, when);
  if (next != c.stop.order) order(c, next);
  if (!c.work.stands || !is_deaf(c)) return;
  go_on(c);
  look_at(now_.clock);  // other clients may have waited for this one
}

bool Stops::is_deaf(const Client& c) {
  if (c.stop.unanswered_since == 0) return false;
  if (now_.clock >= c.stop.unanswered_since + kDeafNs) return true;
  look_at(c.stop.unanswered_since + kDeafNs);
  return false;
}

bool Stops::is_due(Client& c, StopWhen when) {
  const Work* const oldest = c.work.outstanding.oldest();
  if (when == StopWhen::kNever || !roster_.busy(c.rule.priority, now_.clock)) {
    c.stop.above_since = 0;
    return false;
  }
  if (c.stop.above_since == 0) c.stop.above_since = now_.clock;
  if (oldest == nullptr) return false;
  if (now_.clock < c.stop.free_until) {
    look_at(c.stop.free_until);
    return false;
  }
  if (when == StopWhen::kAlways) return true;
  if (c.work.awaits_others) return false;
  const double left_us = to_us(std::max<TimeNs>(0, c.work.busy_until - now_.clock));
  const double clearly_us = kClearly * stop_us_;
  if (left_us > clearly_us && c.work.outstanding.until_stopped_us() > clearly_us) return true;
  const TimeNs from = std::max(oldest->posted_at, c.stop.above_since);
  const TimeNs long_at = from + to_ns(kLastedTimes * stop_us_);
  if (now_.clock >= long_at) return true;
  look_at(long_at);
  return false;
}

bool Stops::may_go_on(Client& c) {
  const TimeNs most = to_ns(now_.config.starvation_us);
  if (now_.clock >= c.stop.since + most) {
    c.stop.free_until = now_.clock + static_cast<TimeNs>(kFreePart * static_cast<double>(most));
    ++now_.stats.stops_starved;
    return true;
  }
  look_at(c.stop.since + most);
  const int priority = c.rule.priority;
  if (roster_.busy(priority, now_.clock)) return false;
  const double cost_us = go_us_ + kAboveCounts * stop_us_;
  const double wait_us = std::min(cost_us, busy_time_.pauses(priority).wait_us(cost_us));
  const double lasted_us = busy_time_.pause_us(priority);
  const double due_us = turn_of_another(c) ? std::max(wait_us, kAllGoOnUs) : wait_us;
  if (lasted_us >= due_us) return true;
  look_at(now_.clock + to_ns(due_us - lasted_us));
  return false;
}

// Whether another client of the same priority has work that is not stopped, or was stopped earlier.
bool Stops::turn_of_another(const Client& c) const {
  const auto ids = roster_.ids();
  return std::any_of(ids.begin(), ids.end(), [&](ClientId id) {
    const Client& other = *roster_.find(id);
    if (other.rule.priority != c.rule.priority || other.stop.able != ipc::kStopYes) return false;
    if (&other == &c || other.work.outstanding.empty()) return false;
    return !other.stop.order.off || other.stop.since < c.stop.since;
  });
}

uint32_t Stops::slice_us(const Client& c, StopWhen when) {
  if (now_.bypass || now_.config.mps) return 0;
  if (c.standing.slice_us != 0) return c.standing.slice_us;
  if (when == StopWhen::kNever || now_.clock < c.stop.free_until) return 0;
  if (c.rule.priority == roster_.highest_attached()) return 0;
  // Keep the slice while it does not matter: each change is a driver call.
  if (c.work.outstanding.empty() || c.work.stands) return c.stop.order.slice_us;
  const auto others = roster_.below(roster_.highest_attached());
  const bool alone = std::none_of(others.begin(), others.end(), [&](const Client* other) {
    return other != &c && !other->work.outstanding.empty() && !other->work.stands;
  });
  return alone ? kShortSliceUs : 0;
}

bool Stops::afford() {
  const double a_second = now_.config.stops_per_s;
  stops_left_ =
      std::min(a_second / 4, stops_left_ + a_second * to_us(now_.clock - stops_at_) / 1e6);
  stops_at_ = now_.clock;
  if (stops_left_ >= 1) {
    stops_left_ -= 1;
    return true;
  }
  ++now_.stats.stops_bounded;
  look_at(now_.clock + to_ns(1e6 / a_second));
  return false;
}

void Stops::order(Client& c, ipc::StopOrder next) {
  if (next.off && !c.stop.order.off && !c.work.stands) {
    c.stop.since = now_.clock;
    c.stop.above_since = 0;
    ++c.stop.count;
    ++now_.stats.stops;
    c.work.stand();
    c.run.stopped = true;
    c.rhythm.last_kernel = kUnknownKernel;  // the gap behind a stop is not the client's own
    c.rhythm.context.forget();
    progress_.unsettle(c);
  }
  c.stop.order = next;
  if (c.stop.unanswered_since == 0) c.stop.unanswered_since = now_.clock;
  Decision d = telling_.make(DecisionKind::kStop, c);
  d.off = next.off;
  d.slice_us = next.slice_us;
  telling_.add(d);
}

}  // namespace heddle::core
