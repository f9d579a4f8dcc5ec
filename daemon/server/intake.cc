#include "daemon/server/intake.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "ipc/fault.h"
#include "ipc/sparse.h"

namespace heddle::server {
namespace {

static_assert(core::kTicketThreads == ipc::kThreads);

constexpr float kDurationMaxUs = 60e6F;
constexpr core::TimeNs kWaitMost = 5'000'000'000;

bool is_launch(wire::Kind kind) { return kind <= wire::Kind::MEMSET; }

}  // namespace

core::TimeNs plausible_time(uint64_t at_ns, core::TimeNs floor, core::TimeNs now) {
  const core::TimeNs oldest = std::max(floor, now - kClaimAgeMax);
  if (at_ns >= static_cast<uint64_t>(now)) return now;
  return std::clamp(static_cast<core::TimeNs>(at_ns), std::min(oldest, now), now);
}

core::TimeNs clock_ahead(const Clocks& client, const Clocks& daemon) {
  constexpr core::TimeNs kAgeMost = 2'000'000'000;  // a shim does not wait longer for an answer
  constexpr core::TimeNs kMost = std::numeric_limits<core::TimeNs>::max() / 4;
  if (client.monotonic_ns == 0) return 0;
  const auto apart = [=](uint64_t a, uint64_t b) {
    return std::clamp(static_cast<core::TimeNs>(a - b), -kMost, kMost);
  };
  const core::TimeNs age = apart(daemon.wall_ns, client.wall_ns);
  core::TimeNs ahead = apart(client.monotonic_ns, daemon.monotonic_ns);
  if (age > 0 && age <= kAgeMost) ahead += age;  // otherwise the wall clock was set meanwhile
  return std::abs(ahead) > kStampNs ? ahead : 0;
}

core::Event& Intake::emit(core::EventKind kind, const Claim& claim) {
  core::Event& event = *std::construct_at(&events_[count_++], kind, claim.at, id_);
  event.device = gpu_of(claim);
  return event;
}

void Intake::fill_launch(core::Event& event, const Claim& claim, bool known) {
  const ipc::RecordFields& f = claim.fields;
  event.launch.stream_seq = f.stream_seq;
  event.launch.kernel = known ? f.kernel : core::kUnknownKernel;
  event.launch.ask_seq = f.ask_seq;
  event.launch.stream = f.stream;
  event.launch.thread = claim.thread;
  event.launch.kind = static_cast<core::LaunchKind>(f.kind);
  event.launch.admission = static_cast<core::Admission>(f.admission);
  event.launch.unmovable = f.unmovable;
  const bool ticket = claim.thread >= core::kTicketThreads;
  event.launch.may_follow =
      ticket ? f.may_follow : std::min<uint16_t>(f.may_follow, ipc::kUntoldMost);
  event.launch.unit_us = ticket && !waits(claim) ? f.duration_us : 0;
}

bool Intake::plausible(const Claim& claim) const {
  const ipc::RecordFields& f = claim.fields;
  if (claim.source == Claim::Source::kWithdrawal) return true;
  if (f.device >= devices_) return false;
  if (f.kernel >= ipc::kKernels && f.kernel != ipc::kNoKernel) return false;
  const bool all_streams = f.kind == wire::Kind::COMPLETION || f.kind == wire::Kind::WAIT;
  if (f.stream >= ipc::kStreams && !(all_streams && f.stream == ipc::kAllStreams)) return false;
  if (!(f.duration_us >= 0 && f.duration_us <= kDurationMaxUs)) return false;
  return claim.source == Claim::Source::kRecord || f.kind <= wire::Kind::GRAPH;
}

std::span<const core::Event> Intake::take(const Claim& claim, bool known) {
  count_ = 0;
  if (!plausible(claim)) {
    ++malformed_;
    return {};
  }
  const ipc::RecordFields& f = claim.fields;
  if (claim.source == Claim::Source::kAsk) {
    take_ask(claim, known);
  } else if (claim.source == Claim::Source::kWithdrawal) {
    if (threads_[claim.thread].open == claim.seq) withdraw(claim);
  } else if (claim.source == Claim::Source::kRecall) {
    fill_launch(emit(core::EventKind::kRecalled, claim), claim, known);
  } else if (is_launch(f.kind)) {
    take_launch(claim, known);
  } else if (f.kind == wire::Kind::COMPLETION) {
    take_completion(claim);
  } else if (f.kind == wire::Kind::WAIT) {
    take_row(claim, known);
    begin_wait(claim);
    core::DoneBody& done = emit(core::EventKind::kWaiting, claim).done;
    done = {f.stream_seq, 0, f.stream, core::Evidence::kNone};
  } else {  // STREAM_END
    core::DoneBody& done = emit(core::EventKind::kStreamEnd, claim).done;
    done = {f.stream_seq, 0, f.stream, core::Evidence::kNone};
    newest_[f.stream] = 0;  // the slot's next stream has posted nothing yet
    for (Thread& thread : threads_) {
      if (thread.posted) (*thread.posted)[f.stream] = 0;
    }
  }
  return {events_.data(), count_};
}

void Intake::take_completion(const Claim& claim) {
  const ipc::RecordFields& f = claim.fields;
  core::DoneBody& done = emit(core::EventKind::kCompleted, claim).done;
  // Work that was not posted cannot be done.
  done.stream_seq =
      f.stream == ipc::kAllStreams ? f.stream_seq : std::min(f.stream_seq, newest_[f.stream]);
  done.duration_us = done.stream_seq == f.stream_seq ? f.duration_us : 0;
  done.stream = f.stream;
  done.evidence = static_cast<core::Evidence>(f.evidence);
  if (done.evidence != core::Evidence::kSynchronized) return;
  // The client waits for the device until the last of its threads has returned.
  end_wait(threads_[claim.thread]);
  if (anyone_waits(claim)) done.evidence = core::Evidence::kMarker;
}

void Intake::begin_wait(const Claim& claim) {
  Thread& thread = threads_[claim.thread];
  waiting_ += thread.waits_since == 0 ? 1 : 0;
  thread.waits_since = claim.at;
  thread.waits_on = claim.fields.device;
}

void Intake::end_wait(Thread& thread) {
  waiting_ -= thread.waits_since != 0 ? 1 : 0;
  thread.waits_since = 0;
}

// Whether a thread is in a synchronizing call on the claim's device. After kWaitMost it does not
// count: the record of its return may have been lost in a full ring.
bool Intake::anyone_waits(const Claim& claim) const {
  return waiting_ > 0 && std::any_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
           return thread.waits_since != 0 && thread.waits_on == claim.fields.device &&
                  claim.at - thread.waits_since < kWaitMost;
         });
}

