// What a block costs beside its jobs' time: heddled's CPU and counters, the time of its policy's
// hooks, the CPU of the shim's thread in each job. For run.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/runner/figures.h"

namespace heddle::bench {

// By how much counters grew from one `heddle status --json` to a later one, without those that did
// not. `hooks_us` is the time in the policy's hooks, and is there even if it is 0. It is left out
// where no policy tells of hooks, and where another policy took over meanwhile.
Json grown(const Json& before, const Json& now);

class Watch {
 public:
  // Jobs by their names in the scenario. Throws HostError, as end() does, if heddled is gone.
  Watch(Daemon& daemon, std::vector<std::pair<std::string, const Job*>> jobs);

  // What has grown since, into `out`; what cannot be had is left out.
  void end(Block& out);

 private:
  Daemon& daemon_;
  const std::vector<std::pair<std::string, const Job*>> jobs_;
  const Json before_;  // heddled's status
  std::optional<double> daemon_cpu_s_;
  std::vector<std::optional<double>> shim_cpu_s_;
  double begin_s_ = 0;
};

}  // namespace heddle::bench
