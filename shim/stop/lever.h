// Who has this process's kernels stand and go on, and sets its time slices, as the daemon orders
// (ipc/stop.h): a thread of its own, "heddle-stops". It calls nothing but ioctl, futex, fstat, the
// clock, and a write to the doorbell, for the other threads may stand behind what it stopped.
//
// A stop is a lease. The lever gives it back when the daemon's heartbeat is stale, when the session
// ends, and while somebody holds the process on. It tries again for as long as the driver refuses.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/layout.h"
#include "ipc/stop.h"
#include "shim/stop/objects.h"

namespace heddle::shim {

class Lever {
 public:
  struct Next {
    int64_t wait_ns;  // until the next look, unless something changes
    bool tell;        // there is news for the daemon
  };
  // Does what the control memory says, and says in the client's what it did. nullptr: there is no
  // session. One thread alone.
  Next look(const ipc::ControlMemory* control, ipc::ClientMemory* client, int64_t now_ns);

 private:
  bool carry_out(ipc::StopOrder order);
  bool change(ipc::StopOrder order, bool joined);
  bool unsure() const { return unsure_off_ || unsure_slice_; }

  ipc::StopOrder in_force_{};
  bool unsure_off_ = false, unsure_slice_ = false;  // the driver refused some of that
  uint32_t seen_ = 0;                               // the objects' version at the time
  uint32_t refusals_ = 0;                           // in a row
  uint32_t took_us_ = 0;
};

// ---- the thread ---------------------------------------------------------------------------------

// By the helper: the session is current. The first one starts the thread, if the driver's requests
// are seen; where it cannot start, the client's memory says so.
void lever_attached(Session& session);
// By the helper, once the session is no longer current. It may be unmapped when the lever has left.
void wake_lever();
// Behind a change of the objects. What is made while others are off joins at its next look, all at
// once: each request takes the lock of all GPUs.
void wake_idle_lever();
bool lever_inside(const Session& session);
// By the helper, now and then: a debugger's or checker's process is not stopped.
void look_for_tracer(int64_t now_ns);
void forget_lever();  // in a forked child

// Nothing of the process is stopped while one of these lives, for what ends waits for what runs.
// Waits until all goes on, for a second at most. Any thread, in no session or in one.
class HeldOn {
 public:
  explicit HeldOn(bool hold = true);
  ~HeldOn();
  HeldOn(const HeldOn&) = delete;
  HeldOn& operator=(const HeldOn&) = delete;

 private:
  const bool hold_;
};
// The same without an end: from exit() on.
void hold_on_at_exit();
// The same between the driver's lock of this process for a checkpoint, and its unlock.
void hold_on_for_checkpoint(bool hold);

}  // namespace heddle::shim
