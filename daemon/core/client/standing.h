// How a client may launch: its allowance, and what its last grant opened.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/core/client/stop.h"
#include "daemon/core/policy.h"

namespace heddle::core {

// A policy's choice of a client's allowance; if there is none, the built-in chooses.
struct AllowanceChoice {
  bool refused = false;
  bool chosen = false;  // the policy chose `allowed`
  Allowance allowed = Allowance::kGated;
  Allowance lent = Allowance::kGated;  // until lent_until
  TimeNs lent_until = 0;

  // Takes over a verdict. False: nothing changed. A refusal stays until the policy decides
  // otherwise; an absent or failing hook does not end it.
  bool take(const AllowanceVerdict& verdict) {
    const bool decided = verdict.result == HookResult::kDecided;
    if (refused && !decided) return false;
    chosen = decided;
    refused = decided && verdict.refuse;
    allowed = verdict.allowed;
    return true;
  }
  // Gpu::set_allowance, at `now`: for good if `for_ns` is 0, else lent for that long.
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

// What the last grant of a gated client opened behind its unit (Openings).
struct Opening {
  uint32_t unit = 0;   // the ticket of that unit
  bool gates = false;  // the client's gates stand open: it is not gated now
  double open_us = 0;  // predicted time of launches without a grant since a unit last asked
  // A graph with gates inside was let go. It stops for a more important client, but not before
  // graph_from.
  bool graph = false;
  bool beside = false;  // it was let go beside a busy, more important client, for a piece
  TimeNs graph_from = 0;

  bool any() const { return gates || graph; }
};

// The client's launches run on so many SMs until `until`; 0: on all that it has.
struct KeptTo {
  SmCount sm{};
  TimeNs until = kNever;

  SmCount at(TimeNs now) const { return now < until ? sm : SmCount(); }
};

struct Standing {
  // The policy's choices, which forget_policy() resets:
  AllowanceChoice choice;
  int launch_priority = kBuiltinPriority;
  KeptTo kept_to;
  std::optional<StopWhen> stop_when;
  uint32_t slice_us = 0;  // ipc::StopOrder::slice_us; 0: the driver's default of 2 ms
  float slice_weight() const { return slice_us == 0 ? 1 : static_cast<float>(slice_us) / 2000; }

  Allowance allowed = Allowance::kGated;
  bool allowance_sent = false, refused_sent = false;
  bool gates_soon = false, gates_inside = false, kernels_ask = false;  // as in Decision
  Opening opening;

  bool leased() const { return allowed == Allowance::kLeased; }
  bool gated() const { return allowed == Allowance::kGated; }
  void forget_policy() {
    choice = {};
    allowance_sent &= launch_priority == kBuiltinPriority;
    launch_priority = kBuiltinPriority;
    kept_to = {};
    stop_when.reset();
    slice_us = 0;
  }
  // Closes the opening: the client's next allowance is sent in any case, and that closes its gates.
  void end_opening() {
    opening.gates = opening.graph = false;
    allowance_sent = false;
  }
};

}  // namespace heddle::core
