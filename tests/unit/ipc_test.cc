// What shim and daemon share: records, rings, waiting, kernel IDs. The socket and the sealed
// memories are in socket_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "ipc/kernel_id.h"
#include "ipc/layout.h"
#include "ipc/record.h"
#include "ipc/ring.h"
#include "ipc/slot.h"

namespace heddle::ipc {
namespace {

// HEDDLE_SEED repeats a run; otherwise every run is a new one.
uint64_t seed_of_run() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("HEDDLE_SEED");
    const uint64_t value =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("HEDDLE_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

struct alignas(64) Slot {
  std::byte bytes[kRecordBytes];
};

RecordFields random_fields(std::mt19937_64& random) {
  RecordFields fields;
  fields.at_ns = random();
  fields.stream_seq = random();
  fields.kernel = static_cast<uint32_t>(random());
  fields.stream = static_cast<uint16_t>(random());
  fields.kind = static_cast<wire::Kind>(random() % 7);
  fields.ask_seq = static_cast<uint32_t>(random());
  fields.admission = static_cast<wire::Admission>(random() % 10);
  fields.device = static_cast<uint8_t>(random());
  fields.unmovable = random() % 2 != 0;
  fields.evidence = static_cast<wire::Evidence>(random() % 4);
  fields.duration_us = static_cast<float>(random() % 1'000'000) / 8;
  return fields;
}

void expect_equal(const RecordFields& a, const RecordFields& b) {
  EXPECT_EQ(a.at_ns, b.at_ns);
  EXPECT_EQ(a.stream_seq, b.stream_seq);
  EXPECT_EQ(a.kernel, b.kernel);
  EXPECT_EQ(a.stream, b.stream);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.unmovable, b.unmovable);
  EXPECT_EQ(a.ask_seq, b.ask_seq);
  EXPECT_EQ(a.admission, b.admission);
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.evidence, b.evidence);
  EXPECT_EQ(std::bit_cast<uint32_t>(a.duration_us), std::bit_cast<uint32_t>(b.duration_us));
}

TEST(Record, ComesBackAsItWasBuilt) {
  std::mt19937_64 random(seed_of_run());
  Slot slot;
  for (int i = 0; i < 10'000; ++i) {
    const RecordFields sent = random_fields(random);
    build_record(slot.bytes, sent);
    RecordFields got;
    ASSERT_TRUE(read_record(slot.bytes, got));
    expect_equal(sent, got);
  }
}

TEST(Record, IsWhatCapnProtoBuilds) {
  std::mt19937_64 random(seed_of_run());
  for (int i = 0; i < 1'000; ++i) {
    const RecordFields f = random_fields(random);
    Slot ours, theirs{};
    build_record(ours.bytes, f);
    capnp::FlatMessageBuilder message(kj::arrayPtr(reinterpret_cast<capnp::word*>(theirs.bytes),
                                                   kRecordBytes / sizeof(capnp::word)));
    auto record = message.initRoot<wire::Record>();
    record.setAtNs(f.at_ns);
    record.setStreamSeq(f.stream_seq);
    record.setKernel(f.kernel);
    record.setStream(f.stream);
    record.setKind(f.kind);
    record.setAskSeq(f.ask_seq);
    record.setAdmission(f.admission);
    record.setDevice(f.device);
    record.setUnmovable(f.unmovable);
    record.setEvidence(f.evidence);
    record.setDurationUs(f.duration_us);
    ASSERT_EQ(std::memcmp(ours.bytes, theirs.bytes, kRecordBytes), 0);
  }
}

TEST(Record, RejectsRandomBytes) {
  std::mt19937_64 random(seed_of_run());
  Slot slot;
  for (int i = 0; i < 100'000; ++i) {
    for (size_t at = 0; at < kRecordBytes; at += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(slot.bytes + at, &word, sizeof word);
    }
    RecordFields got;
    ASSERT_FALSE(read_record(slot.bytes, got));
  }
}

// Whatever bytes follow the root pointer.
TEST(Record, ReadsWhatCapnProtoReads) {
  std::mt19937_64 random(seed_of_run());
  Slot slot;
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    build_record(slot.bytes, random_fields(random));
    for (int changed = 0; changed < 3; ++changed) {
      slot.bytes[8 + random() % (kRecordBytes - 8)] = static_cast<std::byte>(random());
    }
    RecordFields got;
    if (!read_record(slot.bytes, got)) continue;
    ++accepted;
    const kj::ArrayPtr<const capnp::word> segments[] = {
        {reinterpret_cast<const capnp::word*>(slot.bytes), kRecordBytes / sizeof(capnp::word)}};
    capnp::SegmentArrayMessageReader message(segments);
    const auto record = message.getRoot<wire::Record>();
    expect_equal({.at_ns = record.getAtNs(),
                  .stream_seq = record.getStreamSeq(),
                  .kernel = record.getKernel(),
                  .stream = record.getStream(),
                  .kind = record.getKind(),
                  .ask_seq = record.getAskSeq(),
                  .admission = record.getAdmission(),
                  .device = record.getDevice(),
                  .unmovable = record.getUnmovable(),
                  .evidence = record.getEvidence(),
                  .duration_us = record.getDurationUs()},
                 got);
  }
  EXPECT_GT(accepted, 10'000);
}

// One random byte in a well-formed record: what is still accepted has known enumerants only.
TEST(Record, NeverYieldsUnknownEnumerants) {
  std::mt19937_64 random(seed_of_run());
  Slot slot;
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    build_record(slot.bytes, random_fields(random));
    slot.bytes[8 + random() % (kRecordBytes - 8)] = static_cast<std::byte>(random());
    RecordFields got;
    if (!read_record(slot.bytes, got)) continue;
    ++accepted;
    ASSERT_LE(static_cast<int>(got.kind), static_cast<int>(wire::Kind::STREAM_END));
    ASSERT_LE(static_cast<int>(got.admission), static_cast<int>(wire::Admission::UNMANAGED));
    ASSERT_LE(static_cast<int>(got.evidence), static_cast<int>(wire::Evidence::FAILED));
  }
  EXPECT_GT(accepted, 50'000);
  EXPECT_LT(accepted, 100'000);
}

TEST(Record, RejectsEveryOtherRootPointer) {
  Slot slot;
  build_record(slot.bytes, {});
  for (size_t bit = 0; bit < 64; ++bit) {
    Slot broken = slot;
    broken.bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    RecordFields got;
    EXPECT_FALSE(read_record(broken.bytes, got)) << "bit " << bit;
  }
  const Slot zero{};
  RecordFields got;
  EXPECT_FALSE(read_record(zero.bytes, got));
}

// A ring with its two cursors, as client and daemon share it.
struct Ring {
  std::atomic<uint32_t> head{0};
  std::atomic<uint32_t> tail{0};
  uint32_t tail_seen = 0;  // the client's own
  alignas(64) std::byte records[kRingRecords][kRecordBytes];

  // Fills the record with one value, so that a torn copy shows.
  template <class Fault = FaultPoint>
  bool push(uint64_t value) {
    return ring_push<Fault>(head, tail, tail_seen, records, [&](std::byte* slot) {
      for (size_t at = 0; at < kRecordBytes; at += sizeof value) {
        std::memcpy(slot + at, &value, sizeof value);
      }
    });
  }
  template <class Take>
  int drain(uint32_t& cursor, Take&& take) {
    return ring_drain(head, tail, cursor, records, [&](const std::byte* copy) {
      uint64_t first;
      std::memcpy(&first, copy, sizeof first);
      for (size_t at = 0; at < kRecordBytes; at += sizeof first) {
        ASSERT_EQ(std::memcmp(copy + at, &first, sizeof first), 0) << "torn record";
      }
      take(first);
    });
  }
};

struct Killed {};

// Stops its thread where the ring or slot says that a process may die. Armed by the test.
struct DiesHere {
  static inline bool armed = false;
  static void at(const char*) {
    if (armed) throw Killed{};
  }
};

TEST(Ring, DeliversEveryRecordInOrderAcrossWraps) {
  auto ring = std::make_unique<Ring>();
  ring->head = ring->tail = 0xffffff00;  // the cursors wrap around 32 bits soon
  uint32_t cursor = 0xffffff00;
  uint64_t sent = 0, expected = 0;
  std::mt19937_64 random(seed_of_run());
  for (int round = 0; round < 500; ++round) {
    for (uint64_t n = random() % 40; n > 0; --n) ASSERT_TRUE(ring->push(sent++));
    ASSERT_GE(ring->drain(cursor, [&](uint64_t value) { EXPECT_EQ(value, expected++); }), 0);
  }
  EXPECT_EQ(expected, sent);
}

TEST(Ring, RefusesARecordWhenFullAndKeepsTheOldOnes) {
  auto ring = std::make_unique<Ring>();
  for (uint64_t i = 0; i < kRingRecords; ++i) ASSERT_TRUE(ring->push(i));
  EXPECT_FALSE(ring->push(999'999));
  uint32_t cursor = 0;
  uint64_t expected = 0;
  EXPECT_EQ(ring->drain(cursor, [&](uint64_t value) { EXPECT_EQ(value, expected++); }),
            static_cast<int>(kRingRecords));
  EXPECT_TRUE(ring->push(1));
}

TEST(Ring, GivesNoMoreThanWasAskedForAndTheRestLater) {
  auto ring = std::make_unique<Ring>();
  for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(ring->push(i));
  uint32_t cursor = 0;
  uint64_t next = 0;
  for (const int expected : {64, 36, 0}) {
    EXPECT_EQ(ring_drain(
                  ring->head, ring->tail, cursor, ring->records,
                  [&](const std::byte* copy) {
                    uint64_t value;
                    std::memcpy(&value, copy, sizeof value);
                    EXPECT_EQ(value, next++);
                  },
                  64),
              expected);
  }
}

TEST(Ring, DoesNotBelieveAnImpossibleHead) {
  auto ring = std::make_unique<Ring>();
  ring->head = kRingRecords + 1;
  uint32_t cursor = 0;
  EXPECT_EQ(ring->drain(cursor, [](uint64_t) { FAIL(); }), -1);
  ring->head = 0xffffffff;  // behind the cursor
  EXPECT_EQ(ring->drain(cursor, [](uint64_t) { FAIL(); }), -1);
}

TEST(Ring, HidesARecordWhoseProducerDiedBeforePublishing) {
  auto ring = std::make_unique<Ring>();
  uint32_t cursor = 0;
  for (uint64_t i = 0; i < 3 * kRingRecords; ++i) {
    DiesHere::armed = true;
    EXPECT_THROW(ring->push<DiesHere>(~i), Killed);
    DiesHere::armed = false;
    EXPECT_EQ(ring->drain(cursor, [](uint64_t) { FAIL(); }), 0);
    ASSERT_TRUE(ring->push<DiesHere>(i));
    EXPECT_EQ(ring->drain(cursor, [&](uint64_t value) { EXPECT_EQ(value, i); }), 1);
  }
}

TEST(Ring, LosesNothingBetweenTwoThreads) {
  auto ring = std::make_unique<Ring>();
  constexpr uint64_t kRecords = 100'000;
  std::thread client([&] {
    for (uint64_t i = 0; i < kRecords; ++i) {
      while (!ring->push(i)) std::this_thread::yield();
    }
  });
  uint32_t cursor = 0;
  uint64_t expected = 0;
  while (expected < kRecords) {
    const int taken = ring->drain(cursor, [&](uint64_t value) { EXPECT_EQ(value, expected++); });
    EXPECT_GE(taken, 0);
    if (taken == 0) std::this_thread::yield();
  }
  client.join();
}

TEST(Slot, CarriesOneGrant) {
  const auto block = std::make_unique<ThreadBlock>();
  GrantSlot grant{};
  EXPECT_FALSE(slot_granted(grant, 1));
  block->waiting = 1;
  slot_answer(grant, 1, {SmSet(2), -5});
  EXPECT_TRUE(slot_sleeps(*block)) << "it must be woken";
  ASSERT_TRUE(slot_granted(grant, 1));
  const Grant got = slot_grant(grant);
  EXPECT_EQ(got.sm_set, SmSet(2));
  EXPECT_EQ(got.launch_priority, -5);
  EXPECT_FALSE(slot_granted(grant, 2)) << "a late grant is not taken for the next ticket";
}

TEST(Slot, HidesAGrantWhoseDaemonDiedBeforePublishing) {
  GrantSlot grant{};
  DiesHere::armed = true;
  EXPECT_THROW(slot_answer<DiesHere>(grant, 1, {SmSet(5), 0}), Killed);
  DiesHere::armed = false;
  EXPECT_FALSE(slot_granted(grant, 1));
}

// A waiter that gives up now and then takes no grant for another ticket, and sleeps through none.
TEST(Slot, AWaiterIsWokenAndTakesItsOwnGrant) {
  const auto block = std::make_unique<ThreadBlock>();
  GrantSlot grant{};
  constexpr uint32_t kTickets = 20'000;
  std::atomic<uint32_t> wanted{0};
  std::thread client([&] {
    std::mt19937_64 random(seed_of_run());
    for (uint32_t ticket = 1; ticket <= kTickets; ++ticket) {
      wanted = ticket;
      uint64_t patience = random() % 4 == 0 ? random() % 8 : UINT64_MAX;
      while (!slot_granted(grant, ticket) && patience-- != 0) {
        slot_sleep(*block, grant, ticket, [&](uint32_t seen) { grant.granted.wait(seen); });
      }
      if (!slot_granted(grant, ticket)) continue;
      EXPECT_EQ(slot_grant(grant).launch_priority, static_cast<int32_t>(ticket) * 3);
    }
    wanted = UINT32_MAX;
  });
  uint32_t answered = 0;
  for (uint32_t ticket = 0; ticket != UINT32_MAX; ticket = wanted) {
    if (ticket == answered) {
      std::this_thread::yield();
      continue;
    }
    answered = ticket;
    slot_answer(grant, ticket, {{}, static_cast<int32_t>(ticket) * 3});
    slot_fence();
    if (slot_sleeps(*block)) grant.granted.notify_all();
  }
  client.join();
  EXPECT_GT(answered, kTickets / 2);
}

TEST(Layout, FitsTheMemoryBudgetOfAProcess) {
  EXPECT_LE(sizeof(ControlMemory) + sizeof(ClientMemory), size_t{8} << 20);
}

// Committed values: profiles and statistics outlive the process that made them.
TEST(KernelId, IsTheSameInEveryProcessAndVersion) {
  const LaunchShape shape{{64, 2, 1}, {256, 1, 1}, 1024, 1};
  EXPECT_EQ(kernel_id("saxpy", shape), 16150208441832496230u);
  EXPECT_EQ(kernel_id("", {}), 14679155840589381696u);
}

TEST(KernelId, DependsOnTheNameAndEveryPartOfTheShape) {
  const LaunchShape shape{{64, 2, 1}, {256, 1, 1}, 1024, 1};
  const uint64_t id = kernel_id("saxpy", shape);
  EXPECT_NE(kernel_id("saxpz", shape), id);
  for (size_t part = 0; part < sizeof(LaunchShape) / sizeof(uint32_t); ++part) {
    uint32_t words[sizeof(LaunchShape) / sizeof(uint32_t)];
    std::memcpy(words, &shape, sizeof shape);
    ++words[part];
    LaunchShape other;
    std::memcpy(&other, words, sizeof other);
    EXPECT_NE(kernel_id("saxpy", other), id) << "part " << part;
  }
}

}  // namespace
}  // namespace heddle::ipc
