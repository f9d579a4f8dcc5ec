// When what a client says has happened: by a clock that may be another, and no earlier than may be.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "daemon/server/attached.h"
#include "daemon/server/intake.h"
#include "daemon/server/messages.h"
#include "ipc/slot.h"

namespace heddle::server {
namespace {

TEST(PlausibleTime, StaysBetweenWhatWasSaidAndNow) {
  const core::TimeNs now = 5'000'000'000;
  EXPECT_EQ(plausible_time(4'500'000'000, 0, now), 4'500'000'000);
  EXPECT_EQ(plausible_time(~uint64_t{0}, 0, now), now);
  EXPECT_EQ(plausible_time(1, 0, now), now - kClaimAgeMax);
  EXPECT_EQ(plausible_time(4'500'000'000, 4'600'000'000, now), 4'600'000'000);
}

class ClientClock : public ::testing::Test {
 protected:
  static constexpr core::TimeNs kSecond = 1'000'000'000, kNow = 100 * kSecond;

  void make(bool tells, core::TimeNs ahead) {
    Identity identity;
    identity.id = 1;
    identity.tells_clock = tells;
    identity.clock_ahead = ahead;
    client_ = *Client::make(identity);
    memory_ = &const_cast<ipc::ClientMemory&>(client_->memory());
    memory_->counters.threads_used = 1;
  }
  // When it is taken to have happened.
  core::TimeNs posted(core::TimeNs at, core::TimeNs now) {
    ipc::ThreadBlock& block = memory_->threads[0];
    ipc::RecordFields fields;
    fields.at_ns = static_cast<uint64_t>(at);
    ipc::build_record(block.ring[block.ring_head % ipc::kRingRecords], fields);
    ++block.ring_head;
    std::vector<Claim> claims;
    EXPECT_TRUE(client_->collect(now, claims));
    return claims.empty() ? 0 : claims.back().at;
  }
  void grant(core::TimeNs at) {
    ipc::RecordFields fields;
    fields.at_ns = static_cast<uint64_t>(at);
    fields.stream_seq = fields.ask_seq = 1;
    fields.admission = wire::Admission::ASK;
    ipc::build_record(memory_->threads[0].ring[0], fields);
    memory_->threads[0].ring_head = 1;
    std::vector<Claim> claims;
    ASSERT_TRUE(client_->collect(at, claims));
    for (const Claim& claim : claims) client_->hold_at_gate(claim);
    const auto asked = client_->next_at_gate(at, false);
    ASSERT_TRUE(asked);
    client_->intake().take(*asked, true);
    core::Decision decision;
    decision.kind = core::DecisionKind::kGrant;
    decision.at = at;
    decision.client = 1;
    decision.ask_seq = 1;
    decision.thread = ipc::kThreads;
    EXPECT_TRUE(client_->apply(decision));
  }
  core::TimeNs heartbeat() const { return client_->control().header.heartbeat_ns; }

  std::unique_ptr<Client> client_;
  ipc::ClientMemory* memory_ = nullptr;
};

TEST_F(ClientClock, IsAllowedForInBothDirections) {
  for (const core::TimeNs ahead : {-kSecond, kSecond}) {
    make(true, ahead);
    EXPECT_EQ(posted(kNow + ahead - 7, kNow), kNow - 7);
    client_->heartbeat(kNow);
    EXPECT_EQ(heartbeat(), kNow + ahead);
  }
}

TEST_F(ClientClock, OfAnOlderShimIsAheadAsItsRecordsAre) {
  make(false, 0);
  EXPECT_EQ(posted(kNow + kSecond, kNow), kNow);
  client_->heartbeat(kNow);
  EXPECT_EQ(heartbeat(), kNow + kSecond);
  EXPECT_EQ(posted(kNow + kSecond + 5, kNow + 10), kNow + 5);
  EXPECT_EQ(posted(-1, kNow + 20), kNow + 20) << "no time at all";
  client_->heartbeat(kNow + 20);
  EXPECT_EQ(heartbeat(), kNow + kSecond + 20);
}

TEST_F(ClientClock, DatesNothingBeforeTheGrantThatItWasReadAfter) {
  make(true, 0);
  grant(kNow);
  EXPECT_EQ(posted(kNow - kSecond, kNow + 9), kNow);
  EXPECT_EQ(posted(kNow + 5, kNow + 9), kNow + 5);
}

TEST(ClockAhead, IsWhatTheMessagesAgeDoesNotExplain) {
  constexpr uint64_t kSecond = 1'000'000'000, kWall = 1'800'000'000 * kSecond;
  constexpr uint64_t kMonotonic = 5'000 * kSecond, kAge = kSecond / 2;
  const Clocks daemon{kMonotonic, kWall};
  EXPECT_EQ(clock_ahead({}, daemon), 0) << "an older shim";
  EXPECT_EQ(clock_ahead({kMonotonic - 100, kWall - 90}, daemon), 0);
  EXPECT_EQ(clock_ahead({kMonotonic - kAge, kWall - kAge}, daemon), 0) << "it was read late";
  EXPECT_EQ(clock_ahead({kMonotonic - kSecond, kWall}, daemon), -int64_t{kSecond});
  EXPECT_EQ(clock_ahead({kMonotonic - kAge + kSecond, kWall - kAge}, daemon), int64_t{kSecond});
  EXPECT_EQ(clock_ahead({kMonotonic - 100, kWall - 86'400 * kSecond}, daemon), 0)
      << "the wall clock was set meanwhile";
  EXPECT_GT(clock_ahead({~uint64_t{0} / 2, 0}, {1, 0}), 0);
  EXPECT_LT(clock_ahead({1, 0}, {~uint64_t{0} / 2, 0}), 0);
}

}  // namespace
}  // namespace heddle::server
