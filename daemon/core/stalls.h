// Who keeps the device from a launch that waited for the starvation bound.
#pragma once

#include "daemon/core/explain.h"
#include "daemon/core/heads.h"
#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Stalls {
 public:
  Stalls(const Situation& now, const Roster& roster) : now_(now), roster_(roster) {}

  // Nothing was let go, and it is the policy that holds all that waits.
  void idle(bool by_policy);
  void starved(const Head& ask);

  const Stall& last() const { return last_; }
  const StallCounts& counts() const { return counts_; }

 private:
  const Situation& now_;
  const Roster& roster_;
  TimeNs idle_since_ = -1;  // the policy says IDLE and nobody has work; -1: not so
  Stall last_;
  StallCounts counts_;
};

}  // namespace heddle::core
