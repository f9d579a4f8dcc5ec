// `heddle-bench virtual`: a scenario in virtual time. The real scheduler core and the real policies
// on the one GPU model (daemon/sim), no clock and no process: equal seeds give equal results to the
// bit, on any machine and any number of threads.
#pragma once

#include <cstdint>
#include <string>

#include "bench/runner/run.h"

namespace heddle::bench {

// `scenario` may be a result: then its jobs' stand-ins do as was measured of each alone.
struct VirtualOptions : ScenarioOptions {
  std::string json;
  std::string policy_directory;  // empty: the installed one
  uint32_t gpus = 1;
  uint32_t copies = 1;    // of every job; copy i runs on GPU i modulo gpus
  double host_noise = 0;  // program.h, HostSpeed
  unsigned threads = 0;   // 0: one for each CPU
  std::string trace;      // folder for a trace of each row with a policy, of its first repetition
  std::string command;
};

// Runs, prints tables and writes the file; an exit status.
int print_virtual(const VirtualOptions& options);

}  // namespace heddle::bench
