#include "shim/admission/gate.h"

#include <algorithm>

#include "ipc/slot.h"
#include "ipc/socket.h"
#include "shim/admission/rows.h"
#include "shim/evidence/watch.h"
#include "shim/gate/opener.h"
#include "shim/gate/unit.h"

namespace heddle::shim {
namespace {

using wire::Admission;

// How often a fail-closed launch looks for a daemon.
constexpr int64_t kAwaitNs = 5'000'000;

// Kernels that ran on the whole device after an SM set refused them.
constinit KernelSet unmovable;

// Kernels after which the host paused last time: a gap worth filling may follow. A kernel that is
// also followed closely by another launch leaves this set again (worth_marking).
constinit KernelSet paused;
constexpr int64_t kPauseNs = 50'000;
// A queue of at least this predicted length is worth a marker. A marker, and waking the thread that
// polls it, cost some microseconds: about the error of the prediction of a queue this long.
constexpr int64_t kWorthNs = 100'000;

constinit std::atomic<bool> has_peers{false};

// Launches that go unobserved, in a row or leased do not take the stream's turn. From now on the
// stream's launches take none of those ways.
void begin_detours(StreamSlot& stream) {
  if (stream.detoured.load(std::memory_order_relaxed)) return;
  stream.detoured.store(true, std::memory_order_seq_cst);
  any_detours.store(true, std::memory_order_seq_cst);
}

}  // namespace

constinit KernelSet unraised;

bool is_stale(const ipc::ControlMemory& control, int64_t now) {
  const int64_t beat = control.header.heartbeat_ns.load(std::memory_order_relaxed);
  return beat != 0 && now - beat > ipc::kHeartbeatStaleNs;
}

int64_t starvation_ns(const ipc::ControlMemory& control) {
  constexpr uint32_t kStarvationMs = 1000;  // unless the daemon says otherwise
  const uint32_t ms = control.header.starvation_ms.load(std::memory_order_relaxed);
  return int64_t{ms != 0 ? ms : kStarvationMs} * 1'000'000;
}

[[gnu::hot]] Turn::Turn(const Launch& launch) : ref_(launch.stream), graph_(launch.graph) {
  await_memory();
  do {
    if (!in_ && !await_daemon(launch)) return;
    ipc::ring_prefetch(in_.block().ring_head, in_.block().ring);
    if (anything_captures() && stream_captures(launch.stream)) {
      in_.count(Admission::SELF_CAPTURING);
      give_up();
      return;
    }
    stream_ = &stream_slot(in_, launch.stream);
    if (stream_->device < 0 || stream_->device >= static_cast<int>(ipc::kDevices)) {
      in_.count(Admission::SELF_POOL);
      give_up();
      return;
    }
    admit(launch);
  } while (!in_);  // a fail-closed launch left the session of a daemon that went away
  const uint32_t count = ++in_.thread().launches;
  // A graph with gates inside is not timed: it may stand still in the middle.
  if ((wants_measure(count) || is_timed(count)) && !quiet_ && twin_.gates == 0) [[unlikely]] {
    pair_ = begin_pair(in_, *stream_, target(), seq_, kernel_.index);
  }
  // The shim remembers by kernel index that the driver refused a priority. A kernel without an
  // index gets no priority: the driver might refuse it at every launch.
  if (priority_ != 0 &&
      (!launch.may_raise || kernel_.index >= ipc::kKernels || unraised.has(kernel_.index))) {
    priority_ = 0;
  }
  HEDDLE_FAULT_POINT("gate: admitted, not launched");
}

// Enters a session. Where there is none, a launch of a fail-closed client waits for one, unless it
// is exempt or captured. True: the thread is inside a session. False: the launch goes unmanaged.
bool Turn::await_daemon(const Launch& launch) {
  for (;;) {
    const Inside::Entry entry = in_.enter_again();
    if (entry == Inside::Entry::kIn) return true;
    if (entry == Inside::Entry::kNoSlot) count_without_slot();
    const auto is_exempt = [&] {
      return launch.exempt || (launch.cooperative && has_peers.load(std::memory_order_relaxed)) ||
             signals(launch.stream) || is_collective(launch.handle, launch.shape, launch.graph);
    };
    if (!fails_closed() || entry != Inside::Entry::kNoSession ||
        (anything_captures() && stream_captures(launch.stream)) || is_exempt()) {
      // Launches of other threads may stand at gates in the same stream, before this one.
      if (entry == Inside::Entry::kNoSlot && any_gates() && is_exempt()) let_all_posted_go();
      give_up();
      return false;
    }
    ipc::futex_wait(&guard().fail_closed, 1, kAwaitNs);
  }
}

bool Turn::may_move(const Launch& launch) const {
  return launch.may_move && !quiet_ && !unmovable.has(kernel_.index);
}

bool Turn::can_move(const Launch& launch) const {
  const bool may =
      graph_ ? may_have_twin(static_cast<CUgraphExec>(launch.handle)) : may_move(launch);
  return may && has_lanes(*stream_) && !anything_captures();
}

// Chooses the twin of a graph, or makes the detour of a kernel to its SM set where it can move.
[[gnu::always_inline]] inline void Turn::place(const Launch& launch) {
  if (!sm_set_.empty() && !graph_) [[unlikely]]
    begin_detours(*stream_);
  if (stream_->detoured.load(std::memory_order_relaxed)) [[unlikely]]
    turn_.emplace(stream_->turn);
  if (graph_) {
    choose_twin(launch);
  } else if (!sm_set_.empty() && may_move(launch)) [[unlikely]] {
    detour_.emplace(in_, *stream_, ref_, sm_set_);
  }
}

bool Turn::is_placed() const {
  // False also if a larger member of the family stands in for the set: the launch runs elsewhere.
  return (lane() != nullptr || (twin() != nullptr && !sm_set_.empty())) &&
         member_for(stream_->device, sm_set_) == sm_set_;
}

void Turn::stay() {
  if (pair_ >= 0) end_pair(in_, *stream_, target(), pair_, false);
  pair_ = -1;
  detour_.reset();
}

void Turn::stayed() { unmovable.add(kernel_.index); }

void Turn::priority_refused() {
  unraised.add(kernel_.index);
  in_.count(&ipc::ClientMemory::Counters::marker_errors);
}

// The launch goes as it is, unmanaged.
void Turn::give_up() {
  // A launch that waited under a daemon which went away already has a number.
  if (seq_ != 0) in_.thread().in_hand.store(0, std::memory_order_release);
  stream_ = nullptr;
  in_.leave();
}

// The daemon has not timed this kernel, or wants it timed again.
bool Turn::wants_measure(uint32_t count) const {
  if (kernel_.index >= ipc::kKernels) return false;
  const ipc::KernelHint& hint = in_.hints(stream_->device).kernels[kernel_.index];
  return hint.predicted_us.load(std::memory_order_relaxed) == 0 ||
         is_drawn(count, special_.measure);
}

void Turn::admit(const Launch& launch) {
  const Admission admission = decide(launch);
  if (admission == Admission::ASK) [[unlikely]] {
    wait_at_ticket(launch);
    if (in_) go_from_ticket(launch);
  } else {
    post(admission, launch);
  }
}

// How the launch may go without waiting; ASK: it may not.
[[gnu::hot]] Admission Turn::decide(const Launch& launch) {
  kernel_ = kernel_of(in_, launch.handle, launch.shape, launch.graph);
  const ipc::ControlMemory& control = in_.control();
  predicted_us_ = 0;
  if (kernel_.index < ipc::kKernels) {
    const ipc::KernelHint& hint = in_.hints(stream_->device).kernels[kernel_.index];
    predicted_us_ = hint.predicted_us.load(std::memory_order_relaxed);
    special_ = ipc::unpack_special(hint.special.load(std::memory_order_relaxed));
  }
  leased_ = control.devices[stream_->device].leased.load(std::memory_order_acquire) != 0;
  sm_set_ = sized_set(launch);
  // An exempt launch is recorded as such even under a lease: the daemon must know that it waits for
  // peers. Its duration depends on those peers, so it is never measured; the default stands for it.
  if (kernel_.exempt || launch.exempt ||
      (launch.cooperative && has_peers.load(std::memory_order_relaxed))) {
    quiet_ = true;
    return exempt();
  }
  if (control.header.bypass.load(std::memory_order_relaxed) != 0) return Admission::BYPASS;
  // A fail-closed client's lease counts only while the daemon's heartbeat is fresh.
  if (fails_closed() && is_stale(control, now_ns()) &&
      !stream_->signals.load(std::memory_order_relaxed)) {
    return Admission::ASK;
  }
  if (leased_) [[likely]] {
    if (control.header.unobserved.load(std::memory_order_relaxed) != 0) {
      if (!special_.changes()) remember_harmless(launch.handle);
    }
    if (stream_->pairs_out.load(std::memory_order_relaxed) > 0 &&
        is_polled(in_.thread().launches)) {
      poll_stream(in_, *stream_);
    }
    return Admission::LEASE;
  }
  if (stream_->signals.load(std::memory_order_relaxed) || is_spared(*stream_)) return exempt();
  if (stand_at_gate(launch)) return Admission::GATED;
  // While the gates stand open, a ticket would be let go at once: the launch needs none.
  goes_freely_ = !fails_closed() && gates_stand_open(*in_.session().gates, stream_->device);
  return goes_freely_ ? Admission::LEASE : Admission::ASK;
}

// The SM set on which the launch runs unless its ticket's answer names another one.
ipc::SmSet Turn::sized_set(const Launch& launch) const {
  const ipc::DeviceTerms& terms = in_.control().devices[stream_->device];
  const ipc::SmSet all(terms.sm_set.load(std::memory_order_relaxed));
  if (special_.size.get() == 0 || (!graph_ && !launch.may_move)) return all;
  return size_set(stream_->device, special_.size, terms, all);
}

void Turn::take_number() {
  before_ = stream_->kernel.load(std::memory_order_relaxed);
  seq_ = shim::take_number(in_.thread(), *stream_, kernel_.index);
}

ipc::RecordFields Turn::record(Admission admission) {
  if (admission != Admission::GATED) at_ns_ = now_ns();
  ipc::RecordFields fields;
  fill_record(fields, *stream_, seq_, kernel_.index, at_ns_);
  if (graph_) fields.kind = wire::Kind::GRAPH;
  fields.ask_seq = ask_seq_;
  fields.admission = admission;
  return fields;
}

// Takes the kernel's launch priority if it has one of its own, otherwise the client's.
[[gnu::always_inline]] inline void Turn::take_priority() {
  priority_ =
      special_.raised
          ? special_.launch_priority
          : in_.control().devices[stream_->device].launch_priority.load(std::memory_order_relaxed);
}

[[gnu::hot]] void Turn::post(Admission admission, const Launch& launch) {
  if (admission == Admission::LEASE || gated_) take_priority();
  if (seq_ == 0) take_number();
  place(launch);
  ipc::RecordFields fields = record(admission);
  if ((sm_set_.bits() | special_.size.get() | uint32_t{gated_}) != 0) [[unlikely]]
    fields.unmovable = !is_placed();
  if (admission == Admission::LEASE && leased_) {
    tell_launch(in_, before_, fields);
  } else {
    telling.stop();
  }
  if (gated_) [[unlikely]] {
    fields.may_follow = twin_.gates;
    constexpr uint32_t kTies = 2;  // of a detour: an event and a wait in each of the two streams
    if (lane() != nullptr) add_beside_units(*in_.session().gates, stream_->device, kTies);
    in_.count(Admission::ASK);
    return post_gated(fields);
  }
  in_.post(fields);
  in_.count(admission);
}

// An exempt launch goes without a ticket. Others may wait for it, and so for the launches posted
// before it: this raises the floor to let those go. Before a collective the thread first gives the
// daemon time to let them go in order. Before a signal it does not: the work that waits for the
// signal may be what delays them.
Admission Turn::exempt() {
  GateBook& gates = *in_.session().gates;
  const bool behind_gate = newest_gate(gates, *stream_) != 0;
  if (behind_gate) put_last_word(*stream_, ref_, end_unit(gates, *stream_, in_.thread().unit));
  if (quiet_) await_release(in_, stream_->device);
  if (quiet_ || behind_gate || stream_->signals.load()) let_posted_go(gates);
  return Admission::SELF_EXEMPT;
}

// Applies the daemon's answer to the ticket. Without one the launch goes like any of its client's.
void Turn::go_from_ticket(const Launch& launch) {
  const bool granted = ipc::slot_granted(in_.grant(), slot_key());
  const ipc::Grant grant = granted ? ipc::slot_grant(in_.grant()) : ipc::Grant{{}, ipc::kNoVerdict};
  if (grant.launch_priority == ipc::kNoVerdict) {
    take_priority();
  } else {
    priority_ = grant.launch_priority;
    sm_set_ = grant.sm_set;
  }
  place(launch);
}

[[gnu::hot]] CUresult Turn::launched(CUresult result) {
  if (stream_ == nullptr) return result;
  HEDDLE_FAULT_POINT("gate: launched, not recorded");
  const bool timed = pair_ >= 0;
  if (!sm_set_.empty()) [[unlikely]]
    come_back(result);
  in_.thread().in_hand.store(0, std::memory_order_release);
  if (pair_ >= 0) end_pair(in_, *stream_, ref_, pair_, result == CUDA_SUCCESS);
  if (result != CUDA_SUCCESS) {
    // A refused launch at a gate counts as outstanding until its unit is over. The daemon may not
    // have read the launch's record yet.
    if (!gated_) in_.post(failure_of(record(Admission::LEASE)), true);
    return result;
  }
  if (twin() != nullptr) in_.count_twin_launch();
  const bool contended = in_.contended();
  const bool free = (leased_ || gated_ || goes_freely_) && !contended;
  if (!free && !quiet_ && !timed && wants_marker()) place_marker(in_, *stream_, ref_);
  stream_->launched_ns.store(at_ns_, std::memory_order_relaxed);
  if (contended && has_markers(*stream_)) watch_soon();
  return result;
}

// Ends the detour or the twin's launch. Runs before the launch counts as submitted (in_hand): until
// Detour::back() the application's stream does not wait for the lane.
void Turn::come_back(CUresult result) {
  const bool launched = result == CUDA_SUCCESS;
  const bool moved = lane() != nullptr;
  if (twin() != nullptr) return in_.count_on_sm_set(launched);
  if (moved && pair_ >= 0) {
    end_pair(in_, *stream_, target(), pair_, launched);
    pair_ = -1;
  }
  if (moved && launched && !detour_->back()) in_.count(&ipc::ClientMemory::Counters::marker_errors);
  if (launched) in_.count_on_sm_set(moved);
  detour_.reset();
}

bool worth_marking(StreamSlot& stream, uint32_t before, uint32_t kernel, int64_t at_ns,
                   float predicted_us) {
  if (at_ns - stream.launched_ns.load(std::memory_order_relaxed) > kPauseNs) {
    paused.add(before - 1);
  } else {
    paused.remove(before - 1);
  }
  const int64_t queue_end = std::max(at_ns, stream.queue_end_ns.load(std::memory_order_relaxed)) +
                            static_cast<int64_t>(predicted_us * 1e3f);
  stream.queue_end_ns.store(queue_end, std::memory_order_relaxed);
  return queue_end - at_ns >= kWorthNs && paused.has(kernel);
}

// Whether to put a marker behind the launch. A launch that had a ticket gets one, and so does a
// free launch of a client with gates, which tell the daemon otherwise what is done. For leased and
// gated launches, and other free ones, worth_marking() decides.
bool Turn::wants_marker() {
  const bool by_gates = in_.session().gates->on_gpu && (wanted_ & ipc::kKernelsAsk) == 0;
  return !(leased_ || gated_ || (goes_freely_ && !by_gates)) ||
         worth_marking(*stream_, before_, kernel_.index, at_ns_, predicted_us_);
}

ipc::RecordFields failure_of(ipc::RecordFields record) {
  record.at_ns = static_cast<uint64_t>(now_ns());
  record.kind = wire::Kind::COMPLETION;
  record.evidence = wire::Evidence::FAILED;
  return record;
}

void note_peer() { has_peers.store(true, std::memory_order_relaxed); }

}  // namespace heddle::shim
