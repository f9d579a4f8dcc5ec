#include "daemon/core/credit.h"

#include <algorithm>
#include <cmath>

namespace heddle::core {
namespace {

// Sums of predictions in µs and times in ns differ by rounding.
constexpr double kSlackUs = 1;

}  // namespace

double Credit::give(Client& c, Granted& granted, double us) {
  if (us <= 0 || c.standing.window_us != kWindowGated || asks_.count() > 0 ||
      roster_.busy(c.rule.priority, now_.clock))
    return 0;
  const double before_us = to_us(std::max<TimeNs>(0, c.work.busy_until - now_.clock));
  us = std::floor(std::clamp(
      us, 0.0, std::max(0.0, roster_.gap_left_us(c.rule.priority, now_.clock) - before_us)));
  if (!promises_.afford(c, kUnknownKernel, us, granted.sm_set).fits) return 0;
  granted.credit_us = us;
  c.standing.credit_us += us;
  out_ |= us > 0;
  return us;
}

void Credit::use(Client& c, uint16_t thread, Work& work) {
  work.granted = true;
  ++now_.stats.credited;
  const Granted* granted = c.standing.use_credit(thread, c.predict_us(work.kernel));
  // A kernel of its own size keeps it.
  const Kernel* k = c.kernel(work.kernel);
  const bool sized = k != nullptr && k->size.get() != 0;
  if (granted != nullptr && !sized) work.sm_set = granted->sm_set;
}

void Credit::revoke() {
  if (!out_) return;
  out_ = false;
  for (Client* c : roster_.active()) {
    if (c->standing.credit_us == 0) continue;
    const double before_us = to_us(std::max<TimeNs>(0, c->work.busy_until - now_.clock));
    const double left_us = roster_.gap_left_us(
        c->rule.priority, now_.clock);  // a gap that is over holds nothing, however little
    const bool fits = left_us > 0 && before_us + c->standing.credit_us <= left_us + kSlackUs;
    if (fits && asks_.count() == 0) {
      out_ = true;
      continue;
    }
    telling_.window(*c, now_.bypass);
    now_.dispatch_wanted = true;
  }
}

TimeNs Credit::deadline() const {
  TimeNs at = kNever;
  for (size_t i = 0; out_ && i < roster_.active().size(); ++i) {
    const Client& c = *roster_.active()[i];
    if (c.standing.credit_us == 0) continue;
    const double left_us = roster_.gap_left_us(c.rule.priority, now_.clock) - c.standing.credit_us;
    if (left_us == kUnlimitedUs) continue;
    at = std::min(at,
                  std::max(c.work.busy_until, now_.clock + to_ns(left_us)) + to_ns(2 * kSlackUs));
  }
  return at;
}

}  // namespace heddle::core
