// A job: one process that loads once, stays, and runs a block when told to. Speaks the protocol of
// bench/METHOD.md ("The job protocol"), in its short form (lines) or its compact one (JSON).
#pragma once

#include <string>
#include <vector>

#include "bench/runner/host.h"

namespace heddle::bench {

// What one job did in one block. A request that arrived in the block and was not begun before its
// end is unserved: it has no time, and misses any SLO.
struct Samples {
  std::vector<uint32_t> us;
  double span_s = 0;
  uint32_t unserved = 0;
  std::vector<uint32_t> tbt_us = {};       // of iterations that make tokens: the times between them
  std::vector<uint32_t> bypassed_us = {};  // of a paired job: each iteration's partner past heddle
  std::vector<uint32_t> ttft_us = {};      // with tokens: from arrival to the first one
};

struct Window {
  double start_s = 0;  // CLOCK_MONOTONIC
  double seconds = 0;
  double lead_s = 0, tail_s = 0;  // kept busy before and after, so that all run all the time
  std::string arrivals;           // "closed", "poisson 30 SEED", ...
};

// An iteration as a program prints it, in seconds: "BEGIN END", or "BEGIN TOKEN ... END" where it
// makes tokens, the last at its end. Empty: the line is something else.
std::vector<double> parse_iteration(const std::string& line);

// The block's samples: those of the iterations that began within it.
Samples within(const std::vector<std::vector<double>>& iterations, const Window& window);

class Job {
 public:
  // Does not wait for it. `command` comes with whatever starts it. It is pinned when it is ready:
  // loading is most of a short run, and is done by all CPUs.
  Job(Loop& loop, std::string name, const Spawn& spawn);

  const std::string& name() const { return name_; }
  bool broken() const { return broken_; }
  bool can(const std::string& word) const;
  const Json& about() const { return about_; }                     // what it said when it was ready
  int pid() const { return about_.value("pid", process_.pid()); }  // its own word goes first

  // All throw HostError; the job is broken then, its process killed.
  void wait_ready();
  void go(const Window& window);
  Samples samples();
  // Any other command, and its one JSON answer.
  void tell(const std::string& line);
  Json answer();

  void give_up();
  // Answers that are still owed after a partner failed are read and dropped, to stay in step.
  void drain();
  void ask_to_quit();
  bool running() const { return process_.running(); }

 private:
  void read_ready();
  bool speaks_by(double deadline_s);  // or has ended
  std::string line(double deadline_s);
  Json json_answer(double deadline_s);
  Samples samples_from(const std::string& text);
  [[noreturn]] void fail(const std::string& what);

  Loop& loop_;
  const std::string name_, log_;
  const std::vector<int> cpus_;
  Process process_;
  Json about_ = Json::object();
  Window window_;
  enum class Owes { kNothing, kSamples, kAnswer } owes_ = Owes::kNothing;
  bool broken_ = false;
};

}  // namespace heddle::bench
