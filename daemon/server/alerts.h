// What the log is told now and then, not each time that it happens: stalls, promises that were
// broken, allocations that a limit refused. Loop thread only.
#pragma once

#include <array>
#include <limits>
#include <string>

#include "daemon/server/devices.h"
#include "daemon/server/log.h"
#include "daemon/server/roster.h"
#include "daemon/server/untold.h"

namespace heddle::server {

class Alerts {
 public:
  Alerts(const Roster& roster, const Devices& devices, Log& log)
      : roster_(roster), devices_(devices), log_(log) {
    told_stall_.fill(std::numeric_limits<core::TimeNs>::min() / 2);
  }

  // To be called now and then. `policy` is the name of the one that runs.
  void check(const std::string& policy, core::TimeNs now);

 private:
  void check_stall(const core::Scheduler& scheduler, const std::string& policy);
  void check_promises(const core::Scheduler& scheduler, bool tail, const std::string& policy,
                      core::TimeNs now);
  void check_refused(core::TimeNs now);
  void check_forced(core::TimeNs now);

  const Roster& roster_;
  const Devices& devices_;
  Log& log_;
  std::array<core::TimeNs, ipc::kDevices> told_stall_;
  std::array<std::array<Untold, 2>, ipc::kDevices> broken_promises_;  // of the mean, the tail
  Untold refused_, forced_;
};

}  // namespace heddle::server
