// `heddle record` and `heddle trace`: what the core saw, into a file, and out of it again.
#pragma once

#include <string>
#include <vector>

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

}  // namespace heddle::cli
