// Tickets that threads wait for: who is told, and when.
#include "tests/unit/gate_queue_fixture.h"

namespace heddle::server {
namespace {

TEST_F(GateQueueTest, AThreadIsToldBeforeTheWordSaysSo) {
  add_waiting(1, 5);
  EXPECT_TRUE(queue_.threads.any());
  ASSERT_TRUE(next());
  ASSERT_TRUE(queue_.release(kFirstDevice, now_));
  ASSERT_EQ(queue_.threads.went().size(), 1u);
  EXPECT_EQ(queue_.threads.went()[0].thread, 5u);
  EXPECT_EQ(released(), 0u);
  queue_.let_go(kFirstDevice);
  EXPECT_EQ(released(), 1u);
  EXPECT_FALSE(queue_.threads.any());
}

TEST_F(GateQueueTest, ATicketThatItsThreadGaveUpIsAnsweredToNobody) {
  add_waiting(1, 5, 1);
  add_waiting(1, 5, 0);  // it went by itself on the other device, and waits anew
  floor(1);
  while (next()) {
  }
  ASSERT_EQ(queue_.threads.went().size(), 1u);
  EXPECT_EQ(queue_.threads.went()[0].device, 0u);
  queue_.threads.forget();
  ASSERT_TRUE(next(true));
  EXPECT_TRUE(queue_.threads.went().empty());
}

// Others wait no longer for what is not seen to go on; the thread goes when the core says so.
TEST_F(GateQueueTest, AThreadIsHeldThoughWhatIsUnderWayIsNotSeenToGoOn) {
  add(1);
  ASSERT_TRUE(next());
  release();
  now_ += 3'000'000'000;
  add_waiting(2, 5);
  const auto over = next();
  ASSERT_TRUE(over);
  EXPECT_EQ(over->fields.kind, wire::Kind::COMPLETION);
  const auto ask = next();
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->source, Claim::Source::kAsk);
  EXPECT_EQ(released(), 1u);
  release();
  EXPECT_EQ(released(), 2u);
}

}  // namespace
}  // namespace heddle::server
