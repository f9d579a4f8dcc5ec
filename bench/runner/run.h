// `heddle-bench run`: measures a scenario. Jobs load once and stay; rows alternate in short blocks,
// in a new order in each repetition; what a row needs is switched live, and what only a new process
// can change has a process of its own from the start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/runner/figures.h"

namespace heddle::bench {

// A scenario, and what the command line says instead of its file.
struct ScenarioOptions {
  std::string scenario;
  std::optional<std::string> text;  // of the scenario, where that file is none
  std::string pair;                 // of a file that has many
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

// `heddle-bench agree`: whether two results of one scenario say the same, row by row.

// One ratio that both results have, each with its 95 % interval.
struct Agreement {
  std::string row;     // "gapfill@mps", or "gapfill@mps ÷ mps+priority"
  std::string figure;  // "service mean ÷ alone"
  Figure first, second;

  // Whether the intervals meet. Of equally wide ones of the same truth, one pair in 180 does not.
  bool holds() const { return first.lo <= second.hi && second.lo <= first.hi; }
};

// The ratios that both have, over alone and of each policy over its rival: mean and p99 of latency
// jobs, rates of batch jobs. Absolute times are left out: they move with the host. Throws
// std::runtime_error unless both are of the same scenario and kind of GPU; `names` are for its
// message.
std::vector<Agreement> agreements(const Json& first, const Json& second,
                                  const std::pair<std::string, std::string>& names);

// Prints a Markdown table of them; an exit status: 1 if any does not hold.
int print_agreements(const std::string& first, const std::string& second);

// `heddle-bench learn`: profiles of a scenario's programs, for policies that know only programs
// that were swept or probed. `heddle-bench alone` plays one of them by itself, as those want it.

struct LearnOptions : ScenarioOptions {  // `profiles` is where they go
  std::string device = "auto";           // or "sim"
  bool sweep = false, probe = false;
};

// Exit statuses: 0, or 1 where `heddle profile` failed, which it says; the rest is learned.
int learn(const LearnOptions& options);
int play_alone(double seconds, const std::vector<std::string>& command);

}  // namespace heddle::bench
