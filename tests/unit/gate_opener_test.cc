// The shim's side of the gate page, without a driver: who opens, when, and what a ticket needs.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <utility>
#include <vector>

#include "ipc/socket.h"
#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/gate/unit.h"
#include "shim/link/session.h"

namespace heddle::shim {
namespace {

const auto kOwn = reinterpret_cast<CUcontext>(16);  // the thread's
const auto kOther = reinterpret_cast<CUcontext>(32);
const auto kPrimary = reinterpret_cast<CUcontext>(48);
CUcontext primary = nullptr;
CUcontext pushed = nullptr;
bool captures = false;

CUresult push(CUcontext context) { return pushed = context, CUDA_SUCCESS; }
CUresult pop(CUcontext* context) { return *context = pushed, pushed = nullptr, CUDA_SUCCESS; }

int relaxed = 0;  // depth
int registrations = 0;
CUresult answer = CUDA_SUCCESS;

CUresult enlist(void*, size_t bytes, unsigned) {
  EXPECT_EQ(relaxed, 1) << "it would end a capture";
  EXPECT_EQ(bytes, sizeof(ipc::GatePage));
  EXPECT_EQ(pushed, primary != nullptr ? primary : kOwn);
  ++registrations;
  return answer;
}

CUresult device_pointer(CUdeviceptr* at, void*, unsigned) {
  *at = 0x1000;
  return CUDA_SUCCESS;
}

int waits = 0;
CUresult wait_answer = CUDA_SUCCESS;
CUresult wait(CUstream, CUdeviceptr, uint32_t, unsigned) { return ++waits, wait_answer; }

std::vector<std::pair<CUdeviceptr, uint32_t>> written;
CUresult batch(CUstream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned) {
  for (unsigned i = 0; i < count; ++i) {
    if (ops[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_32) continue;
    written.emplace_back(ops[i].waitValue.address, ops[i].waitValue.value);
  }
  return CUDA_SUCCESS;
}

}  // namespace

// What these take from the rest of the shim.
extern "C" void* heddle_slots[kEntryCount];
void* heddle_slots[kEntryCount] = {};
constinit WordPage word_page{};
void wait_for_memory() {}
RelaxedCapture::RelaxedCapture() { relaxed += mode_ == CU_STREAM_CAPTURE_MODE_RELAXED; }
RelaxedCapture::~RelaxedCapture() { --relaxed; }
Guarded guarded_page{};
constinit std::atomic<Guarded*> guarded{&guarded_page};
CUcontext primary_of(CUdevice) { return primary; }
CUcontext current_context() { return kOwn; }
bool stream_captures(StreamRef) { return captures; }
constinit std::atomic<uint64_t> active_streams[ipc::kStreams / 64] = {};
StreamSlot slots[24];
StreamSlot& slot_at(uint32_t index) { return slots[index]; }

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kNow = 100 * kSecondNs;

class GateOpener : public ::testing::Test {
 protected:
  void SetUp() override {
    heddle_slots[kEntry_cuMemHostRegister_v2] = reinterpret_cast<void*>(&enlist);
    heddle_slots[kEntry_cuMemHostGetDevicePointer_v2] = reinterpret_cast<void*>(&device_pointer);
    heddle_slots[kEntry_cuStreamWaitValue32_v2] = reinterpret_cast<void*>(&wait);
    heddle_slots[kEntry_cuStreamBatchMemOp_v2] = reinterpret_cast<void*>(&batch);
    heddle_slots[kEntry_cuCtxPushCurrent_v2] = reinterpret_cast<void*>(&push);
    heddle_slots[kEntry_cuCtxPopCurrent_v2] = reinterpret_cast<void*>(&pop);
    guarded_page.initialized = 1;
    primary = nullptr;
    captures = false;
    written.clear();
    registrations = 0;
    answer = wait_answer = CUDA_SUCCESS;
    forget_gates();
    daemon_ = make_page(fd_);
    book_ = keep_gates(fd_, kNow, true);
    ASSERT_NE(book_, nullptr);
    daemon_->heartbeat_ns = kNow;
  }
  void TearDown() override { close(fd_); }

