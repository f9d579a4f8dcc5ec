// Stops: whose kernels stand in their middle, and how long each client has the GPU at a time, where
// it is time-sliced.
//
// A gate closes at once and stops what comes next; what runs already is stopped here. That takes
// some 0.3 ms, and going on as much, so: a client is stopped when what it has under way is
// predicted to last clearly longer, or has; it goes on when the pause of those above is predicted
// to be worth it, or has lasted so long, and of equals one after the other. Gates close before,
// in the same step; what waits behind a client that stands is let go once its shim said that it
// goes on.
//
// The driver carries these calls out one at a time for all GPUs of the host, so that there are so
// many a second at most. What is learned of a client leaves out what was stopped.
//
// A process that is suspended carries out nothing, and its kernels may stand. For others it counts
// as one that goes on, so that nobody waits for it, and it is not stopped until it answers.
#pragma once

#include <algorithm>

#include "daemon/core/progress.h"

namespace heddle::core {

class Stops {
 public:
  Stops(Situation& now, const Roster& roster, const BusyTime& busy_time, Telling& telling,
        Progress& progress)
      : now_(now), roster_(roster), busy_time_(busy_time), telling_(telling), progress_(progress) {}

  // What its shim says.
  void told(Client& client, const StopBody& body);
  void forget(const Client& client);
  // Orders what is due. Behind all else of a step.
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
  double stop_us_ = 340, go_us_ = 355;  // as measured on an H200, then learned
  double stops_left_ = 0;               // that may be ordered now
  TimeNs stops_at_ = 0;                 // as of then
};

}  // namespace heddle::core
