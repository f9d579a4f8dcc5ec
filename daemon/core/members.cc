// What the administrator's rules give a client, and that they give it something else.
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

void Scheduler::State::set_terms(Client& c, const TermsBody& terms) {
  c.rule.priority = terms.priority;
  c.rule.share = terms.share > 0 ? terms.share : 1;
  c.rule.slo_ms = terms.slo_ms;
  promises.promise(c, static_cast<double>(terms.slowdown_max));
  c.rule.window_max_us = terms.window_max_us != 0 ? terms.window_max_us : kWindowLeased;
}

// To a policy that does not hear of updates the client leaves and comes back, with what it waits
// for: what was decided by the old terms is forgotten.
void Scheduler::State::on_terms(Client& c, const TermsBody& terms) {
  if (terms.priority >= kPriorityCount) {
    ++stats.rejected;
    return;
  }
  const bool updates = seat.hears(&Policy::hears_updates);
  if (!updates) seat.exit(c);
  set_terms(c, terms);
  roster.move(c);
  c.bound.added_us_max = 0;
  c.standing.window_sent = false;  // its launch priority may be another
  windows_dirty = dispatch_wanted = true;
  if (updates) return seat.window(c, &Policy::client_update);
  c.standing.forget_policy();
  seat.window(c, &Policy::client_init);
  if (c.active) seat.window(c, &Policy::client_active);
  admission.ask_again(c);
}

}  // namespace heddle::core
