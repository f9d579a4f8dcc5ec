// What a block costs beside its jobs' time: heddled's CPU and counters, the CPU of the shim's
// thread in each job. For run.cc.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/runner/figures.h"

namespace heddle::bench {

class Watch {
 public:
  // Jobs by their names in the scenario. Throws HostError, as end() does, if heddled is gone.
  Watch(Daemon& daemon, std::vector<std::pair<std::string, const Job*>> jobs);

  // What has grown since, into `out`; what cannot be had is left out.
  void end(Block& out);

 private:
  Daemon& daemon_;
  const std::vector<std::pair<std::string, const Job*>> jobs_;
  std::map<std::string, double> counters_;
  std::optional<double> daemon_cpu_s_;
  std::vector<std::optional<double>> shim_cpu_s_;
  double begin_s_ = 0;
};

}  // namespace heddle::bench
