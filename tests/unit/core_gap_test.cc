// What is let into a gap beyond one launch at a time: credit and fences; and what heddle says that
// it may cost, the bound.
#include <gtest/gtest.h>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

constexpr double kDefaultUs = 100;  // what a kernel is predicted to take that was never measured

// Runs whatever waits while nobody above has work, as its verdict says.
struct Giving : Policy {
  std::string_view name() const override { return "giving"; }
  WindowVerdict client_init(Gpu& g, ClientId c) override {
    if (c == 1) g.set_launch_priority(c, launch_priority);
    return {};
  }
  EnqueueVerdict enqueue(Gpu& g, LaunchId k) override {
    g.launch(k, asked);
    g.queue_insert(g.queue_create("q"), k, 0);
    return {HookResult::kDecided};
  }
  DispatchVerdict dispatch(Gpu& g) override {
    gpu = g.gpu();
    fit = {};
    g.launch(g.queue_best_fit(g.queue_create("q"), kUnlimitedUs), fit);
    DispatchVerdict v = verdict;
    v.result = HookResult::kDecided;
    if (open && !g.busy(kPriorityLowest)) v.run = g.queue_peek(g.queue_create("q"));
    return v;
  }

  DispatchVerdict verdict;
  int launch_priority = kBuiltinPriority;  // of client 1
  bool open = true;
  LaunchView asked, fit;
  GpuView gpu;
};

class GapTest : public CoreTest {
 protected:
  // Client 1 (Q0) has gaps of 1 500 µs, and one has just begun; client 2 (Q9) has work for it.
  void begin(Config config = {}, uint32_t partition = 0, bool splits = true) {
    reset(config);
    policy_.open = true;
    bool ok = false;
    take(core_->set_policy(&policy_, now_, ok));
    attach(1, 0);
    Event e(EventKind::kAttached, now_, 2);
    e.attached = {};
    e.attached.task = 2;
    e.attached.priority = 9;
    e.attached.partition = partition;
    if (splits) {  // an H200
      e.attached.groups = {16, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 12}};
    }
    step(e);
    kernel(1, 0, 11);
    kernel(2, 0, 22);
    teach(1, 500, 1500);
    post(1);
    now_ += 500 * kUs;
    done(1, 500);
    gap_start_ = now_;
    grants_.clear();
  }
  void credit(ClientId id, uint16_t thread = 0) {
    step(launch(EventKind::kPosted, id, Admission::kCredit, thread));
  }
  uint32_t granted_partition(uint32_t sm) {
    policy_.verdict.sm = sm;
    ask(2);
    return grants_.back().partition;
  }
  // The marker behind what client 2 was granted, but the last so many, is seen, while a thread of
  // it waits, or none.
  void seen(float duration_us = 0, uint64_t but = 0) {
    Event e(EventKind::kCompleted, now_, 2);
    e.done = {stream_seq_[2] - core_->waiting() - but, duration_us, 0, Evidence::kMarker};
    step(e);
  }
  ClientStatus important() const { return core_->clients().front(); }

  Giving policy_;
  TimeNs gap_start_ = 0;
};

TEST_F(GapTest, CreditIsNoMoreThanTheGapHoldsBehindWhatRuns) {
  begin();
  policy_.verdict.credit_us = 1e5;
  ask(2);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_NEAR(grants_[0].credit_us, 1500 - kDefaultUs, 30);
}

TEST_F(GapTest, CreditEndsWhenSomebodyAboveLaunches) {
  begin();
  policy_.verdict.credit_us = 300;
  ask(2);
  ASSERT_EQ(grants_[0].credit_us, 300u);
  ASSERT_EQ(grants_[0].epoch, window_[2].epoch);
  now_ += 10 * kUs;
  const Event on_its_way = launch(EventKind::kPosted, 2, Admission::kCredit);
  post(1);
  EXPECT_GT(window_[2].epoch, grants_[0].epoch);
  EXPECT_EQ(window(2), kWindowGated);
  step(on_its_way);
  EXPECT_EQ(core_->stats().late, 1u);
}

