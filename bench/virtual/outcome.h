// What a run in virtual time gives, for whoever prints it or checks it.
#pragma once

#include <string>
#include <vector>

#include "bench/runner/figures.h"
#include "bench/virtual/run.h"

namespace heddle::bench {

// How far a row is from the clairvoyant policy on the same path to the GPU, job by job.
struct Distance {
  std::string row, oracle, job, metric;  // "mean": JCT of a latency job; "per_s": of a batch job
  Figure ratio;                          // row ÷ oracle, within repetitions
};

// Of the GPU's time that the latency jobs left in a row (an iteration takes what it takes alone),
// the part that the batch jobs turned into iterations: 1 is the bound for whoever could stop
// kernels at will and knew everything; kernels that overlap may exceed it.
struct LeftOver {
  std::string row;
  Figure used;
};

struct VirtualRun {
  Json result;  // of the same form as `heddle-bench run` writes; mode "simulated"
  std::vector<Distance> distances;
  std::vector<LeftOver> left_over;
  double virtual_s = 0;  // summed over machines
  double busy_s = 0;     // of the host's threads
};

// Throws std::runtime_error with place and remedy.
VirtualRun run_virtual(const VirtualOptions& options);

}  // namespace heddle::bench
