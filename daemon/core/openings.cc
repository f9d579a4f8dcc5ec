#include "daemon/core/openings.h"

#include <algorithm>

#include "ipc/gate_sizes.h"

namespace heddle::core {
namespace {

// A graph that was let go runs for at least this long, or it might not even pass its gate.
constexpr double kPieceUsMin = 50;

}  // namespace

bool Openings::may_open(const Client& c) {
  return !roster_.busy(c.rule.priority, now_.clock) && !heads_.before(c) && !ceilings_.limits(c) &&
         promises_.afford(c, kUnknownKernel, ipc::kGateUnitUs, {}).fits;
}

// A graph runs for at least one piece. If it goes beside a busy, more important client, it stops
// behind that piece and asks again.
void Openings::granted(Client& c, const Head& unit, bool open, bool whole) {
  Opening& opening = c.standing.opening;
  opening.unit = unit.ask_seq;
  opening.graph = unit.gate.inside > 0 && !whole;
  opening.beside = roster_.busy(c.rule.priority, now_.clock);
  opening.graph_from = now_.clock + to_ns(std::max(unit.gate.unit_us, kPieceUsMin));
  opening.gates = open && c.standing.gated() && may_open(c);
  any_ |= opening.any();
  if (opening.gates) allowances_.refresh(c);
}

bool Openings::may_go_on(const Client& c) {
  const Opening& opening = c.standing.opening;
  const bool free = !roster_.busy(c.rule.priority, now_.clock);
  if (opening.graph && now_.clock < opening.graph_from) return opening.beside || free;
  return opening.gates ? may_open(c) : free;
}

void Openings::close() {
  if (!any_) return;
  any_ = false;
  for (Client* c : roster_.active()) {
    Opening& opening = c->standing.opening;
    opening.graph &= !c->work.outstanding.empty();
    if (!opening.any()) continue;
    if (may_go_on(*c)) {
      any_ = true;
      continue;
    }
    c->standing.end_opening();
    allowances_.refresh(*c);
    now_.dispatch_wanted = true;
  }
}

TimeNs Openings::deadline() const {
  TimeNs at = kNever;
  for (size_t i = 0; any_ && i < roster_.active().size(); ++i) {
    const Opening& opening = roster_.active()[i]->standing.opening;
    if (opening.graph && opening.graph_from > now_.clock) at = std::min(at, opening.graph_from);
  }
  return at;
}

}  // namespace heddle::core
