// What is learned of kernels and tasks: durations, gaps, runs, and a task's measurement stage
// (FIKIT section 3.2).
//
// A sample counts as exclusive if nobody else had work on the device meanwhile. Durations and gaps
// go on being corrected after the stage is over.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "daemon/core/client/client.h"
#include "daemon/core/promises.h"
#include "daemon/core/situation.h"

namespace heddle::core {

// The decisions of one step, in order, and the last grants of all.
class Telling {
 public:
  explicit Telling(const Situation& now) : now_(now) { decisions_.reserve(256); }

  void begin() { decisions_.clear(); }
  std::span<const Decision> decisions() const { return decisions_; }

  // Of the client, now; whoever decides fills in the rest.
  Decision make(DecisionKind kind, const Client& client) const;
  void add(const Decision& decision) { decisions_.push_back(decision); }
  void grant(const Decision& decision);
  // What a grant let go on under the one before ends.
  void allowance(Client& client, bool bypass);
  // What the client does not know yet of its kernel; one in `measure` launches is to be timed.
  void hint(Client& client, uint32_t kernel, uint8_t measure);

  std::vector<Decision> last_grants() const;  // the oldest first

 private:
  const Situation& now_;
  std::vector<Decision> decisions_;
  std::array<Decision, kLastDecisions> recent_{};  // a ring of grants
  uint64_t recent_count_ = 0;
};

class Learning {
 public:
  Learning(const Situation& now, const Roster& roster, Telling& telling)
      : now_(now), roster_(roster), telling_(telling) {}

  void attach(Client& client, uint32_t profile_runs);
  void detach(Client& client);
  // A kernel ID is first seen at the client.
  void meet(Client& client, const KernelBody& body, Promises& promises);
  // What a graph of the client consists of.
  void meet_nodes(Client& client, const NodesBody& body);
  // What the kernel, if it is a graph, uses by its nodes: as far as more is known of them than when
  // that was done last. The policy is then to be asked about it.
  void renew(Client& client, Kernel& kernel, Promises& promises);
  void profile(const Client& client, const ProfileBody& body, Promises& promises);
  // nullptr: nothing is known of the kernel, nor is there a place for it.
  KernelStats* find(uint32_t uid, uint64_t task, uint64_t kernel_id);
  // What the client does not know yet of its kernel.
  void tell(Client& client, uint32_t kernel);

  void gap_ended(const Client& client, TimeNs at);  // the client has work again
  void timed(Client& client, const Work& work, double us);
  // The same of work that stood in its middle: a guess, as long as the kernel was never timed.
  void stopped(Client& client, const Work& work, double us);
  // A synchronizing call returned, and nothing is left. True: with it the task's measurement stage
  // is over, and its kernels are known better.
  bool run_ended(Client& client, TimeNs at);

  RunTimes runs(int priority) const;                           // Gpu's
  SlowRunCount slower_runs(int priority, double times) const;  // likewise
  const RunTimes& runs_above() const { return runs_above_; }
  TaskProfile profile_of(const Client& client, bool profiled_only) const;

 private:
  void forget_kernel(const Client& client, Kernel& kernel);
  TimeNs worked_until(const Client& client) const;
  bool alone_since(const Client& client, TimeNs since, int lowest = kPriorityLowest) const;
  void infer_durations(Client& client, TimeNs at);
  void compare_run(Client& client, TimeNs at);

  const Situation& now_;
  const Roster& roster_;
  Telling& telling_;
  StatsTable table_;
  // Of one priority, of clients that are gone as well.
  struct Runs {
    RunTimes times;
    SlowRunCount promised;  // of clients who were promised a tail, by that
    SlowRuns others;        // of the others, who had times.count - promised.runs
  };
  std::array<Runs, kPriorityCount> runs_of_{};
  RunTimes runs_above_;      // Scheduler's
  TimeNs departed_at_ = -1;  // the latest that a client worked who is detached
};

}  // namespace heddle::core
