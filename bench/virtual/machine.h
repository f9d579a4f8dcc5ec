// One row of a scenario for one block on virtual GPUs: what the runner does with processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/runner/figures.h"
#include "bench/virtual/program.h"
#include "daemon/policy/lua_policy.h"

namespace heddle::bench {

inline constexpr const char* kOracle = "oracle";

// What every block of a run shares; read by several threads at once.
struct VirtualSetting {
  const scenario::Scenario& scenario;
  std::vector<std::shared_ptr<const TraceScript>> scripts = {};  // by job; nullptr: synthetic
  std::vector<std::vector<double>> recorded = {};                // arrivals by job
  std::string policy_directory = {};
  uint64_t seed = 1;
  uint32_t gpus = 1, copies = 1;
  double host_noise = 0;
  std::string trace = {};  // folder
};

struct VirtualBlock {
  Block block;
  double virtual_s = 0;
  double gpu_us = 0;  // of an iteration; where a job runs alone
};

// Deterministic: (setting, row, repetition) is all that counts. The requests and the jobs' own
// times are the same in every row of a repetition. Throws std::runtime_error with place and remedy.
VirtualBlock run_block(const VirtualSetting& setting, const Row& row, uint32_t repetition);

// The policy of a row: a file of the directory, or a path; "turns" is the runner's own.
heddle::Result<std::unique_ptr<policy::LuaPolicy>> load_row_policy(const VirtualSetting& setting,
                                                                   const Row& row);

}  // namespace heddle::bench
