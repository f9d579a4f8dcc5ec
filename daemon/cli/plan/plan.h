// `heddle plan`: which job goes to which MIG slice and share, and the job simulator.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "daemon/cli/daemon.h"
#include "daemon/plan/mig.h"

namespace heddle::cli {

struct PlanOptions {
  std::string file;                                   // jobs: the TOML
  std::string gpu = "a100-80gb";                      // jobs, layouts
  std::string data;                                   // tables to learn from
  std::string predictor;                              // jobs: a file of `train`
  std::string output;                                 // train
  std::string layout;                                 // jobs: what the GPU has now
  bool explain = false, rules = false, ours = false;  // jobs
  bool allow_mig = false;                             // jobs
  bool apply = false;                                 // jobs: through the heddled of this socket
  int device = -1;                                    // jobs: NVML's index
  bool wide = false;                                  // layouts
  uint64_t seed = 1;
  std::vector<std::string> policies;  // simulate
  uint32_t online = 800, offline = 400, gpus = 8, seeds = 5;
  double interval_s = 40;
  double error_pct = -1;  // of the judge; below 0: the forest judges
  double mig_s = 4, checkpoint_s = 2;
};

// Adds the subcommand; what is asked for runs as it is parsed, and leaves its exit status.
// `socket`: the daemon's, for --apply.
void add_plan(CLI::App& app, PlanOptions& options, const std::string& socket, const bool& as_json,
              int& exit_code);

// plan_apply.cc. `plan`: what is printed of it; `rules`: its [[rule]]s; `sms`: the GPU model's.
struct ApplyPlan {
  const plan::Layout& layout;
  const nlohmann::json& plan;
  std::string rules;
  uint32_t sms;
};
int plan_apply(const PlanOptions& options, const std::string& socket, const ApplyPlan& what,
               bool as_json);
int plan_simulate(const PlanOptions& options, bool as_json);  // plan_simulate.cc
int plan_placements(const PlanOptions& options, bool as_json);

// Makes a plan's MIG slices through NVML: `heddle plan jobs --apply --allow-mig`.
// What is there goes, and the layout's slices are made, each with one compute instance. Refused
// while any process runs on the GPU, by NVML's word, or is attached to heddled. Nothing is touched
// if the slices are there already, or if the layout is the whole GPU and MIG is off. `gpu`: NVML's
// index; -1: the only one.
//
// The answer's json: {gpu, changed, mig, slices: [{profile, start, uuid}]}.
Answer make_slices(const plan::Layout& layout, int gpu, size_t attached);

}  // namespace heddle::cli
