// Stops: which clients' running kernels are stopped, and the time slice of each client, on a
// time-sliced GPU.
//
// A gate closes at once and holds the next launches; running kernels are stopped here. Stopping
// takes about 0.3 ms, and going on as long. So a client is stopped if its running work is predicted
// to last clearly longer, or already has. It goes on if the pause of the clients above is predicted
// to be worth that, or has lasted long enough; equals go on one after the other. Gates close in the
// same step, before the stop. Launches that wait behind a stopped client are let go once its shim
// says that it goes on.
//
// The driver carries out these calls one at a time for all GPUs of the host, so their number a
// second is limited (Config::stops_per_s). Durations of stopped work are not learned.
//
// A suspended process carries out no order, and its kernels may stay stopped. For the other clients
// it counts as going on, so that none waits for it. It is not stopped again until it answers.
#pragma once

#include <algorithm>

#include "daemon/core/progress.h"

namespace heddle::core {

class Stops {
 public:
  Stops(Situation& now, const Roster& roster, const BusyTime& busy_time, Telling& telling,
        Progress& progress)
      : now_(now), roster_(roster), busy_time_(busy_time), telling_(telling), progress_(progress) {}

  // A report of the client's shim.
  void told(Client& client, const StopBody& body);
  void forget(const Client& client);
  // Gives the orders that are due. Comes last in a step.
  void settle(StopWhen builtin);
  TimeNs deadline() const { return look_at_; }

 private:
  void settle(Client& client, StopWhen when);
  bool is_deaf(const Client& client);
  void go_on(Client& client);
  bool is_due(Client& client, StopWhen when);  // to be stopped
  bool may_go_on(Client& client);
  bool turn_of_another(const Client& client) const;
  uint32_t slice_us(const Client& client, StopWhen when);
  bool afford();
  void order(Client& client, ipc::StopOrder order);
  void look_at(TimeNs at) { look_at_ = std::min(look_at_, at); }

  Situation& now_;
  const Roster& roster_;
  const BusyTime& busy_time_;
  Telling& telling_;
  Progress& progress_;
  TimeNs look_at_ = kNever;
  double stop_us_ = 340, go_us_ = 355;  // measured on an H200, then learned
  double stops_left_ = 0;               // stops that may be ordered, at stops_at_
  TimeNs stops_at_ = 0;
};

}  // namespace heddle::core
