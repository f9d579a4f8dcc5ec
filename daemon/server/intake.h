// What one client claims, checked. A claim is a private copy of something that the client wrote
// into shared memory; the intake turns it into core events, or calls it malformed. Pure: no shared
// memory, no clock, no system call.
//
// Claims arrive in the order of their (clamped) times, over all threads of all clients.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "daemon/core/event.h"
#include "daemon/server/gpus.h"
#include "daemon/server/messages.h"
#include "ipc/limits.h"
#include "ipc/record.h"

namespace heddle::server {

struct Claim {
  enum class Source : uint8_t {
    kRecord,  // from the thread's ring
    kAsk,     // these from gates.h
    kWithdrawal,
    kRecall,
  };
  Source source = Source::kRecord;
  uint16_t thread = 0;
  uint16_t waiter = ipc::kThreads;  // the thread that waits for its ticket; kThreads: none
  uint32_t seq = 0;                 // kAsk, kWithdrawal
  core::TimeNs at = 0;
  ipc::RecordFields fields{};
};

// A client that was not heard for longer than this is taken to have acted this long ago.
inline constexpr core::TimeNs kClaimAgeMax = 1'000'000'000;

// When the client says it happened, as far as that is possible: not in the future, not before
// `floor` (what the same thread said last), not absurdly long ago.
core::TimeNs plausible_time(uint64_t at_ns, core::TimeNs floor, core::TimeNs now);

// How far the CLOCK_MONOTONIC of a client that sent `client` is ahead of the daemon's, who reads
// `daemon` now: 0, unless the client is in a time namespace. That leaves the wall clock alone,
// which so tells how old the message is.
core::TimeNs clock_ahead(const Clocks& client, const Clocks& daemon);

// From a record's time stamp to the record, or between two clocks that are the same, at most.
inline constexpr core::TimeNs kStampNs = 50'000'000;

class Intake {
 public:
  // `devices`: how many the client has; it cannot launch on others. `gpus`: which they are.
  explicit Intake(core::ClientId id, uint32_t devices = ipc::kDevices,
                  const DeviceMap& gpus = same_numbers())
      : id_(id), devices_(devices), gpus_(gpus) {}

  // It is of a device that nobody schedules.
  bool unscheduled(const Claim& claim) const {
    return claim.source != Claim::Source::kWithdrawal && claim.fields.device < devices_ &&
           gpu_of(claim) == kNoGpu;
  }
  // A launch with a ticket; as a record, it is no event (gates.h).
  static bool is_gated(const Claim& claim) {
    return claim.source == Claim::Source::kRecord &&
           (claim.fields.admission == wire::Admission::GATED || waits(claim));
  }
  // Its thread waits.
  static bool waits(const Claim& claim) { return claim.fields.admission == wire::Admission::ASK; }
  // Nothing in it is beyond what there is.
  bool plausible(const Claim& claim) const;
  // Not of one unscheduled. At most three events, valid until the next call. `known` says whether
  // the kernel index was registered. Empty and malformed() one higher: the claim is impossible.
  std::span<const core::Event> take(const Claim& claim, bool known);

  // The ticket that the core knows of and did not let go: 0 if there is none. Of a thread of
  // gates.h.
  uint32_t open_ask(uint16_t thread) const { return threads_[thread].open; }
  uint32_t asking() const { return asking_; }  // on so many devices there is one
  void granted(uint16_t thread);

  uint64_t malformed() const { return malformed_; }
  void count_malformed() { ++malformed_; }

 private:
  struct Thread {
    uint32_t open = 0;             // of gates.h: ticket that the core knows and did not let go
    uint8_t device = 0;            // of that
    uint8_t waits_on = 0;          // device of the synchronizing call that it is in,
    core::TimeNs waits_since = 0;  // and since when; 0: in none
    // Last sequence number per stream: a thread's own launches only ever go forward. Made with the
    // thread's first launch.
    std::unique_ptr<std::array<uint64_t, ipc::kStreams>> posted;
  };

  uint8_t gpu_of(const Claim& claim) const {
    return claim.fields.device < gpus_.size() ? gpus_[claim.fields.device] : kNoGpu;
  }
  void take_row(const Claim& claim, bool known);
  void take_launch(const Claim& claim, bool known);
  void take_ask(const Claim& claim, bool known);
  void take_completion(const Claim& claim);
  void begin_wait(const Claim& claim);
  void end_wait(Thread& thread);
  bool anyone_waits(const Claim& claim) const;
  void withdraw(const Claim& claim);
  core::Event& emit(core::EventKind kind, const Claim& claim);
  void fill_launch(core::Event& event, const Claim& claim, bool known);

  const core::ClientId id_;
  const uint32_t devices_;
  const DeviceMap gpus_;
  std::array<Thread, ipc::kThreads + ipc::kDevices> threads_;  // with those of gates.h
  std::array<uint64_t, ipc::kStreams> newest_{};  // sequence number per stream, over all threads
  uint32_t asking_ = 0;                           // threads with an open ticket
  uint32_t waiting_ = 0;                          // threads in a synchronizing call
  uint64_t malformed_ = 0;
  std::array<core::Event, 3> events_;
  size_t count_ = 0;
};

}  // namespace heddle::server