  // As the daemon has it.
  static ipc::GatePage* make_page(int& fd) {
    fd = ipc::make_memory("gates", sizeof(ipc::GatePage));
    void* memory = mmap(nullptr, sizeof(ipc::GatePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<ipc::GatePage*>(memory);
  }

  bool open(int device = 0) const {
    return ipc::gate_is_open(daemon_->word[device], book_->posted[device]);
  }

  int fd_ = -1;
  ipc::GatePage* daemon_ = nullptr;
  GateBook* book_ = nullptr;
};

TEST_F(GateOpener, GatesOfADaemonThatLivesStayClosed) {
  look_at_gates(kNow + ipc::kHeartbeatStaleNs);
  EXPECT_FALSE(open());
}

TEST_F(GateOpener, GatesOfASilentDaemonAreOpenedOnAllDevices) {
  take_ticket(*book_, 3);
  look_at_gates(kNow + ipc::kHeartbeatStaleNs + 1);
  for (int device = 0; device < static_cast<int>(ipc::kDevices); ++device) {
    EXPECT_TRUE(open(device)) << device;
  }
}

TEST_F(GateOpener, AFreshPageHasTheWholeBoundForItsFirstHeartbeat) {
  daemon_->heartbeat_ns = 0;
  look_at_gates(kNow + ipc::kHeartbeatStaleNs);
  EXPECT_FALSE(open());
  look_at_gates(kNow + ipc::kHeartbeatStaleNs + 1);
  EXPECT_TRUE(open());
}

TEST_F(GateOpener, GatesOfASessionThatEndedAreOpenedAtOnce) {
  leave_gates(book_);
  look_at_gates(kNow);
  EXPECT_TRUE(open());
}

TEST_F(GateOpener, ASessionThatEndedStaysOpenThoughTheDaemonGoesOn) {
  leave_gates(book_);
  look_at_gates(kNow);
  daemon_->word[0] = 0;  // stopped before it looked, and ended
  look_at_gates(kNow);
  EXPECT_TRUE(open());
}

TEST_F(GateOpener, GatesOfADaemonThatGoesOnAreClosedBehindWhatIsPosted) {
  take_ticket(*book_, 0);
  look_at_gates(kNow + kSecondNs);
  ASSERT_TRUE(open());
  take_ticket(*book_, 0);
  daemon_->heartbeat_ns = kNow + kSecondNs;
  look_at_gates(kNow + kSecondNs);
  EXPECT_EQ(daemon_->floor[0], 2u);
  EXPECT_EQ(ipc::gate_release(daemon_->word[0], daemon_->floor[0], 1), 2u);
  EXPECT_EQ(daemon_->floor[1], 0u);
}

TEST_F(GateOpener, WhatOthersWaitForGoesAndNoMore) {
  GateBook* const next = keep_gates(fd_, kNow, true);
  take_ticket(*book_, 0);
  take_ticket(*next, 3);
  let_all_posted_go();
  EXPECT_EQ(daemon_->floor[0], 1u);
  EXPECT_EQ(daemon_->word[0], 1u);
  EXPECT_EQ(daemon_->floor[3], 1u);
  EXPECT_EQ(daemon_->word[1], 0u);
}

TEST_F(GateOpener, AnOpenWordMovesAlongWithItsTickets) {
  leave_gates(book_);
  look_at_gates(kNow);
  book_->posted[0] += ipc::kGateAhead - 1;
  look_at_gates(kNow);
  EXPECT_TRUE(open());
}

TEST_F(GateOpener, AnotherSessionHasGatesOfItsOwn) {
  leave_gates(book_);
  int fd;
  ipc::GatePage* const next = make_page(fd);
  ASSERT_NE(keep_gates(fd, kNow, true), nullptr);
  close(fd);
  look_at_gates(kNow);
  EXPECT_TRUE(open());
  EXPECT_FALSE(ipc::gate_lets(next->word[0], 1));
}

TEST_F(GateOpener, APageThatIsTooSmallIsNotKept) {
  const int fd = ipc::make_memory("small", sizeof(ipc::GatePage) - 4096);
  EXPECT_EQ(keep_gates(fd, kNow, true), nullptr);
  EXPECT_EQ(keep_gates(-1, kNow, true), nullptr);
  close(fd);
}

TEST_F(GateOpener, SessionsBeyondTheBoundHaveNoGates) {
  for (size_t i = 1; i < kGatePages; ++i) EXPECT_NE(keep_gates(fd_, kNow, true), nullptr);
  EXPECT_EQ(keep_gates(fd_, kNow, true), nullptr);
}

TEST_F(GateOpener, TicketsCountFromOneOnEachDevice) {
  EXPECT_EQ(take_ticket(*book_, 0).number, 1u);
  EXPECT_EQ(take_ticket(*book_, 0).number, 2u);
  const GateTicket other = take_ticket(*book_, 5);
  EXPECT_EQ(other.number, 1u);
  EXPECT_EQ(other.word, 0x1000 + offsetof(ipc::GatePage, word) + 5 * sizeof(uint32_t));
}

TEST_F(GateOpener, NoTicketIsZero) {
  book_->posted[0] = UINT32_MAX - 1;
  EXPECT_EQ(take_ticket(*book_, 0).number, UINT32_MAX);
  EXPECT_EQ(take_ticket(*book_, 0).number, 1u);
}

TEST_F(GateOpener, AForkedChildMayRegisterWhatItsParentWasAt) {
  ASSERT_TRUE(book_->registering.try_lock());
  EXPECT_EQ(take_ticket(*book_, 0).word, 0u);
  forget_gates();
  ASSERT_EQ(keep_gates(fd_, kNow, true), book_);
  EXPECT_NE(take_ticket(*book_, 0).word, 0u);
}

// Its pages are its parent's, and not mapped.
TEST_F(GateOpener, AForkedChildLetsNothingGo) {
  take_ticket(*book_, 0);
  guarded_page.initialized = 0;  // as the kernel wipes it
  let_all_posted_go();
  EXPECT_EQ(daemon_->floor[0], 0u);
}

TEST_F(GateOpener, ARefusedGateIsTriedOnceAndItsTicketGoes) {
  StreamSlot stream;
  stream.context = kOwn;
  wait_answer = CUDA_ERROR_NOT_SUPPORTED;
  waits = 0;
  EXPECT_EQ(put_gate(*book_, stream, {}), 0u);
  EXPECT_EQ(put_gate(*book_, stream, {}), 0u);
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(daemon_->word[0], 1u);
}

TEST_F(GateOpener, ThePageIsRegisteredOnceAndAgainAfterItsContextEnded) {
  take_ticket(*book_, 0);
  take_ticket(*book_, 1);
  EXPECT_EQ(registrations, 1);
  forget_registrations(kOther);
  EXPECT_NE(take_ticket(*book_, 0).word, 0u);
  EXPECT_EQ(registrations, 1);
  forget_registrations(kOwn);
  EXPECT_NE(take_ticket(*book_, 0).word, 0u);
  EXPECT_EQ(registrations, 2);
}

TEST_F(GateOpener, AStreamOfAnotherContextHasNoGate) {
  StreamSlot stream, other;
  stream.context = kOwn;
  other.context = kOther;
  EXPECT_NE(put_gate(*book_, stream, {}), 0u);
  EXPECT_EQ(put_gate(*book_, other, {}), 0u) << "it would read what ends with the first";
}

TEST_F(GateOpener, AGateTellsOfSomeUnitsAndTheNextOneOfTheOthers) {
  StreamSlot legacy;
  legacy.context = kOwn;
  legacy.legacy = legacy.blocking = true;
  for (StreamSlot& slot : slots) {
    slot.context = kOwn;
    slot.blocking = true;
    EXPECT_NE(put_gate(*book_, slot, {}), 0u);
  }
  active_streams[0] = (uint64_t{1} << std::size(slots)) - 1;
  EXPECT_NE(put_gate(*book_, legacy, {}), 0u);
  EXPECT_EQ(written.size(), 16u);
  EXPECT_NE(put_gate(*book_, legacy, {}), 0u);
  active_streams[0] = 0;
  std::set<uint32_t> told;
  for (const auto& [word, ticket] : written) told.insert(ticket);
  EXPECT_EQ(written.size(), std::size(slots) + 1) << "none twice, and its own";
  EXPECT_EQ(told.size(), written.size());
}

TEST_F(GateOpener, ACaptureThatTheShimDidNotSeeHasNoGate) {
  StreamSlot stream;
  stream.context = kOwn;
  captures = true;
  EXPECT_EQ(put_gate(*book_, stream, {}), 0u);
  EXPECT_EQ(book_->posted[0], 0u);
}

TEST_F(GateOpener, WhereThereIsAPrimaryContextStreamsOfAllContextsHaveGates) {
  primary = kPrimary;
  StreamSlot stream, other;
  stream.context = kPrimary;
  other.context = kOther;
  EXPECT_NE(put_gate(*book_, other, {}), 0u);
  EXPECT_NE(put_gate(*book_, stream, {}), 0u);
  forget_registrations(kOther);
  EXPECT_NE(put_gate(*book_, stream, {}), 0u);
  EXPECT_EQ(registrations, 1);
}

TEST_F(GateOpener, WithoutRegistrationThereIsNoTicketAndNoSecondTry) {
  answer = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(take_ticket(*book_, 0).word, 0u);
  EXPECT_EQ(take_ticket(*book_, 0).word, 0u);
  EXPECT_EQ(registrations, 1);
  EXPECT_EQ(book_->posted[0], 0u);
}

TEST_F(GateOpener, ALeftSessionGivesNoTickets) {
  leave_gates(book_);
  look_at_gates(kNow);
  EXPECT_EQ(take_ticket(*book_, 0).word, 0u);
}

// One thread's launches into a stream of device 0.
class GateUnits : public GateOpener {
 protected:
  GateUnits() { stream_.context = kOwn; }
  void begin(StreamSlot& stream, float us) {
    unit_ = {&stream, put_gate(*book_, stream, {}), 0, kNow};
    ASSERT_NE(unit_.ticket, 0u);
    add_to_unit(*book_, stream.device, unit_, us);
  }
  bool goes_on(float us, int64_t after_ns = 0) {
    return shim::goes_on(*book_, stream_, unit_, us, kNow + after_ns);
  }
  // As many units of so many launches.
  void post(int units, int launches, float us) {
    for (int i = 0; i < units; ++i) {
      begin(stream_, us);
      for (int k = 1; k < launches; ++k) add_to_unit(*book_, 0, unit_, us);
    }
  }
  bool is_far_ahead() const { return shim::is_far_ahead(*book_, 0); }

  StreamSlot stream_;
  Unit unit_;
};

TEST_F(GateUnits, AUnitGrowsTo150Microseconds) {
  begin(stream_, 100);
  EXPECT_TRUE(goes_on(50));
  EXPECT_FALSE(goes_on(51));
}

TEST_F(GateUnits, AUnitAtAClosedGateGrowsAtAnyTime) {
  begin(stream_, 10);
  EXPECT_TRUE(goes_on(10, kSecondNs));
}

TEST_F(GateUnits, AUnitWhoseGateOpenedGrowsForAShortTime) {
  begin(stream_, 10);
  daemon_->word[0] = unit_.ticket;
  EXPECT_TRUE(goes_on(10, kUnitNs - 1));
  EXPECT_FALSE(goes_on(10, kUnitNs));
}

TEST_F(GateUnits, AnotherTicketOfTheDeviceEndsAUnit) {
  begin(stream_, 10);
  take_ticket(*book_, 0);
  EXPECT_FALSE(goes_on(10));
}

TEST_F(GateUnits, ATicketOfAnotherDeviceEndsNoUnit) {
  begin(stream_, 10);
  take_ticket(*book_, 1);
  EXPECT_TRUE(goes_on(10));
}

TEST_F(GateUnits, AStreamThatEndedEndsItsUnit) {
  begin(stream_, 10);
  stream_.gate = 0;
  EXPECT_FALSE(goes_on(10));
}

TEST_F(GateUnits, AnotherSessionHasUnitsOfItsOwn) {
  begin(stream_, 10);
  const uint32_t ticket = unit_.ticket;
  GateBook* const next = keep_gates(fd_, kNow, true);
  take_ticket(*next, 0);
  ASSERT_EQ(next->posted[0], ticket);
  EXPECT_FALSE(shim::goes_on(*next, stream_, unit_, 10, kNow));
}

TEST_F(GateUnits, ATicketOfAnotherSessionIsNotToldToThisPage) {
  begin(stream_, 10);
  written.clear();
  book_ = keep_gates(fd_, kNow, true);
  begin(stream_, 10);
  EXPECT_TRUE(written.empty());
}

TEST_F(GateUnits, AUnitWhoseWordIsAnothersIsNotTold) {
  begin(stream_, 10);
  for (uint32_t i = 1; i < ipc::kGateUnits; ++i) take_ticket(*book_, 0);
  written.clear();
  begin(stream_, 10);
  EXPECT_TRUE(written.empty());
}

TEST_F(GateUnits, TheDoneWordOfADeviceIsItsOwn) {
  stream_.device = 3;
  begin(stream_, 10);
  begin(stream_, 10);
  ASSERT_EQ(written.size(), 1u);
  const size_t word = 3 * ipc::kGateUnits + 1;
  EXPECT_EQ(written[0].first, 0x1000 + offsetof(ipc::GatePage, done) + 4 * word);
  EXPECT_EQ(written[0].second, 1u);
}

TEST_F(GateUnits, AThreadIsFarAheadBy5Milliseconds) {
  post(49, 1, 100);
  EXPECT_FALSE(is_far_ahead());
  post(1, 1, 100);
  EXPECT_TRUE(is_far_ahead());
  daemon_->word[0] = 1;
  EXPECT_FALSE(is_far_ahead());
}

TEST_F(GateUnits, AThreadIsFarAheadBy400Launches) {
  post(39, 10, 1);
  EXPECT_FALSE(is_far_ahead());
  post(1, 10, 1);
  EXPECT_TRUE(is_far_ahead());
  daemon_->word[0] = 1;
  EXPECT_FALSE(is_far_ahead());
}

TEST_F(GateUnits, CopiesAndEventsTakePlacesInTheQueueToo) {
  post(1, 1, 1);
  for (int i = 0; i < 398; ++i) add_beside_units(*book_, 0);
  EXPECT_FALSE(is_far_ahead());
  add_beside_units(*book_, 0);
  EXPECT_TRUE(is_far_ahead());
}

TEST_F(GateUnits, AThreadIsFarAheadBy190Units) {
  post(189, 1, 1);
  EXPECT_FALSE(is_far_ahead());
  post(1, 1, 1);
  EXPECT_TRUE(is_far_ahead());
  daemon_->word[0] = 1;
  EXPECT_FALSE(is_far_ahead());
}

TEST_F(GateUnits, ALongKernelAloneIsNotFarAhead) {
  EXPECT_FALSE(is_far_ahead());
  post(1, 1, 1e6F);
  daemon_->word[0] = 1;
  EXPECT_FALSE(is_far_ahead());
}

TEST_F(GateUnits, NobodyIsFarAheadWhileTheGatesStandOpen) {
  daemon_->word[0] = ipc::gate_open(0);
  post(300, 10, 100);
  EXPECT_FALSE(is_far_ahead());
}

TEST_F(GateUnits, HowFarAheadAThreadIsGoesRoundWithItsTickets) {
  book_->posted[0] = UINT32_MAX - 20;
  daemon_->word[0] = UINT32_MAX - 20;
  post(49, 1, 100);
  EXPECT_FALSE(is_far_ahead());
  daemon_->word[0] = UINT32_MAX;  // the next is 1, for there is no 0
  EXPECT_FALSE(is_far_ahead());
  post(21, 1, 100);
  EXPECT_TRUE(is_far_ahead());
}

}  // namespace
}  // namespace heddle::shim