TEST_F(GapTest, CreditThatIsNotUsedEndsWhenTheGapWouldNotHoldItAnyMore) {
  begin();
  policy_.verdict.credit_us = 300;
  ask(2);
  now_ += 100 * kUs;
  seen();
  int ticks = 0;
  for (; window_[2].epoch == grants_[0].epoch && ticks < 5; ++ticks) {
    tick(core_->next_deadline() - now_);
  }
  EXPECT_LT(ticks, 5);
  EXPECT_NEAR(static_cast<double>(now_ - gap_start_) / 1e3, 1500 - 300, 30);
}

TEST_F(GapTest, AFractionOfAMicrosecondIsRevokedLikeAnyCredit) {
  begin();
  ask(2);
  now_ += 100 * kUs;
  done(2, 99.5);  // what its kernel takes
  policy_.verdict.credit_us = 100;
  ask(2);
  credit(2);
  int ticks = 0;
  for (; window_[2].epoch == grants_[1].epoch && ticks < 10; ++ticks) {
    tick(core_->next_deadline() - now_);
  }
  EXPECT_LT(ticks, 10) << now_ - gap_start_;
}

TEST_F(GapTest, CreditEndsWhenAnybodyWaitsAndIsNotGivenThen) {
  begin();
  policy_.verdict.credit_us = 300;
  ask(2);
  policy_.open = false;
  ask(2, 1);
  EXPECT_GT(window_[2].epoch, grants_[0].epoch);
  ask(2, 2);
  policy_.open = true;
  tick(2 * kMs - (now_ - gap_start_) - 600 * kUs);
  ASSERT_EQ(grants_.size(), 3u);
  EXPECT_EQ(grants_[1].credit_us, 0u) << "another thread waits";
}

TEST_F(GapTest, CreditOfEachThreadCountsAsInFlightUntilItIsUsed) {
  begin();
  policy_.verdict.credit_us = 150;
  ask(2);
  policy_.verdict.credit_us = 0;
  credit(2);
  EXPECT_EQ(core_->stats().credited, 1u);
  ask(2, 1);
  EXPECT_NEAR(policy_.gpu.inflight_us, 2 * kDefaultUs, 1) << "an ask ended what was left of it";
  policy_.open = false;
  ask(2);
  EXPECT_NEAR(policy_.asked.by_credit_us, kDefaultUs, 1);
  EXPECT_NEAR(policy_.gpu.inflight_us, 3 * kDefaultUs, 1);
}

TEST_F(GapTest, AFenceIsTheLastGroupsThatHoldTheSizeOfWhatTheClientHas) {
  begin();
  EXPECT_EQ(granted_partition(24), 0xe000u) << "12 + 8 + 8";
  EXPECT_EQ(core_->stats().fenced, 1u);
  EXPECT_EQ(policy_.gpu.sm_free, 132u);
  policy_.open = false;
  ask(2, 1);
  EXPECT_EQ(policy_.gpu.sm_free, 132u - 28);
  EXPECT_NEAR(policy_.gpu.inflight_us, 5 * kDefaultUs, 1) << "132 blocks on 28 SMs: five waves";
  now_ += 480 * kUs;
  Event e(EventKind::kCompleted, now_, 2);
  e.done = {stream_seq_[2] - 1, 480, 0, Evidence::kMarker};
  step(e);
  EXPECT_EQ(policy_.gpu.sm_free, 132u);
  EXPECT_NEAR(hint_[0], 480 / 5, 1);
}