void Intake::take_launch(const Claim& claim, bool known) {
  const ipc::RecordFields& f = claim.fields;
  Thread& thread = threads_[claim.thread];
  end_wait(thread);
  if (!thread.posted) thread.posted = std::make_unique<std::array<uint64_t, ipc::kStreams>>();
  uint64_t& last = (*thread.posted)[f.stream];
  // Streams beyond the pool share the last slot, and threads share a number of gates.h: there the
  // sequence numbers interleave.
  const bool shared = f.stream == ipc::kStreams - 1 || claim.thread >= ipc::kThreads;
  if (f.stream_seq == 0 || (f.stream_seq <= last && !shared)) {
    ++malformed_;
    return;
  }
  last = f.stream_seq;
  newest_[f.stream] = std::max(newest_[f.stream], f.stream_seq);
  take_row(claim, false);
  fill_launch(emit(core::EventKind::kPosted, claim), claim, known);
}

// Counts the thread's launches without a record before this claim. `known`: the claim's kernel is
// that of the last one.
void Intake::take_row(const Claim& claim, bool known) {
  const ipc::RecordFields& f = claim.fields;
  if (f.untold == 0) return;
  HEDDLE_FAULT_POINT("daemon: row told, not counted");
  core::UntoldBody& row = emit(core::EventKind::kRow, claim).untold;
  row.launches = std::min(f.untold, ipc::kUntoldMost);
  row.kernel = known ? f.kernel : core::kUnknownKernel;
  row.backlog_us = is_launch(f.kind) ? f.duration_us : 0;
}

void Intake::take_ask(const Claim& claim, bool known) {
  const ipc::RecordFields& f = claim.fields;
  Thread& thread = threads_[claim.thread];
  end_wait(thread);
  newest_[f.stream] = std::max(newest_[f.stream], f.stream_seq);
  thread.open = claim.seq;
  ++asking_;
  thread.device = gpu_of(claim);
  fill_launch(emit(core::EventKind::kAsked, claim), claim, known);
}

void Intake::withdraw(const Claim& claim) {
  Thread& thread = threads_[claim.thread];
  core::Event& event = emit(core::EventKind::kWithdrawn, claim);
  event.device = thread.device;
  event.launch.ask_seq = thread.open;
  event.launch.thread = claim.thread;
  thread.open = 0;
  --asking_;
}

void Intake::granted(uint16_t thread) {
  if (threads_[thread].open == 0) return;
  threads_[thread].open = 0;
  --asking_;
}

}  // namespace heddle::server
