// How a client may launch: its allowance, and what may follow what went at its gates.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/core/client/stop.h"
#include "daemon/core/policy.h"

namespace heddle::core {

// What a policy chose for a client; what it did not choose is the built-in's.
struct AllowanceChoice {
  bool refused = false;
  bool chosen = false;  // it is the policy's, not the built-in's
  Allowance allowed = Allowance::kGated;
  Allowance lent = Allowance::kGated;  // until then
  TimeNs lent_until = 0;

  // False: it stands as it was. A refusal does until its policy says otherwise: an absent hook or a
  // mistake does not.
  bool take(const AllowanceVerdict& verdict) {
    const bool decided = verdict.result == HookResult::kDecided;
    if (refused && !decided) return false;
    chosen = decided;
    refused = decided && verdict.refuse;
    allowed = verdict.allowed;
    return true;
  }
  // By a hook of any kind, at `now`; lent if `for_ns` is not 0.
  void set(Allowance to, TimeNs for_ns, TimeNs now) {
    if (for_ns > 0) {
      lent = to;
      lent_until = now + for_ns;
    } else {
      *this = {.refused = false, .chosen = true, .allowed = to};
    }
  }
  bool lends(TimeNs now) const { return now < lent_until; }
  bool any(TimeNs now) const { return chosen || lends(now); }
  Allowance of(Allowance builtin, TimeNs now) const {
    return lends(now) ? lent : chosen ? allowed : builtin;
  }
};

// What a client was granted at its gates, beside the unit that asked.
struct GateCredit {
  uint32_t ask_seq = 0;  // of the unit that was granted last
  double left_us = 0;    // so much may follow it; kUnlimitedUs: the gate stands open
  double used_us = 0;    // what went by that since a unit asked
  // A graph with gates inside was let go. It is stopped for somebody more important, but not
  // before.
  bool graph = false;
  bool beside = false;  // it was let go beside somebody more important, for a piece
  TimeNs graph_from = 0;

  bool open() const { return left_us == kUnlimitedUs; }
  // A launch of unit `seq` goes.
  void use(uint32_t seq, double us) {
    if (seq == ask_seq) return;
    used_us += us;
    left_us = std::max(0.0, left_us - us);
  }
};

struct Standing {
  // What the policy chose: forget_policy.
  AllowanceChoice choice;
  int launch_priority = kBuiltinPriority;
  std::optional<StopWhen> stop_when;
  uint32_t slice_us = 0;  // ipc::StopOrder's

  Allowance allowed = Allowance::kGated;
  bool allowance_sent = false, refused_sent = false;
  bool gates_soon = false, gates_inside = false, kernels_ask = false;  // Decision's
  GateCredit gate;

  bool has_credit() const { return gate.left_us > 0 || gate.graph; }
  // What may follow without an ask, as far as that is bounded.
  double following_us() const { return gate.open() ? 0 : gate.left_us; }
  bool leased() const { return allowed == Allowance::kLeased; }
  bool gated() const { return allowed == Allowance::kGated; }
  void forget_policy() {
    choice = {};
    allowance_sent &= launch_priority == kBuiltinPriority;
    launch_priority = kBuiltinPriority;
    stop_when.reset();
    slice_us = 0;
  }
  void end_credit() {
    gate.left_us = 0;
    gate.graph = false;
  }
  // A unit asks. Says how much went since the last one did.
  double end_gate_credit() {
    gate.left_us = 0;
    return std::exchange(gate.used_us, 0);
  }
};

}  // namespace heddle::core
