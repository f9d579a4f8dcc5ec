// How a client may launch: its allowance, and what a grant opened beside that.
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

// What the last grant of a client that is gated lets go on behind its unit (Openings).
struct Opening {
  uint32_t unit = 0;   // its ticket
  bool gates = false;  // they stand open: it is gated no more
  double open_us = 0;  // predicted, of what went without a grant since a unit asked
  // A graph with gates inside was let go. It is stopped for somebody more important, but not
  // before.
  bool graph = false;
  bool beside = false;  // it was let go beside somebody more important, for a piece
  TimeNs graph_from = 0;

  bool any() const { return gates || graph; }
};

// Its launches run on so many SMs, until then; 0: on all that it has.
struct KeptTo {
  SmCount sm{};
  TimeNs until = kNever;

  SmCount at(TimeNs now) const { return now < until ? sm : SmCount(); }
};

struct Standing {
  // What the policy chose: forget_policy.
  AllowanceChoice choice;
  int launch_priority = kBuiltinPriority;
  KeptTo kept_to;
  std::optional<StopWhen> stop_when;
  uint32_t slice_us = 0;  // ipc::StopOrder's; 0: the driver's, of 2 ms
  float slice_weight() const { return slice_us == 0 ? 1 : static_cast<float>(slice_us) / 2000; }

  Allowance allowed = Allowance::kGated;
  bool allowance_sent = false, refused_sent = false;
  bool gates_soon = false, gates_inside = false, kernels_ask = false;  // Decision's
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
  // Its next allowance is told, whatever it is: that closes the gates.
  void end_opening() {
    opening.gates = opening.graph = false;
    allowance_sent = false;
  }
};

}  // namespace heddle::core
