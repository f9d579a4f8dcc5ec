// Launches of one client that stand at gates on the GPU (ipc/gate.h): posted with a ticket, and not
// asked for.
//
// The core sees the oldest one of each device as an ask, of a thread that no client has. Its grant
// lets the launches up to its ticket go, and the next one is the oldest. So what holds for asks
// holds for these: verdicts, starvation from the moment of becoming the oldest, time from the
// grant. Loop thread only; what it is told comes from a hostile client.
#pragma once

#include <array>
#include <deque>
#include <optional>

#include "daemon/server/intake.h"
#include "ipc/gate.h"

namespace heddle::server {

class GateQueue {
 public:
  static constexpr size_t kMost = 1024;  // of a device; the driver's queue of a stream holds fewer

  // A checked record of a launch at a gate. False: there are too many.
  bool add(const Claim& claim);

  // What the core is to be told next; none: it knows the oldest of each device. `open`: the gates
  // stand open, and the launches go without its word.
  std::optional<Claim> next(core::TimeNs now, bool open);

  // The core's word for the oldest of that thread.
  void release(uint16_t thread, ipc::GatePage& page);

  void open(ipc::GatePage& page);
  void close(ipc::GatePage& page);  // behind all that was let go

  static bool is_thread(uint16_t thread) {
    return thread >= ipc::kThreads && thread < ipc::kThreads + ipc::kDevices;
  }

 private:
  struct Device {
    std::deque<Claim> waiting;  // by ticket; the first may be `asked`
    bool asked = false;
    uint32_t newest = 0;    // ticket
    uint32_t released = 0;  // up to here
  };
  std::array<Device, ipc::kDevices> devices_;
};

}  // namespace heddle::server
