// `heddle-bench run`: measures a scenario. Jobs load once and stay; rows alternate in short blocks,
// in a new order in each repetition; what a row needs is switched live, and what only a new process
// can change has a process of its own from the start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::bench {

// A scenario, and what the command line says instead of its file.
struct ScenarioOptions {
  std::string scenario;
  std::string pair;  // of a file that has many
  std::optional<std::vector<std::string>> policies, baselines;
  std::optional<uint32_t> repetitions;
  std::optional<double> block_s;
  bool apart = false;
  bool wide = false;  // the table that is printed
  std::string profiles;
  std::optional<uint64_t> seed;
};

struct RunOptions : ScenarioOptions {
  std::string device = "auto";  // or "sim"
  std::string json;             // default: NAME.json
  std::string logs;             // folder that keeps them
  std::string trace;            // folder for recorded traces
  bool plan = false;            // print what would be measured, and start nothing
  bool resume = false;
  bool skip_outputs = false;  // those under heddle are not compared with those of bare processes
  bool skip_alone = false;    // no rows of each job alone
  double budget_s = 0;        // 0: none
  std::string command;        // as typed, for the result
};

// An exit status: 0 all was measured, 1 something broke (the rest was measured), 130 interrupted.
// Throws std::runtime_error with place and remedy for what is wrong from the start.
int run_scenario(const RunOptions& options);

}  // namespace heddle::bench
