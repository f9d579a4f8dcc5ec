// One round of the campaign: a daemon and clients as real processes on the simulated GPU, the
// faults of a plan, and the invariants.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/fault/board.h"
#include "tests/fault/plan.h"
#include "tests/folder.h"

namespace heddle::fault {

// What rounds share: a folder with socket, policies, logs and the simulated GPU's log.
class Stage {
 public:
  Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const std::string& folder() const { return folder_; }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  Board& board() { return *board_; }
  // Reads what the GPU logged meanwhile: which launches of a process ran, and who has left.
  void read_gpu_log();
  struct Ran {
    uint64_t kernels[kThreads] = {};  // of each thread, the first so many launches, each once
    std::string disorder;             // or what it ran that was not next
  };
  const Ran& ran(pid_t pid) { return ran_[pid]; }
  bool left(pid_t pid) const { return left_.count(pid) != 0; }
  void forget_processes();

 private:
  const TestFolder made_;
  const std::string folder_ = made_.path();
  Board* board_ = nullptr;
  long log_offset_ = 0;
  std::map<pid_t, Ran> ran_;
  std::set<pid_t> left_;
};

struct Tally {
  uint64_t launches = 0, kills = 0, stops = 0, threads_ended = 0, forks = 0, daemons = 0;
  std::set<std::string> fired;  // fault points at which something happened
  int64_t latest_ns = 0;        // the longest that a launch stayed beyond the starvation bound
};

class Round {
 public:
  Round(Stage& stage, const Plan& plan) : stage_(stage), plan_(plan) {}
  // Empty, or what went wrong.
  std::string run(Tally& tally);

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    pid_t pid = -1;
    int status = -1;  // once it ended
    bool running = false;
    bool begun = false;
    Clock::time_point started;
    Clock::time_point continue_at = Clock::time_point::max();
  };

  void start_daemon();
  void start_client(size_t index);
  void start_clients();  // those whose time has come
  void start_hostile();
  void continue_stopped(Child& child);
  bool keep_running();  // false: all clients have ended
  void reap();
  void on_end(Child& child);
  std::string judge_client(size_t index, Tally& tally);
  std::string judge_launches(size_t index, Tally& tally);
  std::string judge_daemon();
  std::string play();
  void kill_all();

  Stage& stage_;
  const Plan& plan_;
  Child daemon_, hostile_;
  size_t incarnation_ = 0;
  Clock::time_point restart_at_ = Clock::time_point::max();
  std::vector<Child> clients_;
  Clock::time_point began_;
  std::string problem_;
  uint64_t stops_ = 0, kills_ = 0;
};

// The bodies of processes without a program of their own.
[[noreturn]] void be_daemon(const Stage& stage, const Plan& plan, const DaemonPlan& self);
[[noreturn]] void be_hostile(const Stage& stage, const Plan& plan);

}  // namespace heddle::fault
