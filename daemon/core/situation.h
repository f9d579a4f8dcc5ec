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
};

}  // namespace heddle::core
