// One client's stops (ipc/stop.h): orders to its shim, and what that says. Loop thread only; what
// is read is a hostile client's word.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "daemon/core/event.h"
#include "ipc/layout.h"

namespace heddle::server {

// Why a client's kernels cannot be stopped, "" if they can.
std::string_view stops_not_because(ipc::StopAble able);

class StopDesk {
 public:
  void order(ipc::ControlMemory& control, size_t device, ipc::StopOrder order);
  // What its shim says of the device and did not at the last call. Not `allowed`: that it cannot.
  // Whether it can is heard every 10 ms at most: each time is an event of the core.
  std::optional<core::StopBody> look(ipc::ControlMemory& control, const ipc::ClientMemory& client,
                                     size_t device, bool allowed, core::TimeNs now);
  ipc::StopAble able(size_t device) const { return devices_[device].able; }
  bool any_able() const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [](const Device& d) { return d.able == ipc::kStopYes; });
  }

 private:
  struct Device {
    ipc::StopAble said = ipc::kStopNotSaid, able = ipc::kStopNotSaid;  // by its shim; as told
    core::TimeNs deaf_until = 0;                                       // to another of these
    ipc::StopOrder order;                                              // the newest,
    uint32_t number = 0;                                               // its number,
    bool open = false;  // and its shim did not carry it out yet
    bool off = false;   // as it carried out the last
  };
  std::array<Device, ipc::kDevices> devices_;
  uint32_t orders_ = 0;
};

}  // namespace heddle::server
