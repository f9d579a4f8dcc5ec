// Launches at gates, as the core is told of them.
#include "daemon/server/gates.h"

#include <gtest/gtest.h>

#include <memory>

namespace heddle::server {
namespace {

constexpr uint16_t kFirstDevice = ipc::kThreads;

class GateQueueTest : public ::testing::Test {
 protected:
  bool add(uint32_t ticket, uint8_t device = 0) {
    Claim claim;
    claim.fields.ask_seq = ticket;
    claim.fields.device = device;
    claim.fields.admission = wire::Admission::GATED;
    return queue_.add(claim);
  }
  // The ticket that the core is asked for; 0: none.
  uint32_t asked() {
    const auto claim = queue_.next(1, false);
    if (!claim) return 0;
    EXPECT_EQ(claim->source, Claim::Source::kAsk);
    EXPECT_EQ(claim->fields.admission, wire::Admission::ASK);
    EXPECT_EQ(claim->seq, claim->fields.ask_seq);
    return claim->seq;
  }
  uint32_t released(uint8_t device = 0) { return page_->released[device]; }
  void release(uint8_t device = 0) {
    queue_.release(static_cast<uint16_t>(kFirstDevice + device), *page_);
  }

  GateQueue queue_;
  std::unique_ptr<ipc::GatePage> page_ = std::make_unique<ipc::GatePage>();
};

TEST_F(GateQueueTest, OneLaunchADeviceIsAsked) {
  add(1);
  add(2);
  add(1, 3);
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(queue_.next(1, false)->thread, kFirstDevice + 3);
  EXPECT_EQ(asked(), 0u);
  release();
  EXPECT_EQ(released(), 1u);
  EXPECT_EQ(released(3), 0u);
  EXPECT_EQ(asked(), 2u);
}

TEST_F(GateQueueTest, LaunchesGoInTheOrderOfTheirTicketsAcrossTheWrap) {
  for (const uint32_t ticket : {1u, 0xffffffffu, 2u, 0xfffffffeu}) add(ticket);
  // The first ticket of a page is 1; this one has been in use for long.
  queue_.open(*page_);
  for (const uint32_t ticket : {0xfffffffeu, 0xffffffffu, 1u, 2u}) {
    EXPECT_EQ(queue_.next(1, true)->seq, ticket);
  }
}

TEST_F(GateQueueTest, ALateTicketIsToldAsGone) {
  add(2);
  EXPECT_EQ(asked(), 2u);
  release();
  add(1);
  const auto late = queue_.next(1, false);
  EXPECT_EQ(late->source, Claim::Source::kRecord);
  EXPECT_EQ(late->fields.ask_seq, 0u);
  EXPECT_EQ(asked(), 0u);
  EXPECT_EQ(released(), 2u);
}

TEST_F(GateQueueTest, AnEarlierTicketDoesNotTakeThePlaceOfTheAskedOne) {
  add(2);
  EXPECT_EQ(asked(), 2u);
  add(1);
  release();
  EXPECT_EQ(released(), 2u);
  EXPECT_EQ(queue_.next(1, false)->source, Claim::Source::kRecord);
}

TEST_F(GateQueueTest, OpenGatesWithdrawTheAskAndTellTheRest) {
  add(1);
  add(2);
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(queue_.next(1, true)->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(queue_.next(1, true)->source, Claim::Source::kRecord);
  EXPECT_EQ(queue_.next(1, true)->source, Claim::Source::kRecord);
  EXPECT_FALSE(queue_.next(1, true));
}

TEST_F(GateQueueTest, AReleaseThatWasNotAskedForIsIgnored) {
  add(1);
  release();
  EXPECT_EQ(released(), 0u);
}

TEST_F(GateQueueTest, ClosedAgainTheyStandBehindAllThatWent) {
  add(7);
  queue_.open(*page_);
  EXPECT_TRUE(ipc::gate_is_open(released(), 7));
  queue_.close(*page_);
  EXPECT_EQ(released(), 7u);
}

TEST_F(GateQueueTest, TheQueueIsBounded) {
  for (uint32_t ticket = 1; ticket <= GateQueue::kMost; ++ticket) EXPECT_TRUE(add(ticket));
  EXPECT_FALSE(add(GateQueue::kMost + 1));
}

}  // namespace
}  // namespace heddle::server
