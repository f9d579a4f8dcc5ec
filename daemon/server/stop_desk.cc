#include "daemon/server/stop_desk.h"

#include <algorithm>

#include "ipc/socket.h"

namespace heddle::server {

std::string_view stops_not_because(ipc::StopAble able) {
  switch (able) {
    case ipc::kStopNotSaid:
      return "its shim is older, has not looked yet, or has HEDDLE_STOPS=0";
    case ipc::kStopNoChannels:
      return "its channels were not seen: it has none yet, or the driver was there before the shim";
    case ipc::kStopMps:
      return "under MPS all clients of the server would stand";
    case ipc::kStopUnknownClass:
      return "it has a channel of a kind that this heddle does not know";
    case ipc::kStopShared:
      return "it shares channels with another process";
    case ipc::kStopTooMany:
      return "it has more channels than one call takes";
    case ipc::kStopOwnUse:
      return "it switches channels by itself";
    case ipc::kStopSeveralGpus:
      return "it works on several GPUs";
    case ipc::kStopRefused:
      return "the driver refused";
    case ipc::kStopTraced:
      return "a debugger or a checker holds it";
    case ipc::kStopNoThread:
      return "its shim could start no thread";
    case ipc::kStopNotAsked:
      return "this GPU cannot, was not asked, or [gpu] stops is \"off\" (heddle doctor)";
    case ipc::kStopYes:
    case ipc::kStopAbleCount:
      break;
  }
  return "";
}

void StopDesk::order(ipc::ControlMemory& control, size_t device, ipc::StopOrder order) {
  Device& d = devices_[device];
  d.order = order;
  d.number = ++orders_;
  d.open = true;
  control.devices[device].stop.store(ipc::pack_stop(order), std::memory_order_relaxed);
  control.stop_order.store(orders_, std::memory_order_release);
  ipc::futex_wake(&control.stop_order);
}

std::optional<core::StopBody> StopDesk::look(ipc::ControlMemory& control,
                                             const ipc::ClientMemory& client, size_t device,
                                             bool allowed, core::TimeNs now) {
  constexpr uint32_t kCallUsMost = 100'000;  // no driver call takes longer
  constexpr core::TimeNs kDeafNs = 10'000'000;
  const ipc::ThreadBlock& block = client.threads[device];
  Device& d = devices_[device];
  // A value that means nothing is ignored.
  const uint32_t word = block.stop_able.load(std::memory_order_relaxed);
  if (word < ipc::kStopAbleCount && word != d.said && now >= d.deaf_until) {
    d.said = static_cast<ipc::StopAble>(word);
    d.deaf_until = now + kDeafNs;
  }
  const ipc::StopAble able = allowed || d.said == ipc::kStopNotSaid ? d.said : ipc::kStopNotAsked;
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
    if (d.order != ipc::StopOrder{}) order(control, device, {});  // in case it becomes able again
  }
  return core::StopBody{able, d.off, took_us};
}

}  // namespace heddle::server
