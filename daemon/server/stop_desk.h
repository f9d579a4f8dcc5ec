// One client's stops (ipc/stop.h): orders to its shim, and what that says. Loop thread only; what
// is read is a hostile client's word.
#pragma once

#include <array>
#include <optional>

#include "daemon/core/event.h"
#include "ipc/layout.h"

namespace heddle::server {

class StopDesk {
 public:
  void order(ipc::ControlMemory& control, size_t device, ipc::StopOrder order);
  // What its shim says of the device and did not at the last call. Not `allowed`: that it cannot.
  std::optional<core::StopBody> look(ipc::ControlMemory& control, const ipc::ClientMemory& client,
                                     size_t device, bool allowed = true);
  ipc::StopAble able(size_t device) const { return devices_[device].able; }

 private:
  struct Device {
    ipc::StopAble able = ipc::kStopNotSaid;
    ipc::StopOrder order;  // the newest,
    uint32_t number = 0;   // its number,
    bool open = false;     // and its shim did not carry it out yet
    bool off = false;      // as it carried out the last
  };
  std::array<Device, ipc::kDevices> devices_;
  uint32_t orders_ = 0;
};

}  // namespace heddle::server
