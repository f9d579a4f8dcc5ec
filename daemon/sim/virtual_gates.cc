// Launches with tickets, at gates on the simulated GPU or in their threads: what the shim and the
// server do with them.
#include <algorithm>
#include <utility>

#include "daemon/sim/virtual.h"

namespace heddle::sim {
namespace {

using core::Event;
using core::EventKind;

}  // namespace

// One of a kernel that ran before, or behind others there, which it would overtake.
bool VirtualMachine::stands_at_gate(size_t thread, const Kernel& kernel) const {
  const Thread& t = threads_[thread];
  const ClientState& c = clients_[t.client];
  if (!c.spec.gates || !managed_) return false;
  const bool is_long_graph = kernel.spec.nodes != 0 && Gates::pieces_of(predict(kernel)) > 1;
  const bool asks = c.kernels_ask && !is_long_graph;
  if (c.allowed != core::Allowance::kLeased && !asks && kernel.predicted_us > 0) return true;
  const auto& waiting = c.gates.waiting();
  return t.in_unit > 0 || std::any_of(waiting.begin(), waiting.end(), [=](const AtGate& launch) {
           return launch.thread == thread;
         });
}

void VirtualMachine::stand_at_gate(size_t thread, const Launch& launch) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  const Kernel& k = c.kernels[launch.kernel];
  const bool graph = k.spec.nodes != 0;
  AtGate one;
  one.thread = thread;
  one.kernel = launch.kernel;
  one.us = launch.us;
  one.predicted_us = predict(k);
  one.sm_set = set_of(c, k);
  one.seq = t.marked = ++t.seq;
  one.record = t.last_record;
  one.unit = c.gates.unit_of(thread, one.predicted_us, graph);
  one.pieces = one.left = graph && c.gates_inside ? Gates::pieces_of(one.predicted_us) : 1;
  c.outstanding_us += one.predicted_us;
  ++c.in_flight;
  c.gates.post(one);
  tend_gates(t.client);
}

Event VirtualMachine::gate_event(EventKind kind, const AtGate& launch) const {
  Event e = launch_event(kind, threads_[launch.thread], launch.kernel);
  e.launch.stream_seq = launch.seq;
  e.launch.ask_seq = launch.unit;
  e.launch.admission = launch.in_thread ? core::Admission::kAsk : core::Admission::kGated;
  e.launch.may_follow = static_cast<uint16_t>(launch.pieces - 1);
  e.launch.unmovable = !launch.in_thread && launch.sm_set.empty();
  return e;
}

void VirtualMachine::set_gates(ClientState& c) {
  const bool open = c.allowed != core::Allowance::kGated;
  c.gates.close();
  if (open) c.gates.open();
  Alarm alarm;
  alarm.kind = Alarm::Kind::kGates;
  alarm.thread = c.id - 1;
  set_alarm(open ? now_ + costs_.gate_ns : now_, alarm);
}

void VirtualMachine::grant_at_gate(ClientState& c, const core::Decision& d) {
  if (d.ask_seq != c.gates.asked()) return;
  const AtGate first = c.gates.waiting().front();
  if (first.record != kNoRecord) {
    records_[first.record].asked = true;
    records_[first.record].granted_by = d.decider;
  }
  c.max_wait_us = std::max(c.max_wait_us, static_cast<double>(now_ - c.gate_asked_at) / 1e3);
  c.gates.granted(first.pieces > 1);
  Alarm alarm;
  alarm.kind = Alarm::Kind::kGates;
  alarm.thread = c.id - 1;
  if (first.in_thread) {
    c.gates.waiting().pop_front();
    hear_of_ticket(first.thread, d.launch_priority, d.sm_set);
  }
  set_alarm(first.in_thread ? now_ : now_ + costs_.gate_ns, alarm);
}

