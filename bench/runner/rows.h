// The rows of a run, and the processes that they need. No process here: this is the plan.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/scenario/scenario.h"

namespace heddle::bench {

// One process of a job, started in one of the ways that it cannot change while it runs.
struct Variant {
  size_t job = 0;  // index into the scenario's
  bool mps = false;
  bool managed = false;          // started by `heddle run`
  std::string config = {};       // lines of the daemon's configuration: each text has its own
  bool client_priority = false;  // CUDA_MPS_CLIENT_PRIORITY=1
  uint32_t percent = 100;        // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
  scenario::SmShare sms = {};    // `heddle run --sms`, unless it is all

  auto operator<=>(const Variant&) const = default;
};

struct Row {
  std::string name;  // unique: "alone/JOB", "mps", "gapfill@mps", "gapfill@mps/JOB"
  bool mps = false;
  std::string policy;  // empty: no daemon takes part
  std::map<std::string, std::string> params;
  std::string config;         // of that daemon, beside what every one has
  std::vector<Variant> jobs;  // those that run, in the scenario's order
  bool alone = false;         // bare: what the others are held against
};

// Rows (or a figure of all rows) that were asked for and cannot be had here, each with the reason:
// said once, not measured.
struct Missing {
  std::string row, why;
};

struct Plan {
  std::vector<Row> rows;
  std::vector<Missing> missing;
};

// All rows of the scenario, and each job alone on every path to the GPU that is used.
Plan plan(const scenario::Scenario& scenario);
// Tells the daemons of rows that do not say it themselves whether the GPU stops kernels that run,
// by what heddle-stop-probe answered. Throws if it could not ask: rows would be measured as on a
// GPU that stops nothing.
void set_stops(std::vector<Row>& rows, const std::string& answer, const std::string& why);
// The processes that they take.
std::set<Variant> variants(const std::vector<Row>& rows);

// Rows whose processes are there at the same time: all of them, or those of one path to the GPU.
std::vector<std::vector<Row>> parts_of(const std::vector<Row>& rows, bool apart);

// The row that one is held against, by policy's path: what is free there, to the same jobs. Empty
// if not in `rows`.
std::string rival(const Row& row, const std::vector<Row>& rows);

// "0%-25%", as `heddle run --sms` takes it.
std::string share_text(const scenario::SmShare& sms);

// The job's own; in a split all are equal, so that none is held back nor goes before the others.
int priority_of(const Variant& variant, const scenario::Scenario& scenario);

std::string alone_name(const std::string& job, bool mps);
std::string variant_name(const Variant& variant, const scenario::Scenario& scenario);

// What requests a job is told to serve in a block, in the words of the job protocol.
// The same seed gives the same requests, in every row of a repetition.
struct RequestSeed {
  uint64_t run = 0;
  uint32_t repetition = 0;
};

// "poisson 30 SEED". `per_s` is the measured rate of a job whose load is given, 0 until it is
// known: it runs a closed loop until then.
std::string requests_of(const scenario::Scenario& scenario, const Variant& variant, double per_s,
                        const RequestSeed& seed);

}  // namespace heddle::bench
