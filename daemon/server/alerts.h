// Alerts: log lines about conditions that last or repeat, written at intervals: stalls, broken
// promises, allocations that a limit refused. Loop thread only.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/server/devices.h"
#include "daemon/server/log.h"
#include "daemon/server/roster.h"

namespace heddle::server {

// Finds the clients whose count, such as of broken promises, has grown since the last log line. The
// caller passes the time.
class Untold {
 public:
  using Counts = std::map<core::ClientId, uint64_t>;
  // A line for a client this often at most: a promise that cannot be kept breaks each second.
  static constexpr core::TimeNs kTellNs = 10'000'000'000;

  // When to call grown() next.
  core::TimeNs next() const { return next_; }
  // The clients whose count is higher than at the last call. `counts` has the attached clients
  // only.
  std::vector<core::ClientId> grown(Counts counts, core::TimeNs now) {
    std::vector<core::ClientId> clients;
    for (const auto& [id, count] : counts) {
      if (count > told_[id]) clients.push_back(id);
    }
    told_ = std::move(counts);
    next_ = now + kTellNs;
    return clients;
  }

 private:
  Counts told_;
  core::TimeNs next_ = 0;
};

class Alerts {
 public:
  Alerts(const Roster& roster, const Devices& devices, Log& log)
      : roster_(roster), devices_(devices), log_(log) {
    told_stall_.fill(std::numeric_limits<core::TimeNs>::min() / 2);
  }

  // Called at intervals. `policy`: the name of the policy in force.
  void check(const std::string& policy, core::TimeNs now);

 private:
  void check_stall(const core::Scheduler& scheduler, const std::string& policy);
  void check_promises(const core::Scheduler& scheduler, bool tail, const std::string& policy,
                      core::TimeNs now);
  void check_refused(core::TimeNs now);
  void check_forced(core::TimeNs now);
  void check_compute(const core::Scheduler& scheduler, const std::string& policy, core::TimeNs now);

  const Roster& roster_;
  const Devices& devices_;
  Log& log_;
  std::array<core::TimeNs, ipc::kDevices> told_stall_;
  std::array<std::array<Untold, 2>, ipc::kDevices> broken_promises_;  // [0]: mean; [1]: tail
  Untold refused_, forced_;
  std::array<core::TimeNs, ipc::kDevices> told_compute_{};
  std::array<std::set<core::ClientId>, ipc::kDevices> short_;  // below their request last time
};

}  // namespace heddle::server
