// A launch that stands at a gate on the GPU instead of asking: its thread goes on.
#include "shim/admission/gate.h"
#include "shim/gate/unit.h"

namespace heddle::shim {
namespace {

// Another process may wait for what this one records.
constinit std::atomic<bool> events_shared{false};

// In the thread's ring, for a launch's record and a few more.
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
  if (in.session().gates == nullptr || device < 0) return;
  const GateBook& gates = *in.session().gates;
  const uint32_t posted = gates.posted[device].load(std::memory_order_relaxed);
  const int64_t until = now_ns() + 2 * starvation_ns(in.control());  // the daemon's is sooner
  while (!is_released(gates, device, posted) && now_ns() < until) {
    poll_all(in);
    nap_at_gate(gates, device);
  }
}

// Where the daemon has nothing to choose but when, and the driver nothing to load first.
bool Turn::may_stand_at_gate(const Launch& launch) {
  const GateBook& gates = *in_.session().gates;
  gates_wanted_ = wanted(gates, stream_->device);
  if ((gates_wanted_ & ipc::kKernelsAsk) != 0 && !is_long_graph()) return false;
  if (gates.left.load(std::memory_order_relaxed) || launch.cooperative ||
      (window_us_ != ipc::kWindowGate && (gates_wanted_ & ipc::kGatesWanted) == 0) ||
      !sm_set_.empty() || special_.size.get() != 0 || (graph_ && special_.raised) ||
      kernel_.index >= ipc::kKernels || fails_closed() ||
      !stream_->markable.load(std::memory_order_relaxed) ||
      stream_->detoured.load(std::memory_order_relaxed) || (graph_ && shares_events())) {
    return false;
  }
  const ipc::KernelHint& hint = in_.hints(stream_->device).kernels[kernel_.index];
  return hint.predicted_us.load(std::memory_order_relaxed) > 0;
}

// Behind the gate of its thread's unit, or behind one of its own.
bool Turn::stand_at_gate(const Launch& launch) {
  if (!may_stand_at_gate(launch)) return false;
  GateBook& gates = *in_.session().gates;
  if (must_wait(gates) && !await_room(gates)) return false;
  if (!choose_gates_inside(launch)) return false;
  at_ns_ = now_ns();
  Unit& unit = in_.thread().unit;
  begins_unit_ = !goes_on(gates, *stream_, unit, predicted_us_, at_ns_);
  if (begins_unit_) {
    if (has_events(*stream_)) poll_stream(in_, *stream_);  // of launches that asked, or are timed
    const uint32_t ticket = put_gate(gates, *stream_, ref_);
    if (ticket == 0) return drop_twin(launch), false;
    unit = {stream_, ticket, 0, at_ns_};
    in_.thread().room_us = 0;  // what it knows of its window's room is without these
  }
  add_to_unit(gates, stream_->device, unit, predicted_us_);
  ask_seq_ = unit.ticket;
  return gated_ = true;
}

// Also for the ring: while gates stand open nothing else bounds it, and a launch that the daemon
// does not hear of ends the gates.
bool Turn::must_wait(const GateBook& gates) {
  return is_far_ahead(gates, stream_->device) || !has_room(in_);
}

// False: it goes another way. What was posted before goes then.
bool Turn::await_room(GateBook& gates) {
  const int64_t until = now_ns() + 2 * starvation_ns(in_.control());  // the daemon's is sooner
  do {
    if (now_ns() > until) return let_posted_go(gates), false;
    if (gates.left.load(std::memory_order_relaxed)) return false;
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

// A daemon that does not hear of it cannot let it go. It is woken for what it must let go: the
// first launch of a unit whose gate is closed. Either it sees that record after it closed the
// gate, or it is seen here that the gate is closed.
void Turn::post_gated(ipc::RecordFields fields) {
  fields.unmovable = true;
  GateBook& gates = *in_.session().gates;
  const auto& dropped = in_.block().dropped;
  const uint32_t before = dropped.load(std::memory_order_relaxed);
  in_.post_silently([&](ipc::RecordFields& record) { record = fields; });
  if (dropped.load(std::memory_order_relaxed) != before) let_posted_go(gates);
  in_.count(wire::Admission::ASK);
  if (!begins_unit_) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!is_released(gates, stream_->device, fields.ask_seq)) in_.ring(ipc::kWakeOnAsk);
}

}  // namespace heddle::shim
