// The progress of clients as time passes: launches go to the device and end, gaps open and end,
// clients become active and retire.
#pragma once

#include "daemon/core/seat.h"

namespace heddle::core {

// How the core knows that work is done. kNot: its predicted end has passed; kDone: by evidence that
// came later; kWhen: by evidence of the time when it ended.
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

  // The client has new work: its gap ends, and it is active. A client that is still busy has no
  // gap. The time that a launch waits for its grant is not part of the client's gap: so this is
  // called when it asks.
  void touch(Client& client, TimeNs at);
  // A launch of the client goes to the device.
  void add_work(Client& client, const Work& work);
  // A launch of the client is done.
  void finish(Client& client, const Work& work, TimeNs at, float measured_us, Seen seen);
  void charge(Client& client, double us);  // GPU time
  // A thread of the client entered a synchronizing call: its work counts as outstanding until the
  // call returns, whatever was predicted.
  void waits(Client& client, TimeNs at);

  // Opens the client's gap once it has no work on the device any more. Retires the client when it
  // has been silent for longer than its gaps ever are. Before settled_until there is nothing to do,
  // unless the client does something or is granted something.
  void settle(Client& client);
  // Settles all clients for which it is time, and `own` in any case; nullptr: none. Before the
  // deadline only the event's own client needs it.
  void settle_all(Client* own);
  // What is known of the client's work on the device has changed: it is settled next time.
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
  TimeNs settle_at_ = 0;  // no client needs settling before, unless an event concerns it
};

}  // namespace heddle::core