void VirtualMachine::tend_gates(size_t client) {
  ClientState& c = clients_[client];
  if (!c.live) return;
  auto& waiting = c.gates.waiting();
  for (size_t slot = 0; !c.gates.running() && slot < in_flight_.size(); ++slot) {
    AtGate& launch = in_flight_[slot].at_gate;
    const bool own = in_flight_[slot].thread != 0 &&
                     threads_[in_flight_[slot].thread].client == client && launch.unit != 0;
    if (own && launch.left > 0 && !launch.recalled) stop_inside(c, launch);
  }
  if (c.gates.is_open()) withdraw_at_gate(c);
  std::vector<size_t> held;  // threads: a stream runs in order
  for (size_t i = 0; i < waiting.size() && held.size() < c.threads.size();) {
    const AtGate launch = waiting[i];
    const Thread& t = threads_[launch.thread];
    const bool behind = std::find(held.begin(), held.end(), launch.thread) != held.end();
    const bool busy =
        !launch.in_thread && t.in_unit > 0 && (t.unit != launch.unit || launch.stopped());
    if (busy && !behind) held.push_back(launch.thread);
    if (busy || behind) {
      ++i;
      continue;
    }
    if (!c.gates.lets(launch)) break;
    waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(i));
    if (!launch.in_thread) {
      begin(c, launch);
      continue;
    }
    const Kernel& k = c.kernels[launch.kernel];
    hear_of_ticket(launch.thread, k.raised ? k.launch_priority : c.launch_priority, set_of(c, k));
    feed(gate_event(EventKind::kPosted, launch));
  }
  if (!c.gates.must_ask()) return;
  AtGate& oldest = waiting.front();
  // Closed between its grant and its way to the GPU.
  if (oldest.asked) feed(gate_event(EventKind::kRecalled, oldest));
  oldest.asked = true;
  c.gates.asks(oldest.unit);
  c.gate_asked_at = now_;
  ++c.asks;
  Event e = gate_event(EventKind::kAsked, oldest);
  e.launch.thread = core::kTicketThreads;
  if (oldest.pieces == 1) e.launch.unit_us = static_cast<float>(c.gates.unit_us(oldest.unit));
  feed(e);
}

void VirtualMachine::begin(ClientState& c, AtGate launch) {
  Thread& t = threads_[launch.thread];
  t.unit = launch.unit;
  ++t.in_unit;
  --launch.left;
  const bool told = std::exchange(launch.asked, false);
  const Kernel& k = c.kernels[launch.kernel];
  to_gpu({launch.thread, launch.seq, launch.record, launch.predicted_us, 0, true, launch}, k,
         launch.us / launch.pieces, c.launch_priority, launch.sm_set);
  if (!told) feed(gate_event(EventKind::kPosted, launch));
}

void VirtualMachine::withdraw_at_gate(ClientState& c) {
  for (AtGate& launch : c.gates.waiting()) {
    if (c.gates.asked() == 0 || !std::exchange(launch.asked, false)) continue;
    c.gates.asks(0);
    Event e = gate_event(EventKind::kWithdrawn, launch);
    e.launch.thread = core::kTicketThreads;
    return feed(e);
  }
}

// The piece that runs is its last for now, and its rest goes before all that waits.
void VirtualMachine::stop_inside(ClientState& c, AtGate& launch) {
  withdraw_at_gate(c);
  launch.recalled = true;
  AtGate rest = launch;
  rest.recalled = false;
  c.gates.stop(rest);
  feed(gate_event(EventKind::kRecalled, rest));
}

bool VirtualMachine::over_at_gate(const InFlight& f) {
  Thread& t = threads_[f.thread];
  ClientState& c = clients_[t.client];
  const bool more = f.at_gate.left > 0 && !f.at_gate.recalled;
  if (more && c.gates.running()) {
    InFlight next = f;
    --next.at_gate.left;
    const Kernel& k = c.kernels[f.at_gate.kernel];
    to_gpu(next, k, f.at_gate.us / f.at_gate.pieces, c.launch_priority, f.at_gate.sm_set);
    return false;
  }
  --t.in_unit;
  const bool over = f.at_gate.left == 0;
  if (over) c.gates.done(f.at_gate);
  AtGate launch = f.at_gate;
  if (more) stop_inside(c, launch);
  Alarm alarm;
  alarm.kind = Alarm::Kind::kGates;
  alarm.thread = t.client;
  set_alarm(now_, alarm);
  return over;
}

}  // namespace heddle::sim
