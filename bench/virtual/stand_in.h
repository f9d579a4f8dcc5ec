// A twin of what was measured: synthetic stand-ins that do what the jobs of a result did alone.
#pragma once

#include "bench/runner/host.h"
#include "bench/scenario/scenario.h"

namespace heddle::bench {

// Gives each job without a trace the launches an iteration (of a CUDA graph: those that [job.sim]
// has, 1 unless given) and the GPU time that a profiler saw, and host time between them so that it
// takes as long as it took alone. `measured` is a result of `run` or `keep` with its figures. What
// it does not say stays as the scenario has it: how many blocks a launch has, how durations spread.
void do_as_measured(scenario::Scenario& scenario, const Json& measured);

}  // namespace heddle::bench
