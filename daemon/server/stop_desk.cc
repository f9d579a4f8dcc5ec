#include "daemon/server/stop_desk.h"

#include <algorithm>

#include "ipc/socket.h"

namespace heddle::server {

void StopDesk::order(ipc::ControlMemory& control, size_t device, ipc::StopOrder order) {
  Device& d = devices_[device];
  d.order = order;
  d.number = ++orders_;
  d.open = true;
  control.windows[device].stop.store(ipc::pack_stop(order), std::memory_order_relaxed);
  control.stop_order.store(orders_, std::memory_order_release);
  ipc::futex_wake(&control.stop_order);
}

std::optional<core::StopBody> StopDesk::look(ipc::ControlMemory& control,
                                             const ipc::ClientMemory& client, size_t device,
                                             bool allowed) {
  constexpr uint32_t kCallUsMost = 100'000;  // longer is no driver's call
  const ipc::ThreadBlock& block = client.threads[device];
  Device& d = devices_[device];
  // One that means nothing is not said.
  const uint32_t word = block.stop_able.load(std::memory_order_relaxed);
  const auto said = word < ipc::kStopAbleCount ? static_cast<ipc::StopAble>(word) : d.able;
  const ipc::StopAble able = allowed || said == ipc::kStopNotSaid ? said : ipc::kStopNotAsked;
  const uint32_t newest = block.stop_done.load(std::memory_order_acquire);
  const bool done = d.open && static_cast<int32_t>(newest - d.number) >= 0;
  if (able == d.able && !done) return std::nullopt;
  d.able = able;
  float took_us = 0;
  if (done) {
    d.open = false;
    if (d.off != d.order.off) {
      const uint32_t us = block.stop_us.load(std::memory_order_relaxed);
      took_us = static_cast<float>(std::min(us, kCallUsMost));
    }
    d.off = d.order.off;
  }
  if (able != ipc::kStopYes) {
    d.off = false;
    if (d.order != ipc::StopOrder{}) order(control, device, {});  // should it be able again
  }
  return core::StopBody{able, d.off, took_us};
}

}  // namespace heddle::server
