#include "daemon/core/credit.h"

#include <algorithm>
#include <cmath>

#include "ipc/gate_sizes.h"

namespace heddle::core {
namespace {

// A graph that goes beside others goes on for so long at least, or it may stand where it stood.
constexpr double kPieceUsMin = 50;

}  // namespace

// One that is finite is a policy's, which knows who waits, and who works.
bool Credit::fits_gates(const Client& c, double us) {
  const bool finite = us < kUnlimitedUs;
  return ((finite && c.standing.gate.beside) || !roster_.busy(c.rule.priority, now_.clock)) &&
         (finite || !asks_.before(c)) &&
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
  const bool may = us > 0 && c.standing.gated() && !ceilings_.limits(c) && fits_gates(c, us);
  gate.left_us = may ? std::floor(us) : 0;
  out_ |= c.standing.has_credit();
  return gate.open() ? kCreditOpen : static_cast<uint32_t>(gate.left_us);
}

void Credit::use_at_gate(Client& c, uint32_t unit, Work& work) {
  work.granted = true;
  c.standing.gate.use(unit, work.predicted_us);
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
    if (!c->standing.has_credit()) continue;
    if (!(ceilings_.limits(*c) && gate.left_us > 0) && may_go_on(*c)) {
      out_ = true;
      continue;
    }
    telling_.allowance(*c, now_.bypass);
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
  }
  return at;
}

}  // namespace heddle::core
