// What is let into a gap on SM sets.
#include <gtest/gtest.h>

#include "tests/unit/core_gap_fixture.h"

namespace heddle::core {
namespace {

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

// What stands at gates has its place as it is posted, whatever its grant says.
TEST_F(GapTest, AClientIsKeptToSomeSmsAtGatesToo) {
  struct : Giving {
    HookResult tick(Gpu& g) override { return g.keep_to(2, sms, for_us), HookResult::kDecided; }
    bool hears_tick() const override { return true; }
    SmCount sms;
    double for_us = 0;
  } keeping;
  begin();
  use(&keeping);
  keeping.verdict.sm = SmCount(64);
  const auto set_at = [&](bool unmovable) {
    Event e = launch(EventKind::kAsked, 2, Admission::kGated);
    e.launch.ask_seq = 7;
    e.launch.unmovable = unmovable;
    step(e);
    EXPECT_TRUE(keeping.asked.movable) << "what follows it";
    return grants_.back().sm_set.bits();
  };
  const auto kept = [&](uint32_t sms, double for_us) {
    keeping.sms = SmCount(sms);
    keeping.for_us = for_us;
    tick(1'000 * kUs);
    return allowance_[2].sm_set.bits();
  };
  EXPECT_EQ(set_at(true), 0u);
  EXPECT_EQ(kept(24, 0), 0xe000u);
  EXPECT_EQ(set_at(false), 0xe000u);
  EXPECT_EQ(core_->stats().on_set, 1u);
  EXPECT_EQ(set_at(true), 0u) << "it was posted before";
  EXPECT_EQ(kept(0, 0), 0u);
  EXPECT_EQ(kept(24, 1'500), 0xe000u);
  EXPECT_LE(core_->next_deadline(), now_ + 1'500 * kUs);
  keeping.sms = {};
  use(nullptr);
  EXPECT_EQ(allowance_[2].sm_set.bits(), 0u) << "it was that policy's";
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

}  // namespace
}  // namespace heddle::core
