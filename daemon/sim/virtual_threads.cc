// The threads of the simulated programs: what the shim does in each of them.
#include <algorithm>

#include "daemon/sim/virtual.h"

namespace heddle::sim {
namespace {

using core::Admission;
using core::Event;
using core::EventKind;
using core::Evidence;

// Of launches that did not ask, a kernel's first ones and then every so many carry a marker, so
// that its duration is learned.
constexpr uint64_t kMarkedFirst = 4, kMarkedEvery = 16;

// A thread that is far ahead of what is let go looks again this much later (shim/gate).
constexpr TimeNs kNapNs = 50'000;

double to_us(TimeNs ns) { return static_cast<double>(ns) / 1e3; }
TimeNs to_ns(double us) { return static_cast<TimeNs>(us * 1e3); }

}  // namespace

void VirtualMachine::proceed(size_t thread) {
  Thread& t = threads_[thread];
  if (t.naps) {
    t.naps = false;
    return call_launch(thread, t.pending, t.synchronize_next);
  }
  if (t.synchronize_next) {
    t.synchronize_next = false;
    synchronize(thread);
    return;
  }
  if (t.program != nullptr) {
    proceed_program(thread);
    return;
  }
  if (t.looping) {
    proceed_loop(thread);
    return;
  }
  if (t.calls.empty()) return;
  if (t.calls.front().at > now_) {
    wake_at(thread, t.calls.front().at);
    return;
  }
  const Call call = t.calls.front();
  t.calls.pop_front();
  call_launch(thread, call.launch, call.synchronize);
}

void VirtualMachine::proceed_loop(size_t thread) {
  Thread& t = threads_[thread];
  if (t.in_iteration == t.loop.launches) {  // its synchronizing call has returned
    t.in_iteration = 0;
    ++t.iterations;
    clients_[t.client].iteration_us.push_back(static_cast<float>(to_us(now_ - t.iteration_start)));
    if (t.loop.count != 0 && t.iterations == t.loop.count) {
      t.looping = false;
      return;
    }
    wake_at(thread, now_ + to_ns(t.loop.gap_us));
    return;
  }
  if (t.in_iteration == 0) t.iteration_start = now_;
  ++t.in_iteration;
  call_launch(thread, t.loop_launch, t.in_iteration == t.loop.launches);
}

void VirtualMachine::proceed_program(size_t thread) {
  const Step& step = threads_[thread].step;
  if (step.kind == Step::Kind::kSynchronize) {
    synchronize(thread);
  } else {
    call_launch(thread, {step.kernel, step.us}, false);
  }
}

// The program is asked at once for what comes next, so that its next launch is known ahead.
void VirtualMachine::go_on(size_t thread, TimeNs when) {
  Thread& t = threads_[thread];
  if (t.program != nullptr) {
    if (!t.program->next(when, t.step)) return;
    when += t.step.think_ns;
  }
  wake_at(thread, when);
}

void VirtualMachine::call_launch(size_t thread, const Launch& launch, bool sync) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  announce(c, launch.kernel);
  Kernel& k = c.kernels[launch.kernel];
  t.synchronize_next = sync;
  const bool at_gate = stands_at_gate(thread, k);
  if (at_gate && c.gates.ahead_us() > Gates::kAheadUs) {
    t.naps = true;
    t.pending = launch;
    return wake_at(thread, now_ + kNapNs);
  }
  if (t.program == nullptr) {
    LaunchRecord& record = records_.emplace_back();
    record.client = t.client;
    record.kernel = k.spec.kernel;
    record.called = now_;
    t.last_record = records_.size() - 1;
  }
  if (at_gate) {
    stand_at_gate(thread, launch);
  } else if (c.allowed == core::Allowance::kLeased || c.gates.is_open()) {
    submit(thread, launch, Admission::kLease, k.raised ? k.launch_priority : c.launch_priority,
           set_of(c, k));
  } else {
    return wait_at_ticket(thread, launch);
  }
  go_on(thread, now_ + costs_.launch_ns);
}

