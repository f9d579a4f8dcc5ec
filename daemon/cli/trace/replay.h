// `heddle replay`: a recording under another policy, in one of two ways.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace heddle::cli {

struct ReplayOptions {
  std::string trace;
  std::string file;      // the candidate; empty: the recorded policies themselves
  std::string policies;  // where the policies of the trace are; empty: as recorded
  bool in_virtual_time = false, decisions = false;
  bool as_json = false;
};

void add_replay(CLI::App& app, ReplayOptions& options, const bool& as_json, int& exit_code);

// Each returns an exit status (daemon.h), having said in one line what went wrong. The first asks
// the candidate at each recorded event; the second lets the virtual machine play the recorded
// clients, under the recorded policy and under the candidate.
int replay_decisions(const ReplayOptions& options);
int replay_virtual(const ReplayOptions& options);

}  // namespace heddle::cli
