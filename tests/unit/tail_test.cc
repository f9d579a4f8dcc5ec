// A promise of the tail: which runs count, and when it is clear that too many are slow.
#include "daemon/core/tail.h"

#include <limits>
#include <random>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

constexpr double kAloneUs = 10'000;

// So many runs, of which every `slow_one_in`-th takes half as long again.
Tail after(int runs, int slow_one_in) {
  Tail tail;
  tail.promise(1.2);
  for (int i = 1; i <= runs; ++i) {
    tail.end_run(i % slow_one_in == 0 ? 1.5 * kAloneUs : kAloneUs, kAloneUs);
  }
  return tail;
}

TEST(Tail, IsKeptWhileOneRunInAHundredIsSlow) {
  const PromiseStatus status = after(10'000, 100).status();
  EXPECT_GT(status.blocks, 5u);
  EXPECT_EQ(status.broken, 0u);
  EXPECT_FALSE(status.broken_now);
  EXPECT_NEAR(after(10'000, 150).status().slowdown, 1, 0.001) << "one in a hundred may be slower";
}

TEST(Tail, IsBrokenWhereTwoRunsInAHundredAreSlow) {
  const PromiseStatus status = after(10'000, 50).status();
  EXPECT_GT(status.blocks, 5u);
  EXPECT_EQ(status.broken, status.blocks);
  EXPECT_TRUE(status.broken_now);
  EXPECT_NEAR(status.slowdown, 1.5, 0.02);
}

TEST(Tail, ABlockHasThreeHundredRunsAndASecond) {
  EXPECT_EQ(after(299, 2).status().blocks, 0u) << "however many are slow";
  EXPECT_EQ(after(300, 2).status().broken, 1u);
  EXPECT_EQ(after(300, 1000).status().blocks, 1u) << "none was slow";
  Tail tail;
  tail.promise(1.2);
  for (int i = 0; i < 9'999; ++i) tail.end_run(100, 100);
  EXPECT_EQ(tail.status().blocks, 0u);
  tail.end_run(100, 100);
  EXPECT_EQ(tail.status().blocks, 1u);
}

TEST(Tail, APauseOfTheHostThatHoldsUpSomeRunsBreaksNothing) {
  Tail tail = after(100, 1000);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(tail.end_run(5 * kAloneUs, kAloneUs));
  for (int i = 0; i < 900; ++i) EXPECT_FALSE(tail.end_run(kAloneUs, kAloneUs));
  EXPECT_GE(tail.status().blocks, 1u);
  EXPECT_EQ(tail.status().broken, 0u);
}

// By chance more runs of a block are slow, or fewer.
TEST(Tail, ChanceIsSeldomTakenForABrokenPromiseOrAKeptOne) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const auto broken = [&](double slow) {
    Tail tail;
    tail.promise(1.2);
    while (tail.status().blocks < 1'000) {
      const bool is_slow = static_cast<double>(random()) / 4294967296.0 < slow;
      tail.end_run(is_slow ? 1.5 * kAloneUs : kAloneUs, kAloneUs);
    }
    return static_cast<double>(tail.status().broken) / 1'000;
  };
  EXPECT_LT(broken(0.01), 0.015);
  EXPECT_GT(broken(0.02), 0.94);
}

TEST(Tail, AnotherPromiseBeginsAnew) {
  Tail tail = after(10'000, 50);
  tail.promise(1.2);
  EXPECT_GT(tail.status().blocks, 0u) << "the same goes on";
  tail.promise(1.6);
  EXPECT_EQ(tail.status().blocks, 0u);
  EXPECT_EQ(tail.slowdown_max(), 1.6);
  tail.promise(0);
  EXPECT_FALSE(tail.promised());
}

class TailTest : public CoreTest {
 protected:
  // What a policy sees as a launch asks.
  class Reading final : public Policy {
   public:
    std::string_view name() const override { return "reading"; }
    EnqueueVerdict enqueue(Gpu& gpu, LaunchId) override {
      for (int p = 0; p < kPriorityCount; ++p) {
        by_times[p] = gpu.slower_runs(p, 1.1);
        promised[p] = gpu.slower_runs(p, std::numeric_limits<double>::infinity());
      }
      return {};
    }
    SlowRunCount by_times[kPriorityCount], promised[kPriorityCount];
  };

  void promise(ClientId id, uint8_t priority, SlowdownMax max) {
    Event e(EventKind::kTerms, now_, id);
    e.terms = {1, 0, priority, max};
    step(e);
  }
};

TEST_F(TailTest, ARunIsSlowByItsClientsPromiseOrByWhatAPolicySays) {
  constexpr ClientId kPromised = 1, kOther = 3, kLow = 2;
  Reading policy;
  CoreTest::use(&policy);
  attach(kPromised, 0);
  attach(kOther, 1);
  attach(kLow, 9);
  promise(kPromised, 0, {0, 1.2F});
  for (const ClientId id : {kPromised, kOther}) {
    kernel(id, 0, id);
    teach(id, 1000, 100, 10);  // the first two say what it takes alone
    teach(id, 1150, 100, 1);
    teach(id, 1500, 100, 1);
  }
  ask(kLow);
  EXPECT_EQ(policy.by_times[9].runs, 20u);
  EXPECT_EQ(policy.by_times[9].slow, 3u) << "one of the client with the promise, two of the other";
  EXPECT_EQ(policy.promised[9].runs, 10u);
  EXPECT_EQ(policy.promised[9].slow, 1u);
  EXPECT_EQ(policy.promised[1].slow, 1u);
  EXPECT_EQ(policy.by_times[1].slow, 1u) << "of those above Q1 alone";
  EXPECT_EQ(policy.by_times[0].runs, 0u);
}

TEST_F(TailTest, StatusSaysHowItIsKept) {
  attach(1, 0);
  kernel(1, 0, 77);
  promise(1, 0, {1.1F, 1.2F});
  teach(1, 10'000, 100, 400);
  const ClientStatus client = core_->view().clients().front();
  EXPECT_NEAR(client.promise_p99.slowdown_max, 1.2, 1e-6);
  EXPECT_NEAR(client.promise_p99.slowdown, 1, 0.02);
  EXPECT_EQ(client.promise_p99.blocks, 1u);
  EXPECT_EQ(client.promise_p99.broken, 0u);
  EXPECT_NEAR(client.promise.slowdown_max, 1.1, 1e-6);
  EXPECT_GT(client.promise.blocks, 1u) << "a mean is known sooner";
  EXPECT_NEAR(client.view.slowdown_p99_max, 1.2, 1e-6);
}

}  // namespace
}  // namespace heddle::core
