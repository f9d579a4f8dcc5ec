// The state that all parts of the core share: the clock, the configuration, and the counters.
#pragma once

#include "daemon/core/scheduler.h"

namespace heddle::core {

struct Situation {
  explicit Situation(const Config& c) : config(c) {}

  Config config;  // set_mode(), set_alone() and set_sm_total() change some of it
  Stats stats;
  TimeNs clock = 0;
  OnBroken on_broken = abort_on_broken;
  bool stepping = false;  // within step()
  size_t stoppable = 0;   // clients whose kernels can be stopped (stops.h)
  bool bypass = false;    // every ask is granted, and no policy is asked
  // To be done before the step ends: refresh allowances, dispatch, ask the policy about kernels
  // anew.
  bool allowances_dirty = false, dispatch_wanted = false, kernels_dirty = false;
  bool parking_dirty = false;  // some client's memory is to move (Memory::to_move)
};

}  // namespace heddle::core
