// `heddle profile`: kernel profiles (daemon/profile/README.md), taken from a running client or a
// trace, shown, compared, joined and thinned out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/cli/run/run.h"
#include "daemon/model/sm_groups.h"
#include "daemon/profile/profile.h"

namespace CLI {
class App;
}

namespace heddle::cli {

struct ProfileOptions {
  std::string socket;              // empty: the default one
  std::string client;              // record: its ID or label, as `ps` or `trace show` has it
  std::string trace;               // record: from this file instead of the daemon
  std::string gpu, driver;         // record: where the trace does not say them
  std::vector<std::string> paths;  // profiles, or directories of them
  std::string output;              // record, merge
  double within_pct = 10;          // diff: means this close are alike
  double least_us = 1;             // diff: and so are these
  std::optional<uint32_t> days;    // prune: profiles measured longer ago; none: of any age stay
  uint32_t samples = 0;            // prune: kernels with fewer samples
  bool dry_run = false;            // prune
  bool neighbours = false;         // show: which limit forbids company to each kernel
  bool as_json = false;
};

// Each returns an exit status (daemon.h), having said in one line what went wrong. profile_diff
// returns 1 if there are differences.
int profile_record(const ProfileOptions& options);
int profile_show(const ProfileOptions& options);
int profile_diff(const ProfileOptions& options);
int profile_merge(const ProfileOptions& options);
int profile_prune(const ProfileOptions& options);

// `heddle profile sweep`: how long each kernel of a program takes on fewer SMs (KRISP section 3.1).

struct SweepOptions {
  RunOptions program;                               // its command, and whether it is simulated
  std::vector<uint32_t> groups = {1, 2, 4, 8, 12};  // sizes beside all
  uint32_t group_sms = 8;                           // SMs of a group: cuDevSmResourceSplitByCount's
  uint32_t runs = 20;                               // of the measurement stage, at each size
  double timeout_s = 300;                           // for a run at one size
  std::string output = ".";                         // the directory for the profiles
  bool as_json = false;
};

// Runs the program once on all SMs and once at each size, each time under a heddled of its own with
// nobody else, outside MPS. Writes the profiles of the first run with the curves of all of them. A
// run that does not end in time is killed, and its size is left out of the curves: kernels that
// wait for others of their grid hang where too few of them run. Returns an exit status.
int sweep(const SweepOptions& options);

// `heddle profile probe`: a program beside each microbenchmark, where nobody ran a profiler: how
// much slower each makes the other (SoCC 2025, section 4; bench/workloads/interference.cu).

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
