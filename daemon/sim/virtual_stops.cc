// Clients that can be stopped in their middle (core/stops.h): what the shim's lever and the driver
// do with the core's orders. The driver carries out one call at a time, whoever's it is.
#include <algorithm>

#include "daemon/sim/virtual.h"

namespace heddle::sim {

using core::Event;
using core::EventKind;

void VirtualMachine::tell_stops(const ClientState& c, TimeNs took_ns) {
  Event e(EventKind::kStops, now_, c.id);
  e.stop = {ipc::kStopYes, c.stop.off, static_cast<float>(took_ns) / 1e3F};
  feed(e);
}

void VirtualMachine::order_stop(ClientState& c, ipc::StopOrder order) {
  c.stop_wanted = order;
  const size_t client = c.id - 1;
  if (std::find(levers_.begin(), levers_.end(), client) != levers_.end()) return;
  levers_.push_back(client);
  if (levers_.size() == 1) call_driver();
}

// For the first in line, as it is wanted by now; an order that was taken back takes no time.
void VirtualMachine::call_driver() {
  ClientState& c = clients_[levers_.front()];
  Alarm alarm;
  alarm.kind = Alarm::Kind::kDriver;
  alarm.thread = levers_.front();
  TimeNs over = now_;
  if (c.live && c.stop.off != c.stop_wanted.off) {
    const bool off = c.stop_wanted.off;
    off ? gpu_.stop(now_, c.gpu) : gpu_.go_on(now_, c.gpu);
    alarm.number = static_cast<uint64_t>(off ? facts::kStopCallNs : facts::kGoOnCallNs);
    over += static_cast<TimeNs>(alarm.number);
  }
  if (c.live && c.stop.slice_us != c.stop_wanted.slice_us) {
    gpu_.set_slice(now_, c.gpu, TimeNs{c.stop_wanted.slice_us} * 1'000);
    over += facts::kSliceCallNs;
  }
  c.stop = c.stop_wanted;
  set_alarm(over, alarm);
}

// The call is over. Who wants something else by now stands in line again.
void VirtualMachine::driver_returned(size_t client, TimeNs took_ns) {
  const ClientState& c = clients_[client];
  if (c.live) tell_stops(c, took_ns);
  levers_.pop_front();
  if (c.live && c.stop != c.stop_wanted) levers_.push_back(client);
  if (!levers_.empty()) call_driver();
}

}  // namespace heddle::sim