// As the shim finds it: in a set of its kernel's size, within the client's.
ipc::SmSet VirtualMachine::set_of(const ClientState& c, const Kernel& k) const {
  if (k.size.get() == 0 || k.size >= groups_.count) return c.cut_set;
  const ipc::SmSet within = c.cut_set.or_if_empty(c.spec.place.set);
  return ipc::ring_groups(k.size, c.ring, 0, within, groups_.count);
}

void VirtualMachine::wait_at_ticket(size_t thread, const Launch& launch) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  t.doing = Doing::kAtTicket;
  t.pending = launch;
  t.held_since = now_;
  mark(thread);
  AtGate one;
  one.thread = thread;
  one.in_thread = true;
  one.kernel = launch.kernel;
  one.us = launch.us;
  one.predicted_us = predict(c.kernels[launch.kernel]);
  one.seq = t.seq + 1;
  one.record = t.last_record;
  one.unit = c.gates.unit_of(thread, one.predicted_us, true);
  c.gates.post(one);
  tend_gates(t.client);
}

void VirtualMachine::hear_of_ticket(size_t thread, int priority, ipc::SmSet set) {
  threads_[thread].priority = priority;
  threads_[thread].set = set;
  Alarm alarm;
  alarm.kind = Alarm::Kind::kTicket;
  alarm.thread = thread;
  set_alarm(now_ + costs_.round_trip_ns, alarm);
}

void VirtualMachine::go_from_ticket(size_t thread) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  t.doing = Doing::kNothing;
  c.max_wait_us = std::max(c.max_wait_us, to_us(now_ - t.held_since));
  submit(thread, t.pending, Admission::kAsk, t.priority, t.set);
  go_on(thread, now_ + costs_.launch_ns);
}

// What runs before a held launch is what the core waits to hear about.
void VirtualMachine::mark(size_t thread) {
  Thread& t = threads_[thread];
  if (!managed_ || t.marked == t.seq) return;
  t.marked = t.seq;
  if (t.done < t.seq) {
    in_flight_[t.last_slot].marked = true;
  } else {
    set_marker(thread, t.seq, 0);
  }
}

void VirtualMachine::set_marker(size_t thread, uint64_t seq, float duration_us) {
  Alarm alarm;
  alarm.kind = Alarm::Kind::kMarker;
  alarm.thread = thread;
  alarm.number = seq;
  alarm.duration_us = duration_us;
  set_alarm(now_ + costs_.marker_ns, alarm);
}

void VirtualMachine::submit(size_t thread, const Launch& launch, Admission admission, int priority,
                            ipc::SmSet set) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  Kernel& k = c.kernels[launch.kernel];
  const bool leased = c.allowed == core::Allowance::kLeased && admission == Admission::kLease;
  const bool told = !leased || !sparse(c) || !k.quiet || !t.telling.may_skip(now_, c.waits);
  const bool asked = admission == Admission::kAsk;
  Event e = launch_event(EventKind::kPosted, t, launch.kernel);
  e.launch.admission = admission;
  if (told) ++k.launches;
  const bool sampled =
      told && (costs_.mark_all || k.launches <= kMarkedFirst || k.launches % kMarkedEvery == 0);
  if (!told) t.telling.skip(now_, to_ns(predict(k)));
  if (told && leased) tell(t, c, launch.kernel, e.launch);
  t.last_kernel = launch.kernel;
  const double predicted = predict(k);
  ++t.seq;
  c.outstanding_us += predicted;
  ++c.in_flight;
  const bool marked = managed_ && (sampled || asked);
  if (marked) t.marked = t.seq;
  to_gpu({thread, t.seq, t.last_record, predicted, 0, marked, {}}, k, launch.us, priority, set);
  if (!asked && told) feed(e);  // its ticket is accounted already
}

void VirtualMachine::to_gpu(const InFlight& flight, const Kernel& k, double us, int priority,
                            ipc::SmSet set) {
  Thread& t = threads_[flight.thread];
  uint32_t slot = static_cast<uint32_t>(in_flight_.size());
  if (in_flight_free_.empty()) {
    in_flight_.emplace_back();
  } else {
    slot = in_flight_free_.back();
    in_flight_free_.pop_back();
  }
  in_flight_[slot] = flight;
  t.last_slot = slot;
  Op op;
  op.kind = OpKind::kKernel;
  op.priority = priority;
  op.kernel = shape(k.spec, us, k.waves);
  op.place = set.empty() ? clients_[t.client].spec.place : Place{set, groups_.sms_of(set)};
  if (flight.record != kNoRecord) {
    records_[flight.record].sms = op.place.set.empty() ? config_.sm_total : op.place.sms;
    records_[flight.record].set = op.place.set;
  }
  op.tag = slot;
  if (witness_ != nullptr) witness_->let_go(now_, t.client, us, op.place.set, priority);
  gpu_.submit(now_, t.stream, op);
}

