// Why launches wait: what is kept of it, and told.
#include "daemon/core/explain.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

// Places every launch, says IDLE for a reason until it is opened, and RUN for another then.
class Holding : public Policy {
 public:
  std::string_view name() const override { return "holding"; }
  EnqueueVerdict enqueue(Gpu& gpu, LaunchId id) override {
    gpu.queue_insert(gpu.queue_create("be"), id, 0);
    return {HookResult::kDecided};
  }
  DispatchVerdict dispatch(Gpu& gpu) override {
    if (asks) {
      gpu.gap_us(9);
      gpu.gpu();
    }
    DispatchVerdict verdict{HookResult::kDecided};
    verdict.reason = open ? 2 : 1;
    if (open) verdict.run = gpu.queue_peek(gpu.queue_create("be"));
    return verdict;
  }
  std::string_view reason(uint16_t number) const override {
    ++read;
    return number == 1 ? std::string_view(idle) : "it fits";
  }
  bool open = false, asks = true;
  std::string idle = "no gap";
  mutable int read = 0;
};

class ExplainTest : public CoreTest {
 protected:
  Explanation why() { return core_->view().explain(2); }
};

TEST_F(ExplainTest, APolicysReasonAndWhatItSawAreToldWhileALaunchWaits) {
  Holding policy;
  use(&policy);
  contend();
  tick(300 * kUs);
  const Explanation all = why();
  ASSERT_EQ(all.now.size(), 1u);
  const WaitTold& wait = all.now[0];
  EXPECT_DOUBLE_EQ(wait.waited_us, 300);
  EXPECT_EQ(wait.queue, "be");
  EXPECT_TRUE(wait.placed);
  EXPECT_EQ(wait.why, "");
  EXPECT_EQ(wait.held.reason, "no gap");
  EXPECT_TRUE(wait.held.held.by_policy);
  EXPECT_EQ(wait.held.held.saw.gap_us, 0) << "client 1 has work";
  EXPECT_EQ(wait.held.held.saw.inflight_us, 0);
  EXPECT_EQ(wait.held.held.waiting, 1);
  EXPECT_TRUE(all.past.empty());
  EXPECT_FALSE(core_->view().explain(7).known);
}

TEST_F(ExplainTest, AWaitIsKeptWithWhatHeldItAndWhatLetItGo) {
  Holding policy;
  policy.asks = false;
  use(&policy);
  contend();
  policy.open = true;
  tick(1500 * kUs);
  ASSERT_EQ(grants_.size(), 1u);
  tick(100 * kUs);
  const Explanation all = why();
  EXPECT_TRUE(all.now.empty());
  ASSERT_EQ(all.past.size(), 1u);
  EXPECT_EQ(all.waited, 1u);
  const WaitTold& wait = all.past[0];
  EXPECT_DOUBLE_EQ(wait.waited_us, 1500);
  EXPECT_DOUBLE_EQ(wait.us_ago, 100);
  EXPECT_EQ(wait.held.reason, "no gap");
  EXPECT_EQ(wait.held.held.saw.gap_us, -1) << "it did not ask";
  EXPECT_EQ(wait.reason, "it fits");
  EXPECT_EQ(wait.decider, Decider::kPolicy);
}

TEST_F(ExplainTest, AGrantAtOnceIsNoWait) {
  Holding policy;
  policy.open = true;
  use(&policy);
  contend();
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(why().granted, 1u);
  EXPECT_EQ(why().waited, 0u);
  EXPECT_TRUE(why().past.empty());
}

TEST_F(ExplainTest, TheBuiltInSaysWhoIsInTheWay) {
  contend();
  Explanation all = why();
  ASSERT_EQ(all.now.size(), 1u);
  EXPECT_FALSE(all.now[0].placed);
  EXPECT_EQ(all.now[0].why, "client 1, above it, has work on the GPU");
  EXPECT_FALSE(all.now[0].held.held.by_policy);
  now_ += 200 * kUs;
  done(1, 200);
  ASSERT_EQ(grants_.size(), 1u);
  ask(2);
  EXPECT_EQ(why().now.at(0).why, "its client's last launch is not done yet");
  EXPECT_EQ(why().past.at(0).decider, Decider::kBuiltin);
}

TEST_F(ExplainTest, ALongUnitThatAPauseIsTooYoungForIsHeldByTheCore) {
  Holding policy;
  use(&policy);
  attach(1, 0);
  Event e(EventKind::kAttached, now_, 2);
  e.attached = {};
  e.attached.task = 2;
  e.attached.priority = 9;
  e.attached.gates = true;
  step(e);
  kernel(2, 0, 22);
  teach(2, 5'000, 0, 4);
  post(1);
  e = launch(EventKind::kAsked, 2, Admission::kGated, kTicketThreads);
  step(e);
  EXPECT_FALSE(why().now.at(0).early) << "client 1 has work";
  now_ += 300 * kUs;
  policy.open = true;
  done(1);
  const WaitTold wait = why().now.at(0);
  EXPECT_TRUE(wait.early);
  EXPECT_EQ(wait.why, "a more important client's pause just began, and it is long");
  EXPECT_DOUBLE_EQ(wait.held.us_ago, 300) << "the policy lets it go";
  tick(kMs);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_TRUE(why().past.at(0).early);
  EXPECT_EQ(why().past.at(0).decider, Decider::kPolicy);
}

TEST_F(ExplainTest, TenWaitsAreKeptTheNewestFirst) {
  Holding policy;
  use(&policy);
  attach_both();
  post(1);
  for (int i = 1; i <= 13; ++i) {
    policy.open = false;
    ask(2);
    policy.open = true;
    tick(kMs + i * kUs);
    done(2, 10);
  }
  const Explanation all = why();
  EXPECT_EQ(all.waited, 13u);
  ASSERT_EQ(all.past.size(), 10u);
  EXPECT_DOUBLE_EQ(all.past[0].waited_us, 1013);
  EXPECT_DOUBLE_EQ(all.past[9].waited_us, 1004);
  EXPECT_EQ(policy.read, 2) << "each reason's text is read once, not for each launch";
}

TEST_F(ExplainTest, ReasonsOutliveThePolicyThatGaveThem) {
  Holding first, second;
  use(&first);
  contend();
  first.open = true;
  tick(1500 * kUs);
  const uint32_t generation = why().generation;
  second.idle = "another";
  use(&second);
  done(2, 10);
  ask(2);
  second.open = true;
  tick(1500 * kUs);
  const Explanation all = why();
  ASSERT_EQ(all.past.size(), 2u);
  EXPECT_EQ(all.past[0].held.reason, "another");
  EXPECT_EQ(all.past[1].held.reason, "no gap");
  EXPECT_EQ(all.past[1].held.held.generation, generation);
  EXPECT_EQ(all.past[0].held.held.generation, generation + 1);
}

TEST(Reasons, AreBounded) {
  Reasons reasons;
  for (int round = 0; round < 20; ++round) {
    reasons.forget_policy();
    for (uint16_t i = 1; i < 100; ++i) {
      const auto text = [&](uint16_t own) {
        return std::to_string(round) + " " + std::to_string(own);
      };
      const uint16_t number = reasons.number(i, text);
      EXPECT_EQ(reasons.text(number), number < 511 ? text(i) : "another reason");
    }
  }
  EXPECT_EQ(reasons.number(0, [](uint16_t) { return "no"; }), 0);
  EXPECT_EQ(reasons.number(999, [](uint16_t) { return "no"; }), 0);
}

}  // namespace
}  // namespace heddle::core
