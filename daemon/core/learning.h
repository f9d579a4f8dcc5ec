// Learning: the durations and gaps of kernels, runs, and a task's measurement stage (FIKIT section
// 3.2).
//
// A sample counts as exclusive if no other client had work on the device meanwhile. Durations and
// gaps go on being corrected after the stage is over.
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

  // A decision for the client, now; the caller fills in the rest.
  Decision make(DecisionKind kind, const Client& client) const;
  void add(const Decision& decision) { decisions_.push_back(decision); }
  void grant(const Decision& decision);
  // The client's new allowance. A gated client's running graph stops at its next gate.
  void allowance(Client& client, bool bypass);
  // A hint about the kernel, if the client does not know it yet; one in `measure` launches is
  // timed.
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
  // The kernels in a graph of the client.
  void meet_nodes(Client& client, const NodesBody& body);
  // Computes a graph's use from its nodes, if more is known of any kernel than the last time. The
  // policy is asked about the graph again if that changed it.
  void renew(Client& client, Kernel& kernel, Promises& promises);
  void profile(const Client& client, const ProfileBody& body, Promises& promises);
  // The kernel's statistics, new ones if there are none. nullptr: the table has no place for it.
  KernelStats* find(uint32_t uid, uint64_t task, uint64_t kernel_id);
  // Sends a hint about the kernel, if the client does not know it yet.
  void tell(Client& client, uint32_t kernel);

  void gap_ended(const Client& client, TimeNs at);  // the client has work again
  void timed(Client& client, const Work& work, double us);
  // The same for work that was stopped in its middle: a guess, used while the kernel was never
  // timed.
  void stopped(Client& client, const Work& work, double us);
  // A synchronizing call returned, and the client has no work left. True: this run completes the
  // task's measurement stage, and more is known of its kernels.
  bool run_ended(Client& client, TimeNs at);

  RunTimes runs(int priority) const;                           // Gpu::runs
  SlowRunCount slower_runs(int priority, double times) const;  // Gpu::slower_runs
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
  // Runs of clients of one priority, also of those that are gone.
  struct Runs {
    RunTimes times;
    SlowRunCount promised;  // of clients with a promise of the tail, judged by that
    SlowRuns others;        // of other clients: times.count - promised.runs in all
  };
  std::array<Runs, kPriorityCount> runs_of_{};
  RunTimes runs_above_;      // View::runs_above
  TimeNs departed_at_ = -1;  // when a client that has detached last had work
};

}  // namespace heddle::core
