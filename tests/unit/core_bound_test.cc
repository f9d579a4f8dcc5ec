// What heddle says that others may add to a gap, and when it did not hold: what is in flight, the
// switch (70 µs) and the notice (70 µs).
#include <gtest/gtest.h>

#include "tests/unit/core_gap_fixture.h"

namespace heddle::core {
namespace {

using BoundTest = GapTest;

TEST_F(BoundTest, TheBoundIsWhatWasInFlightWhenTheGapEnded) {
  begin();
  ask(2);
  EXPECT_NEAR(important().added_us_max, 100 + 140, 1);
  now_ += 10 * kUs;
  post(1);
  EXPECT_EQ(important().gaps_filled, 1u);
  EXPECT_EQ(core_->stats().gaps_filled, 1u);
  EXPECT_NEAR(important().added_us_max, 100 + 140, 1);
  policy_.open = false;
  ask(2);  // so it looks
  now_ += 200 * kUs;
  seen();
  EXPECT_EQ(important().gaps_exceeded, 0u) << "within the bound";
}

TEST_F(BoundTest, ALaunchThatOutlastsItsPredictionViolatesTheBoundOnce) {
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
TEST_F(BoundTest, UnderMpsLaunchesThatAreSeenTogetherAreNotJudgedByTheEndOfTheLast) {
  for (const bool together : {true, false}) {
    begin_mps();
    ask(2);
    ask(2, 1);
    now_ += 30 * kUs;
    end_gap_and_look();
    now_ += 350 * kUs;
    if (!together) seen(0, 1);
    EXPECT_EQ(important().gaps_exceeded, together ? 0u : 1u);
    now_ += 100 * kUs;
    seen();
    EXPECT_EQ(important().gaps_exceeded, together ? 0u : 1u) << "one gap, one violation";
    const Violation worst = important().worst;
    EXPECT_NEAR(worst.over_us(), together ? 0 : 350 - important().added_us_max, 1);
    if (together) continue;
    EXPECT_EQ(worst.by, 2u);
    EXPECT_NEAR(worst.before_us, 30, 0.1);
    EXPECT_NEAR(worst.predicted_us, kDefaultUs, 0.1);
    EXPECT_EQ(worst.measured_us, 0);
  }
}

TEST_F(BoundTest, UnderMpsASynchronizingCallTellsWhenTheLastOfTheLaunchesBeforeItEnded) {
  for (const bool together : {true, false}) {
    begin_mps();
    ask(2);
    if (together) ask(2, 1);
    now_ += 30 * kUs;
    post(1);
    Event e(EventKind::kWaiting, now_, 2);
    e.done = {0, 0, kEveryStream, Evidence::kNone};
    step(e);
    now_ += 450 * kUs;
    e = Event(EventKind::kCompleted, now_, 2);
    e.done = {0, 0, kEveryStream, Evidence::kSynchronized};
    step(e);
    EXPECT_EQ(important().gaps_exceeded, together ? 0u : 1u);
  }
}

// What began once the gap was over had its blocks placed behind those of client 1.
TEST_F(BoundTest, UnderMpsAMeasuredLaunchIsJudgedIfItRanAsTheGapEnded) {
  for (const float measured_us : {445.0F, 300.0F}) {
    begin_mps();
    ask(2);
    ask(2, 1);
    now_ += 30 * kUs;
    end_gap_and_look();
    now_ += 450 * kUs;
    seen(measured_us);
    EXPECT_EQ(important().gaps_exceeded, measured_us > 400 ? 1u : 0u) << measured_us;
  }
}

// Its blocks wait for those of client 1.
TEST_F(BoundTest, UnderMpsWhatWasLetGoJustBeforeTheGapEndedIsNotJudged) {
  for (const int before_us : {10, 29, 31}) {  // 20 µs, and a switch
    begin_mps();
    ask(2);
    now_ += before_us * kUs;
    end_gap_and_look();
    now_ += kMs;
    seen();
    EXPECT_EQ(important().gaps_exceeded, before_us < 30 ? 0u : 1u) << before_us;
  }
}

TEST_F(BoundTest, TimeSlicedWhatClient1RanMeanwhileIsNotHeldAgainstTheLaunch) {
  for (const int ran : {2, 0}) {
    begin();
    ask(2);
    now_ += 10 * kUs;
    end_gap_and_look();
    for (int i = 0; i < ran; ++i) {
      now_ += 500 * kUs;
      done(1, 500);
      post(1);
    }
    now_ += (1100 - ran * 500) * kUs;
    seen();
    EXPECT_EQ(important().gaps_exceeded, ran == 2 ? 0u : 1u);
  }
}

// Further gaps of client 1, by what is predicted, end while the launch that was let in still runs.
TEST_F(BoundTest, AViolationIsFoundThoughOtherGapsEndedSince) {
  Config config;
  config.mps = true;
  config.launch_priorities = false;  // so that they run beside each other
  begin(config);
  ask(2);
  now_ += 10 * kUs;
  end_gap_and_look();
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

TEST_F(BoundTest, AnEndThatNobodyLookedForIsNoViolationUnlessItWasMeasured) {
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

TEST_F(BoundTest, AnEndThatWasLookedForTooLateIsNoViolation) {
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

TEST_F(BoundTest, ALaunchThatWasTakenForDoneIsJudgedWhenItsEndIsSeen) {
  begin();
  ask(2);
  Event marker(EventKind::kCompleted, 0, 2);
  marker.done = {stream_seq_[2], 0, 0, Evidence::kMarker};
  now_ += 10 * kUs;
  end_gap_and_look();
  for (int ms = 1; ms < 30; ++ms) {
    tick(kMs);
    post(1);
    EXPECT_EQ(core_->view().clients()[1].outstanding_us > 0, ms <= 20);
  }
  marker.at = now_;
  step(marker);
  EXPECT_EQ(important().gaps_exceeded, 1u);
}

// Its work was predicted to be over, so that others were let in; now it waits for it.
TEST_F(BoundTest, ASynchronizingCallEndsAGap) {
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

TEST_F(BoundTest, UnderMpsAWaveIsInTheWayOfWhoGoesFirst) {
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
  now_ += 30 * kUs;
  post(1);
  EXPECT_NEAR(important().added_us_max, 10 + 10 + 70, 1);
  policy_.open = false;
  ask(2);
  now_ += 2 * kMs;  // its last waves wait for client 1
  seen();
  EXPECT_EQ(important().gaps_exceeded, 0u);
}

// Which of its nodes is the longest is not known.
TEST_F(BoundTest, UnderMpsAllOfAGraphIsInTheWayOfWhoGoesFirst) {
  begin_mps();
  Event e(EventKind::kKernel, now_, 2);
  e.kernel = {};
  e.kernel.id = 23;
  e.kernel.grid_blocks = 100;
  step(e);
  ask(2);
  now_ += 30 * kUs;
  post(1);
  EXPECT_NEAR(important().added_us_max, kDefaultUs + 10 + 70, 1);
}

TEST_F(BoundTest, NoLaunchPriorityPutsAnybodyFirstWhereTheGpuIsTimeSliced) {
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

TEST_F(BoundTest, LaunchOnAnSmSetIsInNobodysWayUnderMps) {
  for (const bool mps : {true, false}) {
    Config config;
    config.mps = mps;
    config.launch_priorities = false;  // so that it counts in full, not by its waves
    begin(config);
    granted_set(24);
    now_ += kUs;
    post(1);
    EXPECT_EQ(important().gaps_filled, mps ? 0u : 1u);
    EXPECT_NEAR(important().added_us_max, mps ? 0 : 5 * kDefaultUs + 140, 1);
    now_ += kMs;
    seen(900);
    EXPECT_EQ(important().gaps_exceeded, mps ? 0u : 1u);
  }
}

TEST_F(BoundTest, WhatWentAheadOfTimeCountsAndNoMore) {
  begin();
  tick(60 * kMs);  // client 1 is idle
  for (int i = 0; i < 3; ++i) ask(2);
  post(1);
  EXPECT_EQ(important().gaps_filled, 1u);
  EXPECT_NEAR(important().added_us_max, 3 * kDefaultUs + 140, 1);
}

TEST_F(BoundTest, NothingBoundsALeaseBelow) {
  begin();
  attach(3, 4);
  tick(60 * kMs);
  post(3);
  EXPECT_EQ(important().added_us_max, kUnlimitedUs);
}

}  // namespace
}  // namespace heddle::core
