#include "daemon/server/gate_watch.h"

#include <algorithm>
#include <limits>

namespace heddle::server {

void GateWatch::tell(core::TimeNs now) {
  told_at_ = now;
  told_all_ = presence_.tell_gated(roster_.managed(), now);
}

core::TimeNs GateWatch::next(core::TimeNs now) const {
  core::TimeNs at = std::numeric_limits<core::TimeNs>::max();
  if (!told_all_) return now + 1;
  for (const Client* client : roster_.managed()) {
    if (client->gates_open() && reports_.at_work(*client, now)) at = std::min(at, now + kDrainNs);
    at = std::min(at, std::max(client->gates_due(now), now + kLookNs));
  }
  return at;
}

}  // namespace heddle::server
