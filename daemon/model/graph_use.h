// What a CUDA graph uses of the GPU, by the kernels that it launches: the mean of what was measured
// of them, each for as long as it takes. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/model/interference.h"
#include "ipc/kernel_facts.h"

namespace heddle::core {

// A kernel of the graph. One of which nobody knows the time counts as long as the mean of the
// others.
struct GraphPart {
  const ipc::KernelMetrics* metrics = nullptr;  // nullptr: none
  double us = 0;                                // of one node, alone; 0: unknown
  uint32_t count = 0;                           // nodes that launch it
};

// Of the kernels that somebody measured. What one of those lacks, the graph lacks. Percentages and
// rates have a mean; sizes and times are a launch's own.
struct GraphUse {
  ipc::KernelMetrics metrics{};  // with unknown_pct
  Use use;
  double unknown = 1;  // part of the graph's time that is in the other kernels
};

GraphUse graph_use(std::span<const GraphPart> parts, const DeviceModel& device);

}  // namespace heddle::core
