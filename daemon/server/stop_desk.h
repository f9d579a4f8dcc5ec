// One client's stops (ipc/stop.h): orders to its shim, and the shim's reports. Loop thread only.
// The reports come from a hostile client.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "daemon/core/event.h"
#include "ipc/layout.h"

namespace heddle::server {

// Why a client's kernels cannot be stopped; "": they can.
std::string_view stops_not_because(ipc::StopAble able);

class StopDesk {
 public:
  void order(ipc::ControlMemory& control, size_t device, ipc::StopOrder order);
  // News from its shim about the device. Not `allowed`: reports that it cannot be stopped. A change
  // of `able` is taken every 10 ms at most, because each one is an event of the core.
  std::optional<core::StopBody> look(ipc::ControlMemory& control, const ipc::ClientMemory& client,
                                     size_t device, bool allowed, core::TimeNs now);
  ipc::StopAble able(size_t device) const { return devices_[device].able; }
  bool any_able() const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [](const Device& d) { return d.able == ipc::kStopYes; });
  }

 private:
  struct Device {
    ipc::StopAble said = ipc::kStopNotSaid, able = ipc::kStopNotSaid;  // by its shim; to the core
    core::TimeNs deaf_until = 0;                                       // ignores changes until then
    ipc::StopOrder order;                                              // the newest order,
    uint32_t number = 0;                                               // its number,
    bool open = false;  // and whether its shim has yet to carry it out
    bool off = false;   // by the last order that its shim carried out
  };
  std::array<Device, ipc::kDevices> devices_;
  uint32_t orders_ = 0;
};

}  // namespace heddle::server
