// The lever stops this process's kernels, lets them go on, and sets its time slices, as the daemon
// orders (ipc/stop.h). It has a thread of its own, "heddle-stops". That thread calls nothing but
// ioctl, futex, fstat, the clock, and a write to the doorbell: any other call may wait for a thread
// that waits for the stopped kernels.
//
// A stop is a lease. The lever ends it when the daemon's heartbeat is stale, when the session ends,
// and while a HeldOn exists. It tries again for as long as the driver refuses.
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
    int64_t wait_ns;  // the longest time until the next look
    bool tell;        // the client's memory has news for the daemon
  };
  // Carries out the order in the control memory, and writes to the client's memory what it did.
  // nullptr: there is no session. One thread alone.
  Next look(const ipc::ControlMemory* control, ipc::ClientMemory* client, int64_t now_ns);

 private:
  bool carry_out(ipc::StopOrder order);
  bool change(ipc::StopOrder order, bool joined);
  bool unsure() const { return unsure_off_ || unsure_slice_; }

  ipc::StopOrder in_force_{};
  bool unsure_off_ = false, unsure_slice_ = false;  // the driver refused some of the requests
  uint32_t seen_ = 0;                               // the objects' version at the last change
  uint32_t refusals_ = 0;                           // in a row
  uint32_t took_us_ = 0;
};

// ---- the thread ---------------------------------------------------------------------------------

// Helper thread: the session is current. The first one starts the lever's thread, if the driver's
// requests are seen. If the thread cannot start, the client's memory says so.
void lever_attached(Session& session);
// Wakes the lever's thread. The helper calls it once a session is no longer current: the session
// may be unmapped when the lever has left it.
void wake_lever();
// Called after a change of the objects: wakes the lever unless channels are off. New channels then
// join at its next look, all at once, because each request takes a lock of all GPUs.
void wake_idle_lever();
bool lever_inside(const Session& session);
// Helper thread, at each of its looks: a process under a debugger or checker is not stopped.
void look_for_tracer(int64_t now_ns);
void forget_lever();  // in a forked child

// While one exists, none of the process's kernels is stopped: the end of a context waits for its
// running kernels. The constructor waits until all go on, for a second at most. Any thread, inside
// a session or outside.
class HeldOn {
 public:
  explicit HeldOn(bool hold = true);
  ~HeldOn();
  HeldOn(const HeldOn&) = delete;
  HeldOn& operator=(const HeldOn&) = delete;

 private:
  const bool hold_;
};
// The same from exit() on, for good.
void hold_on_at_exit();
// The same while the driver has locked this process for a checkpoint.
void hold_on_for_checkpoint(bool hold);

}  // namespace heddle::shim
