// `heddle record` and `heddle trace`: what the core saw, into a file, and out of it again.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle::cli {

struct RecordOptions {
  std::string socket;  // empty: the default one
  std::string file;
  double seconds = 0;  // 0: until SIGINT, SIGTERM or SIGHUP
  bool as_json = false;
};

struct TraceOptions {
  std::string file;
  std::vector<std::string> files;  // predict: traces
  std::string perfetto;            // export: where to
  std::string out;                 // cut: where to
  double seconds = 0;              // cut: how much of its beginning
  uint64_t client = 0;             // cut: of this client alone; 0: of all
  bool as_json = false;
};

// Each returns an exit status (daemon.h), having said in one line what went wrong.
int record(const RecordOptions& options);
int trace_show(const TraceOptions& options);
int trace_export(const TraceOptions& options);
int trace_replay(const TraceOptions& options);  // it has another name now
int trace_predict(const TraceOptions& options);
int trace_cut(const TraceOptions& options);

// `heddle replay`: a recording under another policy, in one of two ways.

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
