// What clients have under way, as time passes: launches go to the device and end, gaps open and
// end, clients become active and retire.
#pragma once

#include "daemon/core/seat.h"

namespace heddle::core {

// How it is known that work is done: by its predicted end alone; by evidence that came later; or by
// evidence that says when, too.
enum class Seen : uint8_t { kNot, kDone, kWhen };

class Progress {
 public:
  Progress(const Scene& scene, GpuTime& gpu_time, Telling& telling, Seat& seat)
      : now_(scene.now),
        roster_(scene.roster),
        promises_(scene.promises),
        ceilings_(scene.ceilings),
        learning_(scene.learning),
        bounds_(scene.bounds),
        gpu_time_(gpu_time),
        telling_(telling),
        seat_(seat) {}

  // The client has work: its gap ends, it is active. One that is still busy leaves no gap. A gap
  // that it spent waiting for a grant is none of its own making, so it ends when it asks.
  void touch(Client& client, TimeNs at);
  // A launch of it goes to the device,
  void add_work(Client& client, const Work& work);
  // or is done.
  void finish(Client& client, const Work& work, TimeNs at, float measured_us, Seen seen);
  void charge(Client& client, double us);  // GPU time
  // A thread of it waits for the device: whatever was predicted, work is there until that returns.
  void waits(Client& client, TimeNs at);

  // Opens the client's gap once nothing of it is on the device any more, and retires it when it is
  // away for longer than it ever is. Until settled_until that finds nothing to do unless the client
  // does something or is granted something.
  void settle(Client& client);
  // Everybody, and `own` in any case; nullptr: nobody. Before the deadline it is enough to look at
  // the client that the event is of.
  void settle_all(Client* own);
  // Of what it has on the device something else may be known now.
  void unsettle(Client& client);
  TimeNs deadline() const { return roster_.active().empty() ? kNever : settle_at_; }

 private:
  void settle_idle(Client& client);

  Situation& now_;
  Roster& roster_;
  Promises& promises_;
  Ceilings& ceilings_;
  Learning& learning_;
  Bounds& bounds_;
  GpuTime& gpu_time_;
  Telling& telling_;
  Seat& seat_;
  TimeNs settle_at_ = 0;  // nobody needs settling before, unless told something
};

}  // namespace heddle::core
