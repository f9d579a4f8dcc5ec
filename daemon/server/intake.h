// Checks the claims of one client. A claim is a private copy of a record that the client wrote into
// shared memory. The intake turns it into core events, or counts it as malformed. Pure: no shared
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

// The oldest time that a claim may have.
inline constexpr core::TimeNs kClaimAgeMax = 1'000'000'000;

// The client's time of a claim, clamped: not in the future, not before `floor` (Client::floor_of),
// not older than kClaimAgeMax.
core::TimeNs plausible_time(uint64_t at_ns, core::TimeNs floor, core::TimeNs now);

// How far the client's CLOCK_MONOTONIC is ahead of the daemon's. `client`: its clocks in the
// message; `daemon`: the daemon's clocks now. 0 unless the client is in a time namespace. A time
// namespace leaves the wall clock alone, so that tells how old the message is.
core::TimeNs clock_ahead(const Clocks& client, const Clocks& daemon);

// The longest time from a record's time stamp to its publication, or between two equal clocks.
inline constexpr core::TimeNs kStampNs = 50'000'000;

class Intake {
 public:
  // `devices`: the number of the client's devices. `gpus`: the GPUs that they are.
  explicit Intake(core::ClientId id, uint32_t devices = ipc::kDevices,
                  const DeviceMap& gpus = same_numbers())
      : id_(id), devices_(devices), gpus_(gpus) {}

  // The claim is of a device without a scheduler.
  bool unscheduled(const Claim& claim) const {
    return claim.source != Claim::Source::kWithdrawal && claim.fields.device < devices_ &&
           gpu_of(claim) == kNoGpu;
  }
  // The record of a launch with a ticket. It goes to gates.h, not to the core.
  static bool is_gated(const Claim& claim) {
    return claim.source == Claim::Source::kRecord &&
           (claim.fields.admission == wire::Admission::GATED || waits(claim));
  }
  // The launch's thread waits for the ticket.
  static bool waits(const Claim& claim) { return claim.fields.admission == wire::Admission::ASK; }
  // All its numbers are in range.
  bool plausible(const Claim& claim) const;
  // Turns a claim, not an unscheduled one, into at most three events, valid until the next call.
  // `known`: its kernel index was registered. Empty, and malformed() one higher: it is impossible.
  std::span<const core::Event> take(const Claim& claim, bool known);

  // The ticket of which the core knows and that it has not granted; 0: none. `thread`: a number of
  // gates.h.
  uint32_t open_ask(uint16_t thread) const { return threads_[thread].open; }
  uint32_t asking() const { return asking_; }  // the number of devices with such a ticket
  void granted(uint16_t thread);

  uint64_t malformed() const { return malformed_; }
  void count_malformed() { ++malformed_; }

 private:
  struct Thread {
    uint32_t open = 0;             // open_ask()
    uint8_t device = 0;            // of that ticket
    uint8_t waits_on = 0;          // the device of its synchronizing call,
    core::TimeNs waits_since = 0;  // and when that began; 0: it is in none
    // The thread's last sequence number per stream: its own launches only go forward. Made with its
    // first launch.
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
  std::array<Thread, ipc::kThreads + ipc::kDevices> threads_;  // with the numbers of gates.h
  std::array<uint64_t, ipc::kStreams> newest_{};  // sequence number per stream, over all threads
  uint32_t asking_ = 0;                           // threads with an open ticket
  uint32_t waiting_ = 0;                          // threads in a synchronizing call
  uint64_t malformed_ = 0;
  std::array<core::Event, 3> events_;
  size_t count_ = 0;
};

}  // namespace heddle::server
