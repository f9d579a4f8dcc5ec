// The parts of a client, each without a scheduler.
#include "daemon/core/client/client.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

constexpr TimeNs kMs = 1'000'000;

Work work_of(double us, TimeNs at) {
  Work work;
  work.seq = 1;
  work.posted_at = at;
  work.predicted_us = us;
  return work;
}

TEST(OnDevice, ALeasedClientIsBusyUntilItsPredictedEnd) {
  OnDevice work;
  Work dropped;
  work.outstanding.add(work_of(100, kMs), dropped);
  work.follow(work_of(100, kMs));
  EXPECT_EQ(work.busy_deadline(true), kMs + 100'000);
  EXPECT_EQ(work.busy_deadline(false), kMs + 100'000 + kEvidencePatienceNs);
  EXPECT_EQ(work.remaining_us(kMs + 40'000, true), 60);
}

TEST(OnDevice, AClaimCountsForTwoSecondsAtMost) {
  OnDevice work;
  work.follow(work_of(1e9, kMs));
  EXPECT_EQ(work.busy_until, kMs + kClaimedNs);
}

TEST(OnDevice, AWaitingThreadKeepsItsClientBusy) {
  OnDevice work;
  work.waiting_since = kMs;
  EXPECT_EQ(work.busy_deadline(true), kMs + kWaitPatienceNs);
}

TEST(Run, ARunBeginsWithTheFirstLaunchAfterASynchronize) {
  core::Run run;
  run.launched(7, kMs, 10);
  run.launched(8, 2 * kMs, 0);
  EXPECT_EQ(run.first, 7u);
  EXPECT_EQ(run.start, kMs);
  EXPECT_EQ(run.launches, 2u);
  EXPECT_EQ(run.told, 1u);
  EXPECT_EQ(run.launching_us(5 * kMs), 1'000);
  run.going = false;
  run.launched(9, 6 * kMs, 10);
  EXPECT_EQ(run.first, 9u);
  EXPECT_EQ(run.launches, 1u);
}

TEST(Standing, AnotherPolicyForgetsALaunchPriorityAndTellsTheAllowanceAnew) {
  Standing standing;
  standing.allowance_sent = true;
  standing.launch_priority = -3;
  standing.choice.set(Allowance::kLeased, 0, kMs);
  standing.forget_policy();
  EXPECT_FALSE(standing.allowance_sent);
  EXPECT_FALSE(standing.choice.chosen);
  EXPECT_EQ(standing.launch_priority, kBuiltinPriority);
}

TEST(GapBound, TheWorstViolationIsKept) {
  GapBound bound;
  bound.exceeded({.by = 1, .lasted_us = 30, .bound_us = 20});
  bound.exceeded({.by = 2, .lasted_us = 25, .bound_us = 20});
  EXPECT_EQ(bound.gaps_exceeded, 2u);
  EXPECT_EQ(bound.worst.by, 1u);
  EXPECT_TRUE(bound.last.judged);
}

TEST(Known, AKernelThatWasNeverTimedTakesAsLongAsMostDo) {
  Known known;
  known.typical_us = 100;
  EXPECT_EQ(known.predict_us(0, {}), 100);
  for (const double us : {10, 20, 30}) known.timed(us);
  EXPECT_EQ(known.predict_us(0, {}), 20);
  KernelStats stats;
  stats.duration.add(50, true, {});
  known.kernels.resize(1);
  known.kernels[0].stats = &stats;
  EXPECT_EQ(known.predict_us(0, {}), 50);
}

TEST(GpuTime, TwoResidentsHaveHalfOfTheTimeEach) {
  GpuTime time;
  TimeShare a, b;
  time.set_resident(a, true);
  time.set_resident(b, true);
  time.pass(100);
  time.charge(a, 80, 0);
  EXPECT_EQ(a.had_us, 50);
  time.charge(b, 30, 0);
  EXPECT_EQ(b.had_us, 30);
  time.charge(a, 40, 0);  // the rest of the other's part
  EXPECT_EQ(a.had_us, 70);
  EXPECT_EQ(a.worked_us, 120);
}

TEST(GpuTime, LongerSlicesAreLongerParts) {
  GpuTime time;
  TimeShare a, b;
  time.set_resident(a, true, 3);
  time.set_resident(b, true);
  time.pass(100);
  time.set_resident(a, true);  // slices are alike again
  time.pass(20);
  time.charge(a, 120, 40);
  EXPECT_EQ(a.had_us, 85);
  time.charge(b, 120, 0);
  EXPECT_EQ(b.had_us, 35);
}

TEST(GpuTime, WhatAClientGotIsOfWholeSecondsOfLate) {
  Got got;
  got.pass(100, 0);  // it comes
  for (int second = 101; second <= 110; ++second) got.pass(second, (second - 100) * 250e3);
  EXPECT_EQ(got.parts(110, 2.5e6), (GotParts{0.25, 0.25, 2.5 / 60}));
  got.pass(111, 3.5e6);
  EXPECT_EQ(got.parts(111, 3.9e6), (GotParts{1, 0.325, 3.5 / 60})) << "this second is not over";
  EXPECT_EQ(got.parts(116, 3.5e6), (GotParts{0, 0.2, 3.5 / 60})) << "nothing happened since";
  got.pass(1'000, 3.5e6);
  EXPECT_EQ(got.parts(1'000, 3.5e6), GotParts{});
}

TEST_F(CoreTest, APolicyHasAClientsMemoryLeaveAndComeBack) {
  const auto has = [this](uint64_t bytes, bool parked) {
    Event e(EventKind::kMemory, now_, 2);
    e.memory = {bytes, parked};
    step(e);
  };
  struct : Policy {
    std::string_view name() const override { return "parks"; }
    EnqueueVerdict enqueue(Gpu& g, LaunchId) override {
      EXPECT_TRUE(g.client(2, seen));
      EXPECT_TRUE(g.set_parked(2, wanted));
      EXPECT_FALSE(g.set_parked(99, wanted));
      return EnqueueVerdict{HookResult::kDecided, true};
    }
    ClientView seen;
    bool wanted = true;
  } policy;
  contend();
  use(&policy);
  has(5, false);
  ask(2);
  EXPECT_EQ(policy.seen.resident_bytes, 5);
  EXPECT_EQ(park_, (std::map<ClientId, bool>{{2, true}}));
  park_.clear();
  has(5, true);
  done(2);
  ask(2);
  EXPECT_TRUE(policy.seen.parked && policy.seen.resident_bytes == 0);
  EXPECT_TRUE(park_.empty()) << "it is where it is to be";
  policy.wanted = false;
  done(2);
  ask(2);
  EXPECT_EQ(park_, (std::map<ClientId, bool>{{2, false}}));
}

}  // namespace
}  // namespace heddle::core
