// What clients write into their rings, and what becomes of tickets there, through the decoder and
// the intake into a scheduler: any bytes are a claim or nothing, and no claim brings the core down.
//
// The input is a series of claims: source, client, thread, sequence number, milliseconds since the
// claim before, how the record is made and what comes before it, and its bytes.
#include <cstdint>
#include <cstring>

#include "daemon/core/scheduler.h"
#include "daemon/server/intake.h"
#include "ipc/record.h"

namespace {

using namespace heddle;

constexpr size_t kHeader = 6;
constexpr size_t kFields = 44;
constexpr size_t kClaim = kHeader + kFields;

template <class T>
T take(const uint8_t*& at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

// Either a sound record with any fields, or any bytes.
bool read(const uint8_t* at, bool raw, bool unmovable, ipc::RecordFields& fields) {
  alignas(64) std::byte record[ipc::kRecordBytes] = {};
  if (raw) {
    std::memcpy(record, at, kFields);
  } else {
    ipc::RecordFields made;
    made.at_ns = take<uint64_t>(at);
    made.stream_seq = take<uint64_t>(at);
    made.kernel = take<uint32_t>(at);
    made.stream = take<uint16_t>(at);
    made.kind = static_cast<wire::Kind>(take<uint8_t>(at));
    made.admission = static_cast<wire::Admission>(take<uint8_t>(at));
    made.evidence = static_cast<wire::Evidence>(take<uint8_t>(at));
    made.device = take<uint8_t>(at);
    take<uint32_t>(at);  // the corpus has an epoch here
    made.ask_seq = take<uint32_t>(at);
    made.duration_us = take<float>(at);
    made.untold = take<uint32_t>(at);
    made.may_follow = take<uint16_t>(at);
    made.unmovable = unmovable;
    ipc::build_record(record, made);
  }
  return ipc::read_record(record, fields);
}

struct World {
  core::Scheduler scheduler{core::Config{}};
  server::Intake intakes[2] = {server::Intake(1), server::Intake(2)};

  World() {
    for (const core::ClientId id : {1u, 2u}) {
      core::Event event(core::EventKind::kAttached, 0, id);
      event.attached = {};
      event.attached.priority = static_cast<uint8_t>(4 * id);
      event.attached.share = 1;
      step(event);
    }
  }
  void step(const core::Event& event) {
    for (const core::Decision& decision : scheduler.step(event)) {
      if (decision.kind != core::DecisionKind::kGrant) continue;
      if (decision.client < 1 || decision.client > 2 || decision.thread >= ipc::kThreads) {
        __builtin_trap();
      }
      intakes[decision.client - 1].granted(decision.thread);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World world;
  core::TimeNs now = 0;
  for (; size >= kClaim; data += kClaim, size -= kClaim) {
    server::Claim claim;
    claim.source = static_cast<server::Claim::Source>(data[0] % 3);
    server::Intake& intake = world.intakes[data[1] % 2];
    claim.thread = data[2] % ipc::kThreads;
    claim.seq = data[3];
    now += data[4] * 1'000'000;
    // What the daemon reads of counters, and tells the cores of, while a client goes unobserved.
    if ((data[5] & 8) != 0) {
      const bool begins = (data[5] & 16) != 0;
      core::Event event(begins ? core::EventKind::kUnobserved : core::EventKind::kObserved, now,
                        1 + data[1] % 2);
      event.untold.launches = data[3];
      world.step(event);
    }
    const bool unmovable = (data[5] & 4) != 0;
    if (!read(data + kHeader, (data[5] & 1) != 0, unmovable, claim.fields)) continue;
    claim.at = server::plausible_time(claim.fields.at_ns, 0, now);
    for (const core::Event& event : intake.take(claim, (data[5] & 2) != 0)) world.step(event);
  }
  world.step(core::Event(core::EventKind::kTick, now + 2'000'000'000, 0));
  for (const core::ClientId id : {1u, 2u}) {
    world.step(core::Event(core::EventKind::kDetached, now + 2'000'000'000, id));
  }
  return 0;
}
