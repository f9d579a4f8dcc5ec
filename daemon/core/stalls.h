// Stalls: what kept the device from a launch until the starvation bound let it go.
#pragma once

#include "daemon/core/explain.h"
#include "daemon/core/heads.h"
#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Stalls {
 public:
  Stalls(const Situation& now, const Roster& roster) : now_(now), roster_(roster) {}

  // A dispatch ended. `by_policy`: launches wait, and the policy holds them all.
  void idle(bool by_policy);
  void starved(const Head& ask);

  const Stall& last() const { return last_; }
  const StallCounts& counts() const { return counts_; }

 private:
  const Situation& now_;
  const Roster& roster_;
  TimeNs idle_since_ = -1;  // since when the policy says IDLE and no client has work; -1: not so
  Stall last_;
  StallCounts counts_;
};

}  // namespace heddle::core
