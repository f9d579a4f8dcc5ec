// Child processes of the runner on one libuv loop, from one thread. Everything that waits does so
// in Loop::wait, which is where Ctrl-C is noticed; nothing here outlives its owner.
#pragma once

#include <uv.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace heddle::bench {

// A process did not do its part; the message ends with its log's last lines. Costs rows, not a run.
struct HostError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Ctrl-C, SIGTERM or SIGHUP.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

double monotonic_s();  // CLOCK_MONOTONIC, as the job protocol has it

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  uv_loop_t* get() { return &loop_; }
  // Runs events until `done()` (true) or for `seconds` (false). Throws Interrupted once a signal
  // came.
  bool wait(double seconds, const std::function<bool()>& done);
  void sleep(double seconds);
  // The same for teardown, which is not interrupted.
  bool settle(double seconds, const std::function<bool()>& done);

 private:
  uv_loop_t loop_;
  uv_timer_t timer_;
  uv_signal_t signals_[3];
  bool interrupted_ = false;
};

using Environment = std::map<std::string, std::string>;

struct Spawn {
  std::vector<std::string> command;
  Environment environment;  // on top of ours
  std::string log;          // stderr, and stdout unless `talks`; appended to
  std::vector<int> cpus;    // empty: anywhere
  bool talks = false;       // stdin and stdout are ours: send() and lines
};

// One child in a session of its own, so that a terminal's Ctrl-C reaches us alone. The destructor
// kills the whole process group and reaps the child.
class Process {
 public:
  Process(Loop& loop, const Spawn& spawn);  // throws HostError with the remedy
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool running() const;
  int exit_status() const;  // after its end; 128 + signal if one ended it
  int pid() const;
  void send(const std::string& line);  // best effort: a reader that is gone shows as its end
  std::deque<std::string>& lines();    // of stdout, complete ones, not yet taken
  bool talking() const;                // stdout is not at its end
  void close_input();
  void kill(int signal);  // the group
  // SIGTERM, then after `seconds` SIGKILL; reaped when it returns.
  void stop(double seconds);

 private:
  struct State;
  void release();

  Loop& loop_;
  State* state_;  // freed by the last close callback
};

// What the threads of a process, or those of that name, have run, by /proc; nothing if there is
// none. Threads that ended are left out.
std::optional<double> cpu_s(int pid, const std::string& thread = "");

// Moves all threads of a process and of its children to these CPUs, which what they start inherits.
void pin(int pid, const std::vector<int>& cpus);

// Runs a command to its end; its standard output, or HostError after `seconds` or a failure.
std::string run(Loop& loop, Spawn spawn, double seconds, const std::string& input = "");

std::string tail(const std::string& path, int lines = 12);

}  // namespace heddle::bench
