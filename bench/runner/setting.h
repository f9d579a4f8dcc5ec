// What a run is set up from: its scenario with the command line's changes, its folder, and what a
// result says about where it was measured.
#pragma once

#include <string>

#include "bench/runner/host.h"
#include "bench/runner/rows.h"
#include "bench/runner/run.h"
#include "bench/scenario/scenario.h"

namespace heddle::bench {

// Both throw std::runtime_error: the parser's line, or one that names the option.
scenario::Scenario load(const ScenarioOptions& options);
// Names must be those of the install tree's policy folder; paths, the user's own files, are found.
// Each must load with its parameters. What leave_out_unknown() returns.
std::vector<Missing> find_policies(scenario::Scenario& s);
// Rows of policies that `folder` has not, and that resemble none there, are taken out and returned:
// a scenario may name a policy of another release. A name that resembles one is a mistake: it
// throws.
std::vector<Missing> leave_out_unknown(scenario::Scenario& s, const std::string& folder);

// In ISO 8601, in UTC.
std::string today();

// Of which this program was built. Where it was built without git, HEDDLE_COMMIT in the
// environment.
std::string commit();
// By folder of the launch path, as tree_hashes() has them; no such there.
Json trees();

// Lead and tail keep every job busy for the whole of the others' window.
inline constexpr double kLeadS = 0.3, kTailS = 0.15, kSendS = 0.05;
// Of all blocks, in seconds; loading and what is done once come on top.
double blocks_s(const scenario::Scenario& scenario, const std::vector<Row>& rows);

// --plan, for programs too: experiments/measure.py.
Json plan_json(const scenario::Scenario& scenario, const std::vector<Row>& rows);

// Date, commit, command, host: one for each time that a result was worked on.
Json new_session(const RunOptions& options, const std::string& driver, size_t jobs);

// A folder that goes with the run, but for its logs, which `keep` gets unless that is empty. Its
// name is short: sockets lie in it.
class Folder {
 public:
  explicit Folder(std::string keep);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string keep_;
  std::string path_;
};

}  // namespace heddle::bench
