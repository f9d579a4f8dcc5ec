// How many SMs a kernel needs: pure functions of its curve, the durations on 1, 2, 4, 8 and 12
// groups and on all that `heddle profile sweep` measures (metrics us_on_*). Where the last is
// missing, `whole_us` stands in for it.
//
// KRISP (section 4.2): the least compute units with the same latency as all of them. Neither a
// kernel's grid nor its input says how many those are (Fig. 6): they are measured.
#pragma once

#include <cstdint>

#include "daemon/model/sm_groups.h"
#include "ipc/kernel_facts.h"

namespace heddle::core {

// A latency size may take so much longer than all SMs: ours, for measured curves have noise.
inline constexpr double kRightSizeSlack = 1.05;

// Predicted duration on `n` of the device's groups of what takes `whole_us` on all of them. Between
// two points of the curve, and beyond, as a + b / n. 0 if nothing of the curve was measured.
double us_on_groups(const ipc::KernelMetrics& metrics, double whole_us, const SmGroups& groups,
                    GroupCount n);

// The latency size in SMs: the least that was measured within kRightSizeSlack of all; all of them
// if none is. 0 if nothing of the curve was measured.
SmCount latency_size(const ipc::KernelMetrics& metrics, double whole_us, const SmGroups& groups);

// The throughput size in SMs: of the sizes measured, and all, the one with the least
// duration x (1 + lambda x SMs). lambda is what an SM costs, as a share of the time: at 0 the
// fastest size wins, at 1 the one with the least SM time. 0 if nothing was measured.
SmCount throughput_size(const ipc::KernelMetrics& metrics, double whole_us, const SmGroups& groups,
                        double lambda);

}  // namespace heddle::core
