// What is let into a gap beyond one launch at a time: credit and SM sets.
#include <gtest/gtest.h>

#include "tests/unit/core_gap_fixture.h"

namespace heddle::core {
namespace {

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

// What fits gaps is free until it is seen to hold up the runs behind them.
TEST_F(GapTest, NoCreditIsGivenThatAPromiseAboveCannotAfford) {
  begin_mps();
  policy_.verdict.credit_us = 300;
  const auto credit_under = [&](float slowdown_max) {
    Event e(EventKind::kTerms, now_, 1);
    e.terms = {1, 0, 0, 0, {slowdown_max}};
    step(e);
    for (int i = 0; i < 20; ++i) {
      ask(2);
      now_ += 1400 * kUs;
      post(1);
      now_ += kMs;  // 500 us alone
      done(1, 1000);
      done(2, 50);
      now_ += 100 * kUs;
    }
    return grants_.back().credit_us;
  };
  EXPECT_EQ(credit_under(0), 300u);
  EXPECT_EQ(credit_under(1.01F), 0u);
  EXPECT_EQ(grants_.size(), 40u) << "this policy looks at no budget";
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

TEST_F(GapTest, APolicySeesWhatALaunchTakesBehindTheFourBeforeItAndTheMeanOfAll) {
  begin();
  for (uint32_t index = 1; index < 9; ++index) kernel(2, index, 100 + index);
  const auto lead_to = [this](uint32_t layer) {
    for (uint32_t index = 1; index < 5; ++index) {
      Event e = launch(EventKind::kPosted, 2, Admission::kLease);
      e.launch.kernel = 4 * layer + index;
      step(e);
    }
  };
  for (uint32_t i = 0; i < 16; ++i) {
    lead_to(i % 2);
    post(2);
    now_ += (i % 2 == 0 ? 455 : 2100) * kUs;
    done(2, i % 2 == 0 ? 455 : 2100);
  }
  lead_to(0);
  ask(2);
  EXPECT_NEAR(policy_.asked.predicted_us, 455, 1);
  EXPECT_NEAR(policy_.asked.mean_us, (455 + 2100) / 2, 200);
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

TEST_F(GapTest, AnSmSetIsTheLastGroupsThatHoldTheSizeOfWhatTheClientHas) {
  begin();
  EXPECT_EQ(granted_set(24), 0xe000u) << "12 + 8 + 8";
  EXPECT_EQ(core_->stats().on_set, 1u);
  EXPECT_EQ(policy_.gpu.sm_free.get(), 132u);
  policy_.open = false;
  ask(2, 1);
  EXPECT_EQ(policy_.gpu.sm_free.get(), 132u - 28);
  EXPECT_NEAR(policy_.gpu.inflight_us, 5 * kDefaultUs, 1) << "132 blocks on 28 SMs: five waves";
  now_ += 480 * kUs;
  Event e(EventKind::kCompleted, now_, 2);
  e.done = {stream_seq_[2] - 1, 480, 0, Evidence::kMarker};
  step(e);
  EXPECT_EQ(policy_.gpu.sm_free.get(), 132u);
  EXPECT_NEAR(hint_[0], 480 / 5, 1);
}

TEST_F(GapTest, AKernelThatIsAlwaysOnAnSmSetIsNotTimedForEver) {
  begin();
  policy_.verdict.sm = SmCount(24);
  measure_[0] = 1;  // client 2's
  int timed = 0;
  for (; measure_[0] != 0 && timed < 1000; ++timed) {
    ask(2);
    now_ += 500 * kUs;
    seen(500);
  }
  EXPECT_EQ(timed, 128);
  EXPECT_NEAR(core_->view().outlook(2, now_, 0).duration_us, 100, 1);
  EXPECT_FALSE(core_->view().outlook(2, now_, 0).duration_timed);
  policy_.verdict.sm = SmCount(0);
  ask(2);
  now_ += 90 * kUs;
  seen(90);
  EXPECT_EQ(measure_[0], 1) << "now it is worth while";
  EXPECT_NEAR(core_->view().outlook(2, now_, 0).duration_us, 90, 1);
}

TEST_F(GapTest, WorkOnAnSmSetUnderMpsHoldsUpItsOwnClientAlone) {
  for (const bool mps : {true, false}) {
    Config config;
    config.mps = mps;
    policy_.open = true;
    begin(config);
    attach(3, 9);
    granted_set(24);
    policy_.open = false;
    ask(2);
    EXPECT_EQ(policy_.fit.client, 0u) << "it would begin when what is on SM sets ends";
    EXPECT_NEAR(policy_.gpu.inflight_us, 5 * kDefaultUs, 1);
    EXPECT_NEAR(policy_.gpu.on_sets_us, mps ? 5 * kDefaultUs : 0, 1);
    ask(3);
    EXPECT_EQ(policy_.fit.client, 3u);
  }
}

TEST_F(GapTest, GroupsThatNoDeviceHasTakeNoMoreThanThereIs) {
  Config config;
  config.sm_total = SmCount(16);
  begin(config);
  granted_set(100);
  policy_.open = false;
  ask(2, 1);
  EXPECT_EQ(policy_.gpu.sm_free.get(), 0u);
}

TEST_F(GapTest, AnSmSetLiesWithinWhatTheRuleGives) {
  begin({}, 0x00ff);
  EXPECT_EQ(granted_set(16), 0x00c0u);
  EXPECT_EQ(granted_set(100), 0x00ffu) << "all that it has leaves the others out";
  EXPECT_EQ(core_->stats().off_set, 0u);
}

TEST_F(GapTest, NoLaunchHasAnSmSetWhereNobodySaidHowTheDeviceSplits) {
  begin({}, 0, false);
  EXPECT_EQ(granted_set(24), 0u);
  EXPECT_FALSE(policy_.asked.movable);
  EXPECT_EQ(core_->stats().off_set, 1u);
}

TEST_F(GapTest, KernelsAndGraphsHaveSmSetsUnlessTheyCannotMove) {
  begin();
  policy_.verdict.sm = SmCount(24);
  for (const LaunchKind kind : {LaunchKind::kKernel, LaunchKind::kGraph}) {
    for (const bool unmovable : {false, true}) {
      Event e = launch(EventKind::kAsked, 2, Admission::kAsk);
      e.launch.kind = kind;
      e.launch.unmovable = unmovable;
      step(e);
      EXPECT_EQ(grants_.back().sm_set.empty(), unmovable);
      EXPECT_EQ(policy_.asked.movable, !unmovable);
    }
  }
  EXPECT_EQ(core_->stats().on_set, 2u);
  EXPECT_EQ(core_->stats().off_set, 2u);
}

TEST_F(GapTest, AGrantedLaunchThatCouldNotMoveHasNoSmSet) {
  begin_mps();
  granted_set(24);
  Event stayed = launch(EventKind::kWithdrawn, 2, Admission::kAsk);
  stayed.launch.stream_seq = --stream_seq_[2];
  stayed.launch.ask_seq = 1;
  stayed.launch.unmovable = true;
  step(stayed);
  EXPECT_EQ(core_->stats().crossed, 0u) << "its grant was used";
  policy_.open = false;
  ask(2, 1);
  EXPECT_EQ(policy_.gpu.sm_free.get(), 132u);
  EXPECT_EQ(policy_.gpu.on_sets_us, 0);
  now_ += 90 * kUs;
  seen(90);
  EXPECT_TRUE(core_->view().outlook(2, now_, 0).duration_timed) << "on all SMs";
  EXPECT_NEAR(core_->view().outlook(2, now_, 0).duration_us, 90, 1);
}

TEST_F(GapTest, ALaunchByCreditThatCouldNotMoveHasNoSmSet) {
  begin_mps();
  policy_.verdict.credit_us = 1000;
  granted_set(24);
  Event e = launch(EventKind::kPosted, 2, Admission::kCredit);
  e.launch.unmovable = true;
  step(e);
  policy_.open = false;
  ask(2, 1);
  EXPECT_NEAR(policy_.gpu.inflight_us, 6 * kDefaultUs, 1);
  EXPECT_NEAR(policy_.gpu.on_sets_us, 5 * kDefaultUs, 1) << "what was granted alone";
}

}  // namespace
}  // namespace heddle::core
