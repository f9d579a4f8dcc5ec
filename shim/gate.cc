#include "shim/gate.h"

#include <algorithm>

#include "ipc/socket.h"
#include "shim/unobserved.h"
#include "shim/watch.h"

namespace heddle::shim {
namespace {

using wire::Admission;

// Every so many launches of a thread one is timed, so that durations stay calibrated. A prime:
// a program whose iterations have a round number of launches gets each of its kernels timed.
constexpr uint32_t kTimedEvery = 127;

// A leased client looks at its timed pairs this often: a query costs more than the launch's own
// bookkeeping.
constexpr uint32_t kPollEvery = 16;

// A windowed client marks its work this many times a window.
constexpr int64_t kMarksPerWindow = 4;

// A waiter asks about its own work at this pace, awake and asleep; without any it sleeps longer.
// Measured (bench/README.md): a thread that spins on the query is late by a millisecond one time in
// twenty; one that looks every 20 µs sees 99 of 100 within 26.
constexpr int64_t kPollNs = 20'000;
// The first time sooner: what ran before the ask is often over, and its marker then is, too.
constexpr int64_t kFirstPollNs = 4'000;
constexpr int64_t kNapBusyNs = 60'000;
constexpr int64_t kNapIdleNs = 2'000'000;

constexpr uint32_t kStarvationMs = 1000;  // unless the daemon says otherwise

// How often a fail-closed launch looks for a daemon.
constexpr int64_t kAwaitNs = 5'000'000;
constexpr int64_t kForeverNs = INT64_MAX / 2;

// A wait of this share of the starvation bound was ended by it, be it by the daemon's clock.
constexpr double kStarvedShare = 0.9;

int64_t starvation_ns(const ipc::ControlMemory& control) {
  const uint32_t ms = control.header.starvation_ms.load(std::memory_order_relaxed);
  return int64_t{ms != 0 ? ms : kStarvationMs} * 1'000'000;
}

class KernelSet {
 public:
  bool has(uint32_t kernel) const {
    return kernel < ipc::kKernels &&
           (words_[kernel / 64].load(std::memory_order_relaxed) >> (kernel % 64) & 1) != 0;
  }
  void add(uint32_t kernel) {
    if (kernel >= ipc::kKernels || has(kernel)) return;
    words_[kernel / 64].fetch_or(uint64_t{1} << (kernel % 64), std::memory_order_relaxed);
  }
  void remove(uint32_t kernel) {
    if (!has(kernel)) return;
    words_[kernel / 64].fetch_and(~(uint64_t{1} << (kernel % 64)), std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> words_[ipc::kKernels / 64] = {};
};

// Kernels that ran on the whole device after a partition refused them.
constinit KernelSet unmovable;

// Kernels whose launches the driver takes at no priority but the application's.
constinit KernelSet unraised;

// Kernels behind which the host paused last time: a gap worth filling may follow. One that also
// runs in the middle of things is marked once, not each time.
constinit KernelSet paused;
constexpr int64_t kPauseNs = 50'000;

constinit std::atomic<bool> has_peers{false};

bool is_stale(const ipc::ControlMemory& control, int64_t now) {
  const int64_t beat = control.header.heartbeat_ns.load(std::memory_order_relaxed);
  return beat != 0 && now - beat > ipc::kHeartbeatStaleNs;
}

}  // namespace

[[gnu::hot]] Turn::Turn(const Launch& launch) {
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
      give_up();
      return;
    }
    admit(launch);
  } while (!in_);  // a fail-closed launch left the session of a daemon that went away
  if (partition_ != 0) [[unlikely]]
    move(launch);
  const uint32_t count = ++in_.thread().launches;
  const bool known = kernel_.index < ipc::kKernels;
  const bool measure =
      known &&
      (in_.control().kernels[kernel_.index].predicted_us.load(std::memory_order_relaxed) == 0 ||
       in_.control().kernels[kernel_.index].measure.load(std::memory_order_relaxed) != 0);
  if ((measure || count % kTimedEvery == 0) && !quiet_) {
    pair_ = begin_pair(in_, *stream_, target(), reach_, kernel_.index);
  }
  // Where it cannot be remembered that the driver refuses it, it is not tried.
  if (!launch.may_raise || !known || unraised.has(kernel_.index)) priority_ = 0;
  HEDDLE_FAULT_POINT("gate: admitted, not launched");
}

// Outside of every session a fail-closed launch waits for one, unless it is of those that are never
// held back. True: inside. False: it goes as it is.
bool Turn::await_daemon(const Launch& launch) {
  for (;;) {
    const Inside::Entry entry = in_.enter_again();
    if (entry == Inside::Entry::kIn) return true;
    if (entry == Inside::Entry::kNoSlot) count_without_slot();
    const bool free = !fails_closed() || entry != Inside::Entry::kNoSession ||
                      (anything_captures() && stream_captures(launch.stream)) || launch.exempt ||
                      (launch.cooperative && has_peers.load(std::memory_order_relaxed)) ||
                      signals(launch.stream) ||
                      is_collective(launch.handle, launch.shape, launch.graph);
    if (free) {
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
  return may_move(launch) && has_lanes(*stream_) && !anything_captures();
}

// Into its partition, where that can be.
void Turn::move(const Launch& launch) {
  if (may_move(launch)) detour_.emplace(in_, *stream_, ref_, partition_);
}

void Turn::stay() {
  if (pair_ >= 0) end_pair(in_, *stream_, target(), pair_, false);
  pair_ = -1;
  detour_.reset();
}

void Turn::stayed() { unmovable.add(kernel_.index); }

void Turn::priority_refused() {
  unraised.add(kernel_.index);
  in_.count_marker_error();
}

// The launch goes as it is, unmanaged.
void Turn::give_up() {
  // It may have a number, under a daemon that went away.
  if (reach_.seq != 0) in_.thread().in_hand.store(0, std::memory_order_release);
  stream_ = nullptr;
  in_.leave();
}

[[gnu::hot]] void Turn::admit(const Launch& launch) {
  ref_ = launch.stream;
  graph_ = launch.graph;
  kernel_ = kernel_of(in_, launch.handle, launch.shape, launch.graph);
  const ipc::ControlMemory& control = in_.control();
  predicted_us_ = kernel_.index < ipc::kKernels
                      ? control.kernels[kernel_.index].predicted_us.load(std::memory_order_relaxed)
                      : 0;
  if (!(predicted_us_ > 0)) predicted_us_ = kDefaultKernelUs;
  const uint64_t word = control.windows[stream_->device].word.load(std::memory_order_acquire);
  window_us_ = ipc::window_us(word);
  epoch_ = ipc::window_epoch(word);
  partition_ = control.windows[stream_->device].partition.load(std::memory_order_relaxed);
  // Also where nothing would hold it: the daemon must know that others are waited for. How long it
  // takes is up to them, so that it is never measured and always taken for the default.
  if (kernel_.exempt || launch.exempt ||
      (launch.cooperative && has_peers.load(std::memory_order_relaxed))) {
    quiet_ = true;
    return post_exempt();
  }
  if (control.header.bypass.load(std::memory_order_relaxed) != 0) return post(Admission::BYPASS);
  // A window is the word of a daemon that lives.
  if (fails_closed() && is_stale(control, now_ns()) &&
      !stream_->signals.load(std::memory_order_relaxed)) {
    return ask(launch);
  }
  if (window_us_ == ipc::kWindowLease) {
    if (control.header.unobserved.load(std::memory_order_relaxed) != 0) {
      remember_harmless(launch.handle);
    }
    if (stream_->pairs_out.load(std::memory_order_relaxed) > 0 &&
        in_.thread().launches % kPollEvery == 0) {
      poll_stream(in_, *stream_);
    }
    return post(Admission::LEASE);
  }
  if (stream_->signals.load(std::memory_order_relaxed)) return post_exempt();
  if (window_us_ != ipc::kWindowGate && fits_window(window_us_)) return post(Admission::WINDOW);
  if (window_us_ == ipc::kWindowGate && use_credit(launch)) return post(Admission::CREDIT);
  ask(launch);
}

// Adds up what the streams have outstanding. A thread that launches alone knows how much it has
// added since; what ended meanwhile it learns when that is used up.
bool Turn::fits_window(uint32_t window_us) {
  ThreadSlot& thread = in_.thread();
  const uint32_t claim = claim_if_alone(thread);
  const bool known = claim != 0 && thread.room_claim == claim && thread.room_epoch == epoch_ &&
                     thread.room_device == stream_->device;
  if (!known || thread.room_us <= 0) {
    const auto window = static_cast<float>(window_us);
    thread.room_us = window - outstanding_us(stream_->device);
    if (thread.room_us <= 0) {
      poll_all(in_);
      thread.room_us = window - outstanding_us(stream_->device);
    }
    thread.room_claim = claim;
    thread.room_epoch = epoch_;
    thread.room_device = stream_->device;
  }
  if (thread.room_us <= 0) return false;
  thread.room_us -= predicted_us_;
  return true;
}

// What cannot move asks, unless the credit is for where it runs anyhow.
bool Turn::use_credit(const Launch& launch) {
  Credit& credit = in_.thread().credit[stream_->device];
  if (credit.us < predicted_us_ || credit.epoch != epoch_ ||
      (credit.partition != partition_ && !can_move(launch))) {
    return false;
  }
  credit.us -= predicted_us_;
  priority_ = credit.priority;
  partition_ = credit.partition;
  return true;
}

[[gnu::hot]] void Turn::take_sequence() {
  const auto predicted_ns = static_cast<int64_t>(predicted_us_ * 1e3f);
  // In hand before it has a number: whoever reads a larger one then sees it (reach_of).
  ThreadSlot& thread = in_.thread();
  const uint64_t next = stream_->posted.load(std::memory_order_relaxed) + 1;
  thread.in_hand_ns.store(predicted_ns, std::memory_order_relaxed);
  thread.in_hand.store(uint64_t{stream_->index} << ThreadSlot::kStreamShift | next,
                       std::memory_order_relaxed);
  reach_.seq = stream_->posted.fetch_add(1, std::memory_order_seq_cst) + 1;
  // Plain, not locked: two threads that race on one stream lose a prediction, no more.
  reach_.posted_ns = stream_->posted_ns.load(std::memory_order_relaxed) + predicted_ns;
  stream_->posted_ns.store(reach_.posted_ns, std::memory_order_relaxed);
  before_ = stream_->kernel.load(std::memory_order_relaxed);
  stream_->kernel.store(kernel_.index + 1, std::memory_order_relaxed);
  set_active(*stream_);
}

[[gnu::hot]] ipc::RecordFields Turn::record(Admission admission) {
  ipc::RecordFields fields;
  at_ns_ = now_ns();
  fields.at_ns = static_cast<uint64_t>(at_ns_);
  fields.stream_seq = reach_.seq;
  fields.kernel = kernel_.index;
  fields.stream = stream_->index;
  fields.kind = graph_ ? wire::Kind::GRAPH : wire::Kind::KERNEL;
  fields.epoch = epoch_;
  fields.ask_seq = ask_seq_;
  fields.admission = admission;
  fields.device = static_cast<uint8_t>(stream_->device);
  return fields;
}

[[gnu::hot]] void Turn::post(Admission admission) {
  if (admission == Admission::LEASE || admission == Admission::WINDOW) {
    priority_ =
        in_.control().windows[stream_->device].launch_priority.load(std::memory_order_relaxed);
  }
  if (reach_.seq == 0) take_sequence();
  in_.post(record(admission));
  in_.count(admission);
}

// Asks for no room, and takes it all the same.
void Turn::post_exempt() {
  in_.thread().room_us -= predicted_us_;
  post(Admission::SELF_EXEMPT);
}

void Turn::ask(const Launch& launch) {
  if (!fails_closed() && is_stale(in_.control(), now_ns())) return post(Admission::SELF_STALE);
  ThreadSlot& thread = in_.thread();
  // What runs before this launch is what the daemon waits to hear about.
  place_marker(in_, *stream_, ref_);
  if (++thread.ask_seq == 0) ++thread.ask_seq;
  ask_seq_ = thread.ask_seq;
  thread.credit[stream_->device] = {};
  if (reach_.seq == 0) take_sequence();
  ipc::RecordFields fields = record(Admission::ASK);
  fields.unmovable = !can_move(launch);
  ipc::ThreadBlock& block = in_.block();
  ipc::slot_ask(block, ask_seq_, [&](std::byte* slot) { ipc::build_record(slot, fields); });
  in_.ring(ipc::kWakeOnAsk);
  const int64_t asked_ns = at_ns_;
  const Admission admission = wait(ask_seq_);
  // Let go for nothing but its age, while a thread of this process was in a synchronizing call all
  // the time: that one may be waiting for this very launch, so that its stream is held no more.
  const auto waited_ns = static_cast<double>(now_ns() - asked_ns);
  if (waited_ns > kStarvedShare * static_cast<double>(starvation_ns(in_.control())) &&
      anyone_blocked(asked_ns)) {
    stream_->signals.store(true, std::memory_order_relaxed);
  }
  if (admission == Admission::ASK) {
    use_grant(ipc::slot_grant(in_.grant()));
    ipc::slot_close(block, ask_seq_);
    in_.count(admission);
  } else {
    ipc::slot_withdraw(block, ask_seq_);
    if (admission == Admission::SELF_STALE && fails_closed()) return in_.leave();
    post(admission);
  }
}

void Turn::use_grant(const ipc::Grant& grant) {
  in_.thread().credit[stream_->device] = {static_cast<float>(grant.credit_us), grant.epoch,
                                          grant.launch_priority, grant.partition};
  priority_ = grant.launch_priority;
  partition_ = grant.partition;
}

// Waits until the ask is granted, or must not be waited for any longer; says which.
Admission Turn::wait(uint32_t seq) {
  const ipc::ControlMemory::Header& header = in_.control().header;
  const ipc::GrantSlot& grant = in_.grant();
  const int64_t start = now_ns();
  const int64_t bound_ns = fails_closed() ? kForeverNs : starvation_ns(in_.control());
  const uint32_t own_us =
      in_.session().one_processor ? 0 : header.wait_spin_us.load(std::memory_order_relaxed);
  const uint32_t spin_us = own_us != 0 ? own_us : header.spin_us.load(std::memory_order_relaxed);
  const int64_t spin_until = start + int64_t{spin_us} * 1'000;
  int64_t next_poll = start + kFirstPollNs;
  bool busy = true;
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (ipc::slot_granted(grant, seq)) return Admission::ASK;
      __builtin_ia32_pause();
    }
    const int64_t now = now_ns();
    if (in_.session().detached.load(std::memory_order_relaxed)) return Admission::SELF_STALE;
    if (header.bypass.load(std::memory_order_relaxed) != 0) return Admission::BYPASS;
    if (now - start >= bound_ns) return Admission::SELF_STARVED;
    if (!fails_closed() && is_stale(in_.control(), now)) return Admission::SELF_STALE;
    if (now >= next_poll) {
      busy = poll_all(in_);
      next_poll = now + kPollNs;
    }
    if (now < spin_until) continue;
    HEDDLE_FAULT_POINT("gate: about to sleep");
    ipc::slot_sleep(in_.block(), grant, seq, [&](uint32_t seen) {
      if (in_.session().detached.load(std::memory_order_seq_cst)) return;
      const int64_t nap = busy ? kNapBusyNs : kNapIdleNs;
      ipc::futex_wait(&grant.granted, seen, std::min(nap, start + bound_ns - now));
    });
  }
}

[[gnu::hot]] CUresult Turn::launched(CUresult result) {
  if (stream_ == nullptr) return result;
  HEDDLE_FAULT_POINT("gate: launched, not recorded");
  const bool timed = pair_ >= 0;
  if (partition_ != 0) [[unlikely]]
    come_back(result);
  in_.thread().in_hand.store(0, std::memory_order_release);
  if (pair_ >= 0) end_pair(in_, *stream_, ref_, pair_, result == CUDA_SUCCESS);
  if (result != CUDA_SUCCESS) {
    // It never ran: nothing of it is outstanding.
    stream_->posted_ns.fetch_sub(static_cast<int64_t>(predicted_us_ * 1e3f),
                                 std::memory_order_relaxed);
    ipc::RecordFields fields = record(Admission::LEASE);
    fields.kind = wire::Kind::COMPLETION;
    fields.evidence = wire::Evidence::FAILED;
    in_.post(fields, true);
    return result;
  }
  if (!quiet_ && !timed && wants_marker()) place_marker(in_, *stream_, ref_);
  stream_->launched_ns.store(at_ns_, std::memory_order_relaxed);
  if (in_.contended() && has_events(*stream_)) watch_soon();
  return result;
}

// Before the launch counts as being with the driver: until then its stream does not wait for it.
void Turn::come_back(CUresult result) {
  const bool launched = result == CUDA_SUCCESS;
  const bool moved = lane() != nullptr;
  if (moved && pair_ >= 0) {
    end_pair(in_, *stream_, target(), pair_, launched);
    pair_ = -1;
  }
  if (moved && launched && !detour_->back()) in_.count_marker_error();
  if (launched) in_.count_partition(moved);
  detour_.reset();
}

// Whether the host paused behind this kernel last time; learned while somebody less important
// waits.
bool Turn::pauses() {
  if (at_ns_ - stream_->launched_ns.load(std::memory_order_relaxed) > kPauseNs) {
    paused.add(before_ - 1);
  } else {
    paused.remove(before_ - 1);
  }
  return paused.has(kernel_.index);
}

[[gnu::hot]] bool Turn::wants_marker() {
  if (window_us_ == ipc::kWindowLease && !in_.contended()) return false;
  if (window_us_ == ipc::kWindowLease) return pauses();
  if (window_us_ == ipc::kWindowGate) {
    return in_.thread().credit[stream_->device].us < predicted_us_;  // the grant is used up
  }
  return (stream_->posted_ns.load(std::memory_order_relaxed) -
          stream_->marked_ns.load(std::memory_order_relaxed)) *
             kMarksPerWindow >=
         int64_t{window_us_} * 1'000;
}

void note_launch(Launch launch) {
  launch.exempt = true;
  Turn(launch).launched(CUDA_SUCCESS);
}

void note_signal(StreamRef stream) {
  if (!is_initialized() || (anything_captures() && stream_captures(stream))) return;
  set_signals(stream);
}

void note_peer() { has_peers.store(true, std::memory_order_relaxed); }

void note_activity(StreamRef ref, wire::Kind kind) {
  Inside in;
  if (!in || (anything_captures() && stream_captures(ref))) return;
  StreamSlot& stream = stream_slot(in, ref);
  if (stream.device < 0 || stream.device >= static_cast<int>(ipc::kDevices)) return;
  ipc::RecordFields fields;
  fields.at_ns = static_cast<uint64_t>(now_ns());
  fields.stream_seq = stream.posted.fetch_add(1, std::memory_order_seq_cst) + 1;
  fields.stream = stream.index;
  fields.kind = kind;
  fields.device = static_cast<uint8_t>(stream.device);
  in.post(fields);
}

}  // namespace heddle::shim