// As the server allows it (Reports::need_not_tell), but for unmeasured tasks too, which here all
// are: who records is told of everything.
bool VirtualMachine::sparse(const ClientState& c) const {
  const bool all = !managed_ || witness_ != nullptr || hears_stopping_ || costs_.mark_all;
  return !all && c.spec.place.set.empty() && c.cut_set.empty() && !c.sized;
}

void VirtualMachine::tell_row(const Thread& t, const ClientState& c, uint32_t last_kernel) {
  if (t.telling.untold() == 0) return;
  Event e(EventKind::kRow, now_, c.id);
  e.untold = {t.telling.untold(), last_kernel,
              static_cast<float>(to_us(t.telling.backlog_ns(now_, c.waits)))};
  feed(e);
}

void VirtualMachine::tell(Thread& t, ClientState& c, uint32_t kernel, core::LaunchBody& launch) {
  const auto predicted = [&](uint32_t k) { return to_ns(c.kernels[k].predicted_us); };
  if (t.seq > 0 && t.telling.says_of_last(c.waits)) {
    c.kernels[t.last_kernel].quiet =
        predicted(t.last_kernel) > 0 && t.telling.follows_closely(now_);
  }
  tell_row(t, c, core::kUnknownKernel);
  t.telling.tell(now_, predicted(kernel), sparse(c) && c.kernels[kernel].quiet, c.waits);
  launch.may_follow = static_cast<uint16_t>(t.telling.may_follow());
}

void VirtualMachine::synchronize(size_t thread) {
  Thread& t = threads_[thread];
  t.doing = Doing::kSynchronizing;
  Event e(EventKind::kWaiting, now_, clients_[t.client].id);
  e.done = {0, 0, t.index, Evidence::kNone};
  tell_row(t, clients_[t.client], t.last_kernel);
  t.telling.tell_wait();
  ++clients_[t.client].waits;
  feed(e);
  if (t.done == t.seq) synchronized(thread, 0);
}

void VirtualMachine::synchronized(size_t thread, float duration_us) {
  Thread& t = threads_[thread];
  t.doing = Doing::kNothing;
  Event e(EventKind::kCompleted, now_, clients_[t.client].id);
  e.done = {t.seq, duration_us, t.index, Evidence::kSynchronized};
  go_on(thread, now_);  // first: who decides now may know what comes next (next_launch)
  feed(e);
}

void VirtualMachine::on_notice(const Notice& notice) {
  InFlight& flight = in_flight_[notice.tag];
  if (flight.thread == 0) return;
  if (notice.kind == Notice::kStarted) {
    if (flight.started == 0) flight.started = notice.at;
    if (flight.record != kNoRecord && records_[flight.record].started == 0) {
      records_[flight.record].started = notice.at;
    }
    return;
  }
  const InFlight f = flight;
  flight.thread = 0;
  in_flight_free_.push_back(static_cast<uint32_t>(notice.tag));
  if (f.at_gate.unit != 0 && !over_at_gate(f)) return;
  if (f.record != kNoRecord) records_[f.record].ended = notice.at;
  Thread& t = threads_[f.thread];
  ClientState& c = clients_[t.client];
  t.done = f.seq;
  --c.in_flight;
  ++c.launches;
  c.outstanding_us = std::max(0.0, c.outstanding_us - f.predicted_us);
  const auto duration_us = static_cast<float>(to_us(notice.at - f.started));
  if (t.doing == Doing::kSynchronizing && t.done == t.seq) {
    synchronized(f.thread, duration_us);
  } else if (f.marked) {
    set_marker(f.thread, f.seq, duration_us);
  }
}

}  // namespace heddle::sim
