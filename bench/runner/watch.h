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

// What `run` says while it measures. For run.cc.

std::string duration_text(double seconds);  // "1:40" or "12 s"

// What the jobs of a block did, each in the figure that its role is judged by.
std::string block_text(const Block& block, const scenario::Scenario& scenario);

// Energy of the GPU by NVML's counter. For run.cc.

// The GPU that CUDA_VISIBLE_DEVICES names first, or else the first one. Loads libnvidia-ml.so.1
// (HEDDLE_NVML names another), once.
class EnergyMeter {
 public:
  EnergyMeter();

  // Why there are no figures, or empty.
  const std::string& problem() const { return problem_; }
  // Joules that the whole GPU has taken since its driver was loaded; nothing if it cannot be read.
  // The driver brings the counter up to date every so often: take spans of a second or more.
  std::optional<double> joules() const;

 private:
  void load();

  void* device_ = nullptr;
  int (*total_mj_)(void*, unsigned long long*) = nullptr;
  std::string problem_;
};

}  // namespace heddle::bench
