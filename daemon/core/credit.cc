#include "daemon/core/credit.h"

#include <algorithm>
#include <cmath>

#include "ipc/gate_sizes.h"

namespace heddle::core {
namespace {

// Sums of predictions in µs and times in ns differ by rounding.
constexpr double kSlackUs = 1;
// A graph that goes beside others goes on for so long at least, or it may stand where it stood.
constexpr double kPieceUsMin = 50;

}  // namespace

double Credit::give(Client& c, Granted& granted, double us) {
  if (us <= 0 || us == kUnlimitedUs || c.standing.window_us != kWindowGated ||
      asks_.wanting() > 0 || roster_.busy(c.rule.priority, now_.clock) || ceilings_.limits(c))
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

// One that is finite is a policy's, which knows who waits.
bool Credit::fits_gates(const Client& c, double us) {
  return !roster_.busy(c.rule.priority, now_.clock) && (us < kUnlimitedUs || !asks_.before(c)) &&
         promises_.afford(c, kUnknownKernel, ipc::kGateUnitUs, {}).fits;
}

// A graph goes for a piece at least, and asks again behind it if it goes beside somebody more
// important.
uint32_t Credit::give_at_gate(Client& c, const Waiting& unit, double us, bool whole) {
  GateCredit& gate = c.standing.gate;
  gate.ask_seq = unit.ask_seq;
  gate.graph = unit.gate.inside > 0 && !whole;
  gate.beside = roster_.busy(c.rule.priority, now_.clock);
  gate.graph_from = now_.clock + to_ns(std::max(unit.gate.unit_us, kPieceUsMin));
  const bool may =
      us > 0 && c.standing.window_us == kWindowGated && !ceilings_.limits(c) && fits_gates(c, us);
  gate.left_us = may ? std::floor(us) : 0;
  out_ |= c.standing.has_credit();
  return gate.open() ? kCreditOpen : static_cast<uint32_t>(gate.left_us);
}

void Credit::use_at_gate(Client& c, uint32_t unit, Work& work) {
  work.granted = true;
  ++now_.stats.credited;
  c.standing.gate.use(unit, work.predicted_us);
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

bool Credit::fits_its_gap(const Client& c) const {
  if (asks_.wanting() > 0) return false;
  const double before_us = to_us(std::max<TimeNs>(0, c.work.busy_until - now_.clock));
  const double left_us = roster_.gap_left_us(
      c.rule.priority, now_.clock);  // a gap that is over holds nothing, however little
  return left_us > 0 && before_us + c.standing.credit_us <= left_us + kSlackUs;
}

bool Credit::may_go_on(const Client& c) {
  const GateCredit& gate = c.standing.gate;
  const bool free = !roster_.busy(c.rule.priority, now_.clock);
  if (gate.graph && now_.clock < gate.graph_from) return gate.beside || free;
  return gate.left_us > 0 ? fits_gates(c, gate.left_us) : free;
}

void Credit::revoke() {
  if (!out_) return;
  out_ = false;
  for (Client* c : roster_.active()) {
    GateCredit& gate = c->standing.gate;
    gate.graph &= !c->work.outstanding.empty();
    const bool of_threads = c->standing.credit_us > 0, of_gates = gate.left_us > 0 || gate.graph;
    if (!of_threads && !of_gates) continue;
    const bool ends = ceilings_.limits(*c) && (of_threads || gate.left_us > 0);
    if (!ends && (!of_threads || fits_its_gap(*c)) && (!of_gates || may_go_on(*c))) {
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
    if (c.standing.gate.graph && c.standing.gate.graph_from > now_.clock) {
      at = std::min(at, c.standing.gate.graph_from);
    }
    if (c.standing.credit_us == 0) continue;
    const double left_us = roster_.gap_left_us(c.rule.priority, now_.clock) - c.standing.credit_us;
    if (left_us == kUnlimitedUs) continue;
    at = std::min(at,
                  std::max(c.work.busy_until, now_.clock + to_ns(left_us)) + to_ns(2 * kSlackUs));
  }
  return at;
}

}  // namespace heddle::core
