// The two ways of a launch with a ticket. Its stream waits at a gate on the GPU, and the thread
// goes on; or the thread itself waits.
#include <algorithm>

#include "ipc/slot.h"
#include "ipc/socket.h"
#include "shim/admission/gate.h"
#include "shim/admission/rows.h"
#include "shim/evidence/watch.h"
#include "shim/gate/page.h"
#include "shim/gate/unit.h"

namespace heddle::shim {
namespace {

using wire::Admission;

// The process shares events over IPC: another process may wait for an event that it records.
constinit std::atomic<bool> events_shared{false};

// A waiting thread polls the process's events at this pace while it spins. It sleeps for kNapBusyNs
// between polls while events are outstanding, and for kNapIdleNs otherwise.
// Measured on an H200: a thread that spins on cuEventQuery is late by 0.5 ms or more one time in
// twenty. A thread that polls every 20 µs sees 99 of 100 events within 26 µs.
constexpr int64_t kPollNs = 20'000;
// The first poll comes sooner: the work before the launch has often ended by then.
constexpr int64_t kFirstPollNs = 4'000;
constexpr int64_t kNapBusyNs = 60'000;
constexpr int64_t kNapIdleNs = 2'000'000;
constexpr int64_t kForeverNs = INT64_MAX / 2;

// A wait of at least this share of the starvation bound counts as starved. The daemon's own timer
// may end the wait a little before the shim's does.
constexpr double kStarvedShare = 0.9;

// Whether the thread's ring has room for a launch's record and a few more.
bool has_room(Inside& in) {
  constexpr uint32_t kMost = ipc::kRingRecords - 16;
  const uint32_t head = in.block().ring_head.load(std::memory_order_relaxed);
  uint32_t& tail_seen = in.thread().tail_seen;
  if (head - tail_seen < kMost) return true;
  tail_seen = in.grant().ring_tail.load(std::memory_order_acquire);
  return head - tail_seen < kMost;
}

}  // namespace

void note_shared_event() {
  events_shared.store(true, std::memory_order_relaxed);
  let_all_posted_go();
}

bool shares_events() { return events_shared.load(std::memory_order_relaxed); }

void note_host_function(StreamRef stream) {
  if (!any_gates() || (anything_captures() && stream_captures(stream))) return;
  note_stream_wait(stream);
  if (Inside in; in) {
    const StreamSlot* const slot = known_stream(in.thread(), stream);
    if (slot != nullptr) await_release(in, slot->device);
  }
  let_all_posted_go();
}

void await_release(Inside& in, int device) {
  const GateBook& gates = *in.session().gates;
  if (device < 0 || !gates.on_gpu) return;
  const uint32_t posted = gates.posted[device].load(std::memory_order_relaxed);
  const int64_t until = now_ns() + 2 * starvation_ns(in.control());  // the daemon's is sooner
  while (!is_released(gates, device, posted) && now_ns() < until) {
    if (in.session().detached.load(std::memory_order_relaxed)) return;
    poll_all(in);
    nap_at_gate(gates, device);
  }
}

// A launch may stand at a gate if its stream can wait and its kernel has a prediction: such a
// kernel ran before, so the driver has no code to load. A launch that makes a detour to an SM set
// waits in the application's stream, not in the lane.
bool Turn::may_stand_at_gate(const Launch& launch) {
  const GateBook& gates = *in_.session().gates;
  wanted_ = wanted(gates, stream_->device);
  if ((wanted_ & ipc::kKernelsAsk) != 0 && !is_long_graph()) return false;
  if (!gates.on_gpu || gates.left.load(std::memory_order_relaxed) || launch.cooperative ||
      (graph_ && special_.raised) || kernel_.index >= ipc::kKernels ||
      !stream_->markable.load(std::memory_order_relaxed) || (graph_ && shares_events())) {
    return false;
  }
  const ipc::KernelHint& hint = in_.hints(stream_->device).kernels[kernel_.index];
  return hint.predicted_us.load(std::memory_order_relaxed) > 0;
}

// Puts the launch behind the gate of its thread's unit, or behind a new gate. False: the thread
// must wait instead.
bool Turn::stand_at_gate(const Launch& launch) {
  if (!may_stand_at_gate(launch)) return false;
  GateBook& gates = *in_.session().gates;
  if (must_wait(gates) && !await_room(gates)) return false;
  if (!choose_gates_inside(launch)) return false;
  at_ns_ = now_ns();
  Unit& unit = in_.thread().unit;
  begins_unit_ = !goes_on(gates, *stream_, unit, predicted_us_, at_ns_);
  if (begins_unit_) {
    if (has_events(*stream_)) poll_stream(in_, *stream_);  // left by launches without a gate
    const uint32_t ticket = put_gate(gates, *stream_, ref_);
    if (ticket == 0) return drop_twin(launch), false;
    unit = {stream_, ticket, 0, at_ns_};
  }
  add_to_unit(gates, stream_->device, unit, predicted_us_);
  ask_seq_ = unit.ticket;
  return gated_ = true;
}

// A full ring makes the thread wait, too. While gates stand open nothing else bounds the ring, and
// a launch whose record is dropped forces everything posted to be let go (post_gated).
bool Turn::must_wait(const GateBook& gates) {
  return is_far_ahead(gates, stream_->device) || !has_room(in_);
}

// Naps until the launch may be posted. False: it cannot stand at a gate. After twice the
// starvation bound this lets everything go that was posted before.
bool Turn::await_room(GateBook& gates) {
  const int64_t until = now_ns() + 2 * starvation_ns(in_.control());  // the daemon's is sooner
  do {
    const int64_t now = now_ns();
    if (now > until) return let_posted_go(gates), false;
    if (in_.session().detached.load(std::memory_order_relaxed)) return false;
    if (!fails_closed() && is_stale(in_.control(), now)) return false;
    if (has_room(in_)) {
      poll_all(in_);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      in_.ring(ipc::kWakeOnAsk);
    }
    nap_at_gate(gates, stream_->device);
  } while (must_wait(gates));
  return true;
}

// Posts the launch's record. If the ring drops it, the daemon never hears of the ticket and cannot
// let it go: so the shim does. The daemon is woken only for the first launch of a unit whose gate
// is closed. After the fence between record and gate, either the daemon, which has just closed the
// gate, sees the record, or this thread sees that the gate is closed.
void Turn::post_gated(ipc::RecordFields fields) {
  GateBook& gates = *in_.session().gates;
  const auto& dropped = in_.block().dropped;
  const uint32_t before = dropped.load(std::memory_order_relaxed);
  in_.post_silently([&](ipc::RecordFields& record) { record = fields; });
  if (dropped.load(std::memory_order_relaxed) != before) let_posted_go(gates);
  if (!begins_unit_) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (fails_closed() || !is_released(gates, stream_->device, fields.ask_seq)) {
    in_.ring(ipc::kWakeOnAsk);
  }
}

// The thread waits for its ticket, and the daemon's answer may say where the launch runs.
void Turn::wait_at_ticket(const Launch& launch) {
  GateBook& gates = *in_.session().gates;
  in_.thread().unit = {};
  if (seq_ == 0) take_number();
  telling.stop();
  if (must_wait(gates)) place_marker(in_, *stream_, ref_);
  while (must_wait(gates) && !await_room(gates)) {
    if (!fails_closed() || in_.session().detached.load(std::memory_order_relaxed)) break;
  }
  ask_seq_ = draw_ticket(gates, stream_->device);
  HEDDLE_FAULT_POINT("ticket: drawn, not told");
  begins_unit_ = true;
  ipc::RecordFields fields = record(Admission::ASK);
  fields.unmovable = !can_move(launch);
  post_gated(fields);
  HEDDLE_FAULT_POINT("ticket: told");
  // The daemon waits for the end of the work that is before this launch in the stream.
  place_marker(in_, *stream_, ref_);
  const Admission admission = await_ticket();
  // The launch starved while another thread of the process was in a synchronizing call all the
  // time. That thread may be waiting for this very launch. So launches into this stream are not
  // held until that call is over.
  const auto waited_ns = static_cast<double>(now_ns() - at_ns_);
  if (waited_ns > kStarvedShare * static_cast<double>(starvation_ns(in_.control())) &&
      anyone_blocked(at_ns_)) {
    stream_->spared_ns.store(at_ns_, std::memory_order_relaxed);
  }
  if (admission == Admission::SELF_STALE && fails_closed()) return in_.leave();
  if (admission != Admission::ASK) {
    HEDDLE_FAULT_POINT("ticket: given up, not gone");
    let_ticket_go(gates, stream_->device, ask_seq_);
  }
  HEDDLE_FAULT_POINT("ticket: gone, not launched");
  in_.count(admission);
}

uint32_t Turn::slot_key() const {
  return ipc::slot_key(ask_seq_, static_cast<uint32_t>(stream_->device));
}

// Waits until the daemon lets the ticket go, or until the launch must go without that. Returns why.
Admission Turn::await_ticket() {
  const ipc::ControlMemory::Header& header = in_.control().header;
  const GateBook& gates = *in_.session().gates;
  const ipc::GrantSlot& grant = in_.grant();
  const uint32_t key = slot_key();
  const bool closed = fails_closed();  // such a launch goes only if its own slot is granted
  const int64_t bound_ns = closed ? kForeverNs : starvation_ns(in_.control());
  const int64_t spin_until =
      at_ns_ + int64_t{header.spin_us.load(std::memory_order_relaxed)} * 1'000;
  int64_t next_poll = at_ns_ + kFirstPollNs;
  bool busy = true;
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (ipc::slot_granted(grant, key)) return Admission::ASK;
      __builtin_ia32_pause();
    }
    if (!closed && is_released(gates, stream_->device, ask_seq_)) {
      std::atomic_thread_fence(std::memory_order_acquire);  // the daemon writes the slot first
      return Admission::ASK;
    }
    const int64_t now = now_ns();
    if (in_.session().detached.load(std::memory_order_relaxed)) return Admission::SELF_STALE;
    if (header.bypass.load(std::memory_order_relaxed) != 0) return Admission::BYPASS;
    if (now - at_ns_ >= bound_ns) return Admission::SELF_STARVED;
    if (!closed && is_stale(in_.control(), now)) return Admission::SELF_STALE;
    if (now >= next_poll) {
      busy = poll_all(in_);
      next_poll = now + kPollNs;
    }
    if (now < spin_until) continue;
    HEDDLE_FAULT_POINT("gate: about to sleep");
    ipc::slot_sleep(in_.block(), grant, key, [&](uint32_t seen) {
      if (in_.session().detached.load(std::memory_order_seq_cst)) return;
      const int64_t nap = busy ? kNapBusyNs : kNapIdleNs;
      ipc::futex_wait(&grant.granted, seen, std::min(nap, at_ns_ + bound_ns - now));
    });
  }
}

}  // namespace heddle::shim