TEST_F(GapTest, AKernelThatIsOnlyEverFencedIsNotTimedForEver) {
  begin();
  policy_.verdict.sm = 24;
  measure_[0] = 1;  // client 2's
  int timed = 0;
  for (; measure_[0] != 0 && timed < 1000; ++timed) {
    ask(2);
    now_ += 500 * kUs;
    seen(500);
  }
  EXPECT_EQ(timed, 128);
  EXPECT_NEAR(core_->outlook(2, now_, 0).duration_us, 100, 1);
  EXPECT_FALSE(core_->outlook(2, now_, 0).duration_timed);
  policy_.verdict.sm = 0;
  ask(2);
  now_ += 90 * kUs;
  seen(90);
  EXPECT_EQ(measure_[0], 1) << "now it is worth while";
  EXPECT_NEAR(core_->outlook(2, now_, 0).duration_us, 90, 1);
}

TEST_F(GapTest, FencedWorkUnderMpsHoldsUpItsOwnClientAlone) {
  for (const bool mps : {true, false}) {
    Config config;
    config.mps = mps;
    policy_.open = true;
    begin(config);
    attach(3, 9);
    granted_partition(24);
    policy_.open = false;
    ask(2);
    EXPECT_EQ(policy_.fit.client, 0u) << "it would begin when what is fenced ends";
    EXPECT_NEAR(policy_.gpu.inflight_us, 5 * kDefaultUs, 1);
    EXPECT_NEAR(policy_.gpu.fenced_us, mps ? 5 * kDefaultUs : 0, 1);
    ask(3);
    EXPECT_EQ(policy_.fit.client, 3u);
  }
}

TEST_F(GapTest, GroupsThatNoDeviceHasTakeNoMoreThanThereIs) {
  Config config;
  config.sm_total = 16;
  begin(config);
  granted_partition(100);
  policy_.open = false;
  ask(2, 1);
  EXPECT_EQ(policy_.gpu.sm_free, 0u);
}

TEST_F(GapTest, AFenceLiesWithinWhatTheRuleGives) {
  begin({}, 0x00ff);
  EXPECT_EQ(granted_partition(16), 0x00c0u);
  EXPECT_EQ(granted_partition(100), 0x00ffu) << "all that it has leaves the others out";
  EXPECT_EQ(core_->stats().unfenced, 0u);
}

TEST_F(GapTest, NothingIsFencedWhereNobodySaidHowTheDeviceSplits) {
  begin({}, 0, false);
  EXPECT_EQ(granted_partition(24), 0u);
  EXPECT_FALSE(policy_.asked.fenceable);
  EXPECT_EQ(core_->stats().unfenced, 1u);
}

TEST_F(GapTest, WhatCannotMoveIsNotFenced) {
  begin();
  EXPECT_NE(granted_partition(24), 0u);
  EXPECT_TRUE(policy_.asked.fenceable);
  for (const bool graph : {true, false}) {
    Event e = launch(EventKind::kAsked, 2, Admission::kAsk);
    e.launch.kind = graph ? LaunchKind::kGraph : LaunchKind::kKernel;
    e.launch.unmovable = !graph;
    step(e);
    EXPECT_EQ(grants_.back().partition, 0u);
    EXPECT_FALSE(policy_.asked.fenceable);
  }
  EXPECT_EQ(core_->stats().unfenced, 2u);
}

// ---- the bound: what is in flight, the switch (70 µs) and the notice (70 µs) --------------------

TEST_F(GapTest, TheBoundIsWhatWasInFlightWhenTheGapEnded) {
  begin();
  policy_.verdict.credit_us = 300;
  ask(2);
  EXPECT_NEAR(important().added_us_max, 400 + 140, 1) << "credit can be used at any time";
  now_ += 10 * kUs;
  post(1);
  EXPECT_EQ(important().gaps_filled, 1u);
  EXPECT_EQ(core_->stats().gaps_filled, 1u);
  EXPECT_NEAR(important().added_us_max, 400 + 140, 1);
  policy_.open = false;
  ask(2);  // so it looks
  now_ += 500 * kUs;
  seen();
  EXPECT_EQ(important().gaps_exceeded, 0u) << "within the bound";
}

