// What every owner of the core may look at: the clock, the configuration, and what is counted.
#pragma once

#include "daemon/core/scheduler.h"

namespace heddle::core {

struct Situation {
  explicit Situation(const Config& c) : config(c) {}

  Config config;  // its mode changes, by set_mode, and whether there is one client alone
  Stats stats;
  TimeNs clock = 0;
  OnBroken on_broken = abort_on_broken;
  bool stepping = false;  // within step()
  size_t stoppable = 0;   // clients whose kernels can be stopped (stops.h)
  bool bypass = false;    // every ask is granted, and no policy is asked
  // What is to be done before the step ends, as whoever changed something says: allowances may be
  // others, something may be let go, and the policy is to be asked about kernels anew.
  bool allowances_dirty = false, dispatch_wanted = false, kernels_dirty = false;
};

}  // namespace heddle::core
