// Two kernels beside each other, each launched again and again without a pause: how long a launch
// of each then takes. A pure function: the GPU's block scheduler, played through.
//
// What core::predict says of a moment holds while both are resident. Here time passes: a launch
// whose blocks do not all fit keeps later launches out until its last block has found a slot, so
// kernels of more than one wave take turns, and both periods become one. On an H100 335 of 435
// drawn pairs of model kernels had equal periods (both on all SMs). Neither paper has this;
// SoCC 4.2 has its first step, the wait for a slot.
#pragma once

#include "daemon/model/interference.h"

namespace heddle::core {

struct Steady {
  double first = 1, second = 1;  // time from end to end of a launch, over the same alone
  Channel binds_first = Channel::kSlots, binds_second = Channel::kSlots;
  bool ended = true;  // false: no steady state within the bound; the figures are of what was seen
};

// Of kernels whose shape and duration are known; others get 1. About 2 ms of CPU time.
Steady steady(const Mix& first, const Mix& second, const DeviceModel& device);

}  // namespace heddle::core