TEST_F(GapTest, ALaunchThatOutlastsItsPredictionViolatesTheBoundOnce) {
  begin();
  ask(2);
  ask(2, 1);
  now_ += 10 * kUs;
  post(1);
  EXPECT_NEAR(important().added_us_max, 200 + 140, 1);
  policy_.open = false;
  ask(2);
  now_ += 400 * kUs;
  seen(0, 1);
  EXPECT_EQ(important().gaps_exceeded, 1u);
  EXPECT_EQ(core_->stats().bound_violations, 1u);
  now_ += 100 * kUs;
  seen();
  EXPECT_EQ(important().gaps_exceeded, 1u) << "one gap, one violation";
}

// A marker behind several launches tells when the last of them ended, not when the others did.
TEST_F(GapTest, UnderMpsLaunchesThatAreSeenTogetherAreNotJudgedByTheEndOfTheLast) {
  for (const bool together : {true, false}) {
    Config config;
    config.mps = true;
    begin(config);
    ask(2);
    ask(2, 1);
    now_ += 10 * kUs;
    post(1);
    policy_.open = false;
    ask(2);  // so it looks
    now_ += 350 * kUs;
    if (!together) seen(0, 1);
    EXPECT_EQ(important().gaps_exceeded, together ? 0u : 1u);
    now_ += 100 * kUs;
    seen();
    EXPECT_EQ(important().gaps_exceeded, together ? 0u : 1u) << "one gap, one violation";
    EXPECT_NEAR(important().exceeded_us_max, together ? 0 : 350 - important().added_us_max, 1);
  }
}

// What began once the gap was over had its blocks placed behind those of client 1.
TEST_F(GapTest, UnderMpsAMeasuredLaunchIsJudgedIfItRanAsTheGapEnded) {
  for (const float measured_us : {445.0F, 300.0F}) {
    Config config;
    config.mps = true;
    begin(config);
    ask(2);
    ask(2, 1);
    now_ += 10 * kUs;
    post(1);
    policy_.open = false;
    ask(2);  // so it looks
    now_ += 450 * kUs;
    seen(measured_us);
    EXPECT_EQ(important().gaps_exceeded, measured_us > 400 ? 1u : 0u) << measured_us;
  }
}

// Further gaps of client 1, by what is predicted, end while the launch that was let in still runs.
TEST_F(GapTest, AViolationIsFoundThoughOtherGapsEndedSince) {
  begin();
  ask(2);
  now_ += 10 * kUs;
  post(1);
  policy_.open = false;
  ask(2);  // so it looks
  for (int i = 0; i < 4; ++i) {
    tick(600 * kUs);
    post(1);
  }
  EXPECT_GT(important().gaps_filled, 1u);
  const uint64_t filled = important().gaps_filled;
  for (int i = 0; i < 2; ++i) {  // a row, and what tells of it
    tick(600 * kUs);
    Event row(EventKind::kRow, now_, 1);
    row.untold = {5, 0, 0};
    step(row);
    post(1);
  }
  EXPECT_EQ(important().gaps_filled, filled) << "launches went on in it";
  now_ += 200 * kUs;
  seen();
  EXPECT_EQ(important().gaps_exceeded, 1u);
}

TEST_F(GapTest, AnEndThatNobodyLookedForIsNoViolationUnlessItWasMeasured) {
  for (const float measured_us : {0.0F, 500.0F}) {
    begin();
    ask(2);
    now_ += 10 * kUs;
    post(1);
    now_ += 5 * kMs;
    seen(measured_us);
    EXPECT_EQ(important().gaps_exceeded, measured_us > 0 ? 1u : 0u);
  }
}

TEST_F(GapTest, AnEndThatWasLookedForTooLateIsNoViolation) {
  begin();
  ask(2);
  now_ += 10 * kUs;
  post(1);
  policy_.open = false;
  now_ += 5 * kMs;  // client 2 computes
  ask(2);
  now_ += 20 * kUs;
  seen();
  EXPECT_EQ(important().gaps_exceeded, 0u);
}

