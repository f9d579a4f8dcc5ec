// `heddle profile import-ncu`, `collect-metrics` and `predict-pairs`: metrics of Nsight Compute by
// kernel, and which kernels leave room for neighbours (`heddle profile show --neighbours`).
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/interference.h"
#include "daemon/profile/profile.h"

namespace heddle::cli {

inline constexpr size_t kReportMost = 1 << 30;  // bytes; a launch is a line for each metric

struct NcuOptions {
  std::string report;                     // import-ncu: what ncu --csv wrote
  std::string into;                       // import-ncu: a profile that gets the metrics
  std::string ncu = "ncu";                // collect-metrics: the program
  std::string output = "heddle-ncu.csv";  // collect-metrics: where the report goes
  std::string pairs;                      // predict-pairs: what heddle-bench pairs measured
  std::string gpu_model;                  // predict-pairs: a file; empty: the installed one
  uint32_t skip = 1;                      // collect-metrics: launches of each configuration before
  std::vector<std::string> command;       // collect-metrics: the program to measure
  bool as_json = false;
};

// Each returns an exit status (daemon.h), having said in one line what went wrong. collect-metrics
// does not return where ncu exists: it becomes ncu.
int profile_import_ncu(const NcuOptions& options);
int profile_collect_metrics(const NcuOptions& options);
int profile_predict_pairs(const NcuOptions& options);
// Adds all to `heddle profile`; `command` is what stands after --.
void add_ncu(CLI::App& profile, NcuOptions& options, const std::vector<std::string>& command,
             const bool& as_json, int& exit_code);

// A kernel and the limit of an SM that forbids company to it: kNone if a modest block finds room.
struct Neighbours {
  const core::KernelProfile* kernel;
  uint32_t blocks_on_sm;
  core::SlotLimit forbidden_by;
};
// Of its kernels that are no graphs, by the model of the profile's GPU that is installed.
Result<std::vector<Neighbours>> neighbours_of(const profiles::Profile& profile,
                                              const std::string& models);
std::string gpu_models_directory();
std::string neighbours_text(const std::vector<Neighbours>& kernels);

}  // namespace heddle::cli
