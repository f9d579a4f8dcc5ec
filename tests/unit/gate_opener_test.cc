// The shim's side of the gate page, without a driver: who opens, when, and what a ticket needs.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc/socket.h"
#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/gate/page.h"

namespace heddle::shim {
namespace {

int relaxed = 0;  // depth
int registrations = 0;
CUresult answer = CUDA_SUCCESS;

CUresult enlist(void*, size_t bytes, unsigned) {
  EXPECT_EQ(relaxed, 1) << "it would end a capture";
  EXPECT_EQ(bytes, sizeof(ipc::GatePage));
  ++registrations;
  return answer;
}

CUresult device_pointer(CUdeviceptr* at, void*, unsigned) {
  *at = 0x1000;
  return CUDA_SUCCESS;
}

}  // namespace

// What these take from the rest of the shim.
extern "C" void* heddle_slots[kEntryCount];
void* heddle_slots[kEntryCount] = {};
RelaxedCapture::RelaxedCapture() { relaxed += mode_ == CU_STREAM_CAPTURE_MODE_RELAXED; }
RelaxedCapture::~RelaxedCapture() { --relaxed; }

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kNow = 100 * kSecondNs;

class GateOpener : public ::testing::Test {
 protected:
  void SetUp() override {
    heddle_slots[kEntry_cuMemHostRegister_v2] = reinterpret_cast<void*>(&enlist);
    heddle_slots[kEntry_cuMemHostGetDevicePointer_v2] = reinterpret_cast<void*>(&device_pointer);
    registrations = 0;
    answer = CUDA_SUCCESS;
    forget_gates();
    daemon_ = make_page(fd_);
    book_ = keep_gates(fd_, kNow);
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
    return ipc::gate_is_open(daemon_->released[device], book_->posted[device]);
  }

  int fd_ = -1;
  ipc::GatePage* daemon_ = nullptr;
  GateBook* book_ = nullptr;
};

TEST_F(GateOpener, GatesOfADaemonThatLivesStayClosed) {
  look_at_gates(kNow + ipc::kHeartbeatStaleNs);
  EXPECT_FALSE(open());
  EXPECT_EQ(daemon_->leaving, 0u);
}

TEST_F(GateOpener, GatesOfASilentDaemonAreOpenedOnAllDevices) {
  take_ticket(*book_, 3);
  look_at_gates(kNow + ipc::kHeartbeatStaleNs + 1);
  EXPECT_EQ(daemon_->leaving, 1u);
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

TEST_F(GateOpener, WhatIsOpenStaysOpenThoughTheDaemonGoesOn) {
  look_at_gates(kNow + kSecondNs);
  daemon_->heartbeat_ns = kNow + 2 * kSecondNs;
  daemon_->released[0] = 0;  // stopped before it looked, and ended
  look_at_gates(kNow + 2 * kSecondNs);
  EXPECT_TRUE(open());
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
  ASSERT_NE(keep_gates(fd, kNow), nullptr);
  close(fd);
  look_at_gates(kNow);
  EXPECT_TRUE(open());
  EXPECT_FALSE(ipc::gate_lets(next->released[0], 1));
}

TEST_F(GateOpener, APageThatIsTooSmallIsNotKept) {
  const int fd = ipc::make_memory("small", sizeof(ipc::GatePage) - 4096);
  EXPECT_EQ(keep_gates(fd, kNow), nullptr);
  EXPECT_EQ(keep_gates(-1, kNow), nullptr);
  close(fd);
}

TEST_F(GateOpener, SessionsBeyondTheBoundHaveNoGates) {
  for (size_t i = 1; i < kGatePages; ++i) EXPECT_NE(keep_gates(fd_, kNow), nullptr);
  EXPECT_EQ(keep_gates(fd_, kNow), nullptr);
}

TEST_F(GateOpener, TicketsCountFromOneOnEachDevice) {
  EXPECT_EQ(take_ticket(*book_, 0).number, 1u);
  EXPECT_EQ(take_ticket(*book_, 0).number, 2u);
  const GateTicket other = take_ticket(*book_, 5);
  EXPECT_EQ(other.number, 1u);
  EXPECT_EQ(other.word, 0x1000 + offsetof(ipc::GatePage, released) + 5 * sizeof(uint32_t));
}

TEST_F(GateOpener, ThePageIsRegisteredOnceAndAgainAfterItsContextEnded) {
  take_ticket(*book_, 0);
  take_ticket(*book_, 1);
  EXPECT_EQ(registrations, 1);
  forget_registrations();
  answer = static_cast<CUresult>(712);  // it was another context that ended
  EXPECT_NE(take_ticket(*book_, 0).word, 0u);
  EXPECT_EQ(registrations, 2);
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

}  // namespace
}  // namespace heddle::shim