TEST_F(GapTest, ALaunchThatWasTakenForDoneIsJudgedWhenItsEndIsSeen) {
  begin();
  ask(2);
  Event marker(EventKind::kCompleted, 0, 2);
  marker.done = {stream_seq_[2], 0, 0, Evidence::kMarker};
  now_ += 10 * kUs;
  post(1);
  policy_.open = false;
  ask(2);  // so it looks
  for (int ms = 1; ms < 30; ++ms) {
    tick(kMs);
    post(1);
    EXPECT_EQ(core_->clients()[1].outstanding_us > 0, ms <= 20);
  }
  marker.at = now_;
  step(marker);
  EXPECT_EQ(important().gaps_exceeded, 1u);
}

// Its work was predicted to be over, so that others were let in; now it waits for it.
TEST_F(GapTest, ASynchronizingCallEndsAGap) {
  begin();
  post(1);
  tick(600 * kUs);
  ask(2);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(important().gaps_filled, 0u);
  Event e(EventKind::kWaiting, now_, 1);
  e.done = {0, 0, kEveryStream, Evidence::kNone};
  step(e);
  EXPECT_EQ(important().gaps_filled, 1u);
}

TEST_F(GapTest, UnderMpsAWaveIsInTheWayOfWhoGoesFirst) {
  Config config;
  config.mps = true;
  config.switch_us = 10;
  begin(config);
  Event e(EventKind::kKernel, now_, 2);
  e.kernel = {};
  e.kernel.id = 23;
  e.kernel.grid_blocks = 1320;  // ten waves
  e.kernel.block_threads = 128;
  step(e);
  ask(2);
  now_ += 5 * kUs;
  post(1);
  EXPECT_NEAR(important().added_us_max, 10 + 10 + 70, 1);
  policy_.open = false;
  ask(2);
  now_ += 2 * kMs;  // its last waves wait for client 1
  seen();
  EXPECT_EQ(important().gaps_exceeded, 0u);
}

TEST_F(GapTest, NoLaunchPriorityPutsAnybodyFirstWhereTheGpuIsTimeSliced) {
  policy_.launch_priority = -5;
  begin();
  Event e(EventKind::kKernel, now_, 2);
  e.kernel = {};
  e.kernel.id = 23;
  e.kernel.grid_blocks = 1320;  // ten waves, all of which are in the way
  e.kernel.block_threads = 128;
  step(e);
  ask(2);
  post(1);
  EXPECT_NEAR(important().added_us_max, kDefaultUs + 140, 1);
}

TEST_F(GapTest, WhatIsFencedIsInNobodysWayUnderMps) {
  for (const bool mps : {true, false}) {
    Config config;
    config.mps = mps;
    config.launch_priorities = false;  // so that it counts in full, not by its waves
    begin(config);
    granted_partition(24);
    now_ += kUs;
    post(1);
    EXPECT_EQ(important().gaps_filled, mps ? 0u : 1u);
    EXPECT_NEAR(important().added_us_max, mps ? 0 : 5 * kDefaultUs + 140, 1);
    now_ += kMs;
    seen(900);
    EXPECT_EQ(important().gaps_exceeded, mps ? 0u : 1u);
  }
}

TEST_F(GapTest, AWindowCountsWithOneLaunchMore) {
  begin();
  tick(60 * kMs);  // client 1 is idle, and client 2 has a window of 1 ms
  post(2);
  EXPECT_NEAR(important().added_us_max, 1000 + kDefaultUs + 140, 1);
  post(1);
  EXPECT_EQ(important().gaps_filled, 1u);
  EXPECT_NEAR(important().added_us_max, 1000 + kDefaultUs + 140, 1);
}

TEST_F(GapTest, NothingBoundsALeaseBelow) {
  begin();
  attach(3, 4);
  tick(60 * kMs);
  post(3);
  EXPECT_EQ(important().added_us_max, kUnlimitedUs);
}

}  // namespace
}  // namespace heddle::core
