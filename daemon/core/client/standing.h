// How a client may launch: its window, the epoch of it, and what may follow what went at its gates.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/core/client/stop.h"
#include "daemon/core/policy.h"

namespace heddle::core {

// The window that a policy chose for a client; what it did not choose is the built-in's.
struct WindowChoice {
  bool refused = false;
  bool chosen = false;  // the window is the policy's, not the built-in's
  uint32_t us = 0;
  uint32_t lent_us = 0;  // lent: at least so long a window until then; kWindowGated: none
  TimeNs lent_until = 0;

  // False: it stands as it was. A refusal does until its policy says otherwise: an absent hook or a
  // mistake does not.
  bool take(const WindowVerdict& verdict) {
    const bool decided = verdict.result == HookResult::kDecided;
    if (refused && !decided) return false;
    chosen = decided;
    refused = decided && verdict.refuse;
    us = verdict.window_us;
    return true;
  }
  // By a hook of any kind, at `now`; lent if `for_ns` is not 0.
  void set(uint32_t window_us, TimeNs for_ns, TimeNs now) {
    if (for_ns > 0) {
      lent_us = window_us;
      lent_until = now + for_ns;
    } else {
      *this = {.refused = false, .chosen = true, .us = window_us};
    }
  }
  bool lends(TimeNs now) const { return now < lent_until; }
  uint32_t window_us(uint32_t builtin_us, TimeNs now) const {
    const uint32_t own = chosen ? us : builtin_us;
    if (!lends(now)) return own;
    return lent_us == kWindowGated ? kWindowGated : std::max(own, lent_us);
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
  WindowChoice choice;
  int launch_priority = kBuiltinPriority;
  std::optional<StopWhen> stop_when;
  uint32_t slice_us = 0;  // ipc::StopOrder's

  uint32_t window_us = kWindowGated;
  uint32_t free_streams = 0;  // Decision's
  uint32_t epoch = 0;
  bool window_sent = false, refused_sent = false;
  bool gates_wanted = false, gates_inside = false, kernels_ask = false;  // the same
  GateCredit gate;

  bool has_credit() const { return gate.left_us > 0 || gate.graph; }
  // What may follow without an ask, as far as that is bounded.
  double following_us() const { return gate.open() ? 0 : gate.left_us; }
  bool leased() const { return window_us == kWindowLeased; }
  void forget_policy() {
    choice = {};
    window_sent &= launch_priority == kBuiltinPriority;
    launch_priority = kBuiltinPriority;
    stop_when.reset();
    slice_us = 0;
  }
  // With a new epoch, credit that was given under the one before ends.
  void begin_epoch() {
    gate.left_us = 0;
    gate.graph = false;
    ++epoch;
  }
  // A unit asks. Says how much went since the last one did.
  double end_gate_credit() {
    gate.left_us = 0;
    return std::exchange(gate.used_us, 0);
  }
};

}  // namespace heddle::core
