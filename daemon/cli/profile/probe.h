// `heddle profile probe`: a program beside each microbenchmark, where nobody ran a profiler: how
// much slower each makes the other (SoCC 2025, section 4; bench/workloads/interference.cu).
#pragma once

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/cli/run/run.h"
#include "daemon/profile/probe.h"

namespace heddle::cli {

struct ProbeOptions {
  RunOptions program;          // its command, and whether it is simulated
  std::string microbenchmark;  // interference.cu as it was built; "": the installed one
  std::string channels;        // apart by commas; "": all
  double seconds = 1;          // of each block, alone and beside
  uint32_t runs = 20;          // of the measurement stage before
  double timeout_s = 120;      // for that stage
  std::string output = ".";    // the directory for the profile
  bool as_json = false;
};

// Measures the microbenchmarks alone, then the program until it has a profile, then the program
// beside each of them, with a second's block of it alone before and after. Under MPS: without it
// programs take turns. The program has to launch on, at a steady rate, until the end. Writes the
// profile, into one that is there. Returns an exit status.
int profile_probe(const ProbeOptions& options);
// Adds it to `heddle profile`; `command` is what stands after --.
void add_probe(CLI::App& profile, ProbeOptions& options, const std::vector<std::string>& command,
               const bool& as_json, int& exit_code);

// For --json and `heddle profile show`.
nlohmann::json probe_json(const profiles::Probe& probe);
std::string probe_text(const profiles::Probe& probe);

}  // namespace heddle::cli
