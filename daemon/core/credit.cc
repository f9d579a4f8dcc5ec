// Credit: predicted time beyond a granted launch that its thread may launch without asking.
//
// It is for what is left of a gap while nobody else asks for it, as far as the promises above can
// afford a launch of that length. It ends with its client's epoch,
// which the shim compares before each launch: when anybody more important has work again, when what
// is left of the gap would not hold it any more, when anybody waits, and with every change of the
// window. What was launched by then is in flight, as any grant is.
#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

// Sums of predictions in µs and times in ns differ by rounding.
constexpr double kSlackUs = 1;

}  // namespace

// Gives at most what the gap holds behind what its client has in flight; says how much, in whole
// µs.
double Scheduler::State::give_credit(Client& c, Granted& granted, double us) {
  if (us <= 0 || c.standing.window_us != kWindowGated || asks.count() > 0 ||
      roster.busy(c.rule.priority, clock))
    return 0;
  const double before_us = to_us(std::max<TimeNs>(0, c.work.busy_until - clock));
  us = std::floor(
      std::clamp(us, 0.0, std::max(0.0, roster.gap_left_us(c.rule.priority, clock) - before_us)));
  if (!promises.afford(c, kUnknownKernel, us, granted.sm_set).fits) return 0;
  granted.credit_us = us;
  c.standing.credit_us += us;
  credit_out |= us > 0;
  return us;
}

void Scheduler::State::use_credit(Client& c, uint16_t thread, Work& work) {
  work.granted = true;
  ++stats.credited;
  const Granted* granted = c.standing.use_credit(thread, c.predict_us(work.kernel));
  // A kernel of its own size keeps it.
  const Kernel* k = c.kernel(work.kernel);
  const bool sized = k != nullptr && k->size.get() != 0;
  if (granted != nullptr && !sized) work.sm_set = granted->sm_set;
}

void Scheduler::State::revoke_credits() {
  if (!credit_out) return;
  credit_out = false;
  for (Client* c : roster.active()) {
    if (c->standing.credit_us == 0) continue;
    const double before_us = to_us(std::max<TimeNs>(0, c->work.busy_until - clock));
    const double left_us = roster.gap_left_us(
        c->rule.priority, clock);  // a gap that is over holds nothing, however little
    const bool fits = left_us > 0 && before_us + c->standing.credit_us <= left_us + kSlackUs;
    if (fits && asks.count() == 0) {
      credit_out = true;
      continue;
    }
    telling.window(*c, bypass);
    dispatch_wanted = true;
  }
}

// When it will not fit any more if its client launches nothing.
TimeNs Scheduler::State::credit_deadline(const Client& c) const {
  const double left_us = roster.gap_left_us(c.rule.priority, clock) - c.standing.credit_us;
  if (left_us == kUnlimitedUs) return kNever;
  return std::max(c.work.busy_until, clock + to_ns(left_us)) + to_ns(2 * kSlackUs);
}

}  // namespace heddle::core
