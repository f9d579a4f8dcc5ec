// What the core predicts: durations of what nobody timed, ends of queues, gaps and their phases.
#include <gtest/gtest.h>

#include "core_fixture.h"
#include "daemon/core/estimator.h"

namespace heddle::core {
namespace {

class PredictorTest : public CoreTest {
 protected:
  PredictorTest() { attach(1, 0); }

  // Launches kernel `index` once, at `now_`.
  void launch_of(uint32_t index, ClientId id = 1) {
    Event e = launch(EventKind::kPosted, id, Admission::kLease);
    e.launch.kernel = index;
    step(e);
  }
  void begin_wait(ClientId id = 1) {
    Event e(EventKind::kWaiting, now_, id);
    e.done = {0, 0, kEveryStream, Evidence::kNone};
    step(e);
  }
  // A synchronizing call that returns after `us`; all that was launched is done then.
  void wait(double us) {
    begin_wait();
    now_ += to_ns(us);
    done(1);
  }
  double predicted(uint32_t index) { return core_->view().outlook(1, now_, index).duration_us; }
  static TimeNs to_ns(double us) { return static_cast<TimeNs>(us * 1e3); }
};

TEST_F(PredictorTest, AnUntimedLaunchIsInferredFromTheEndOfItsQueue) {
  kernel(1, 0, 70);
  for (int i = 0; i < 10; ++i) launch_of(0);
  EXPECT_EQ(core_->view().outlook(1, now_, 0).queue_end, now_ + to_ns(10 * 100))
      << "the default each";
  wait(600);  // 400 too long for 1000: 60 each
  EXPECT_DOUBLE_EQ(predicted(0), 60);
  EXPECT_FLOAT_EQ(hint_[0], 60) << "the shim charges the same";
  EXPECT_EQ(measure_[0], 1);
  now_ += kMs;
  for (int i = 0; i < 5; ++i) launch_of(0);
  EXPECT_EQ(core_->view().outlook(1, now_, 0).queue_end, now_ + to_ns(5 * 60));
  wait(450);
  EXPECT_DOUBLE_EQ(predicted(0), 90);
}

TEST_F(PredictorTest, OneQueuesEndMovesADurationByAFactorOfTwoAtMost) {
  kernel(1, 0, 70);
  launch_of(0);
  wait(20);
  EXPECT_DOUBLE_EQ(predicted(0), 50);
  now_ += kMs;
  launch_of(0);
  wait(5'000);
  EXPECT_DOUBLE_EQ(predicted(0), 100);
}

TEST_F(PredictorTest, TimedLaunchesAreBelievedAndUntimedOnesTakeTheBlame) {
  kernel(1, 0, 70);
  kernel(1, 1, 71);
  launch_of(0);
  now_ += to_ns(40);
  done(1, 40);
  now_ += kMs;
  for (int i = 0; i < 5; ++i) launch_of(0);
  for (int i = 0; i < 2; ++i) launch_of(1);  // 40 each, as the typical launch of this client
  wait(340);                                 // 60 more than 5 x 40 + 2 x 40
  EXPECT_DOUBLE_EQ(predicted(0), 40);
  EXPECT_DOUBLE_EQ(predicted(1), 70);
}

// The convolution of two layers is one kernel ID: 0 takes 455 after 1 to 4, and 2100 after 5 to 8.
class TwoLayersTest : public PredictorTest {
 protected:
  static constexpr double kMean = (455 + 2100) / 2.0;
  TwoLayersTest() { introduce(); }
  void begin(const Config& config) {
    reset(config);
    attach(1, 0);
    introduce();
  }
  void introduce() {
    for (uint32_t index = 0; index < 9; ++index) kernel(1, index, 70 + index);
  }
  void lead_to(uint32_t layer) {
    for (uint32_t index = 1; index < 5; ++index) launch_of(4 * layer + index);
  }
  void run(uint32_t layer, float us) {
    lead_to(layer);
    launch_of(0);
    now_ += to_ns(static_cast<double>(us));
    done(1, us);
  }
  void run_both(int times) {
    for (int i = 0; i < times; ++i) {
      run(0, 455);
      run(1, 2100);
    }
  }
  void row() {
    Event row(EventKind::kRow, now_, 1);
    row.untold = {12, 1, 0};
    step(row);
  }
};

TEST_F(TwoLayersTest, AreToldApartByWhatWasLaunchedBefore) {
  run_both(8);
  lead_to(0);
  EXPECT_NEAR(predicted(0), 455, 1);
  lead_to(1);
  EXPECT_NEAR(predicted(0), 2100, 1);
  EXPECT_NEAR(hint_[0], 2100, 1) << "the shim charges no less";
  launch_of(1);
  EXPECT_NEAR(predicted(0), kMean, 200) << "it never came after that";
  launch_of(0);
  now_ += to_ns(600);
  done(1, 600);
  lead_to(1);
  launch_of(1);
  EXPECT_NEAR(predicted(0), kMean, 200) << "once may be by chance";
}

TEST_F(TwoLayersTest, AreNotToldApartWhereNobodyKnowsWhatCameBefore) {
  run_both(8);
  lead_to(1);
  row();
  EXPECT_NEAR(predicted(0), kMean, 200);
  lead_to(1);
  launch_of(kUnknownKernel);
  EXPECT_NEAR(predicted(0), kMean, 200);
  lead_to(1);
  step(Event(EventKind::kUnobserved, now_, 1));
  EXPECT_NEAR(predicted(0), kMean, 200);
  lead_to(1);
  EXPECT_NEAR(predicted(0), kMean, 200) << "only some are told";
  Event observed(EventKind::kObserved, now_, 1);
  observed.untold = {12, kUnknownKernel, 0};
  step(observed);
  EXPECT_NEAR(predicted(0), kMean, 200);
  lead_to(1);
  EXPECT_NEAR(predicted(0), 2100, 1);
}

TEST_F(TwoLayersTest, AreNotToldApartByFewerThanFourLaunches) {
  run_both(8);
  const auto after_a_row = [this] {
    row();
    launch_of(1);
  };
  for (int i = 0; i < 3; ++i) {
    after_a_row();
    launch_of(0);
    now_ += to_ns(100);
    done(1, 100);
  }
  after_a_row();
  EXPECT_GT(predicted(0), 600) << "the mean of all";
}

TEST_F(TwoLayersTest, AreToldApartByTheNextDaemonToo) {
  Config config;
  config.measure_us = 0;  // the runs alone decide
  begin(config);
  run_both(50);
  ASSERT_TRUE(core_->view().measured(1));
  EXPECT_FALSE(core_->take_profile(1).kernels.empty());
  const TaskProfile profile = core_->view().profile(1);
  reset({});
  attach(1, 0);
  for (const KernelProfile& k : profile.kernels) {
    Event e(EventKind::kProfile, now_, 1);
    e.profile = {k.facts.id, k.duration, k.gap_launching, k.gap_synchronized, 0, {}};
    step(e);
    EXPECT_EQ(k.after.size(), k.facts.id == 70 ? 2u : 0u);
    for (const DurationAfter& a : k.after) {
      e.profile = {k.facts.id, {a.mean_us, a.mean_us, a.mean_us, a.count}, {}, {}, a.before, {}};
      step(e);
    }
  }
  introduce();
  EXPECT_EQ(measure_[0], 0) << "it need not be timed for that again";
  lead_to(0);
  EXPECT_NEAR(predicted(0), 455, 1);
  lead_to(1);
  EXPECT_NEAR(predicted(0), 2100, 1);
  for (int i = 0; i < 20; ++i) run(0, 500);
  EXPECT_GT(core_->view().profile(1).kernels.at(0).after.at(0).count, 20u + 24u);
}

TEST_F(TwoLayersTest, AreSavedAgainOnceTheyAreToldApart) {
  Config config;
  config.measure_us = 0;
  config.measure_runs = 8;
  begin(config);
  run_both(4);
  EXPECT_FALSE(core_->take_profile(1).kernels.empty());
  for (int i = 0; i < 10; ++i) run(0, 455);
  EXPECT_TRUE(core_->take_profile(1).kernels.empty());
  for (int i = 0; i < 20; ++i) run(1, 2100);
  const TaskProfile more = core_->take_profile(1);
  ASSERT_FALSE(more.kernels.empty());
  ASSERT_EQ(more.kernels[0].after.size(), 2u);
  EXPECT_EQ(more.kernels[0].duration.count, 8u) << "what was measured stays";
}

TEST_F(TwoLayersTest, AreTimedUntilTheyAre) {
  for (int i = 0; i < 32; ++i) run(0, 455);
  EXPECT_EQ(measure_[0], 0) << "measured, and all alike";
  for (int i = 0; i < 3; ++i) run(1, 2100);
  EXPECT_GT(measure_[0], 0);
  for (int i = 0; i < 32; ++i) run(i % 2 != 0, i % 2 != 0 ? 2100 : 455);
  EXPECT_EQ(measure_[0], 0);
}

TEST_F(TwoLayersTest, AreOneWhereTheyDifferByLittle) {
  for (const float us : {10.0F, 1000.0F}) {  // by 15 µs; by a tenth
    begin({});
    for (int i = 0; i < 16; ++i) {
      run(0, us);
      run(1, us + (us < 100 ? 15 : 100));
    }
    lead_to(0);
    EXPECT_GT(predicted(0), us + 4);
  }
}

TEST_F(TwoLayersTest, AreNotToldApartByWhatRanBesideOthers) {
  run_both(8);
  attach(2, 9);
  kernel(2, 0, 80);
  launch_of(0, 2);
  run(0, 4000);
  lead_to(0);
  EXPECT_NEAR(predicted(0), 455, 1);
}

TEST(DurationEstimateTest, KeepsSoManyContexts) {
  DurationEstimate estimate;
  const auto before = [](size_t i) {
    Context context;
    for (uint64_t k = 1; k < 5; ++k) context.launched(4 * i + k);
    return context;
  };
  const auto us = [](size_t i) { return i % 2 == 0 ? 100.0 : 1000.0; };
  for (int times = 0; times < 3; ++times) {
    for (size_t i = 0; i < DurationEstimate::kContextsMax; ++i)
      estimate.add(us(i), true, before(i));
  }
  for (size_t i = 0; i < DurationEstimate::kContextsMax; ++i) {
    EXPECT_EQ(estimate.us(before(i)), us(i)) << i;
  }
  for (int times = 0; times < 2; ++times) estimate.add(5000, true, before(99));
  EXPECT_EQ(estimate.us(before(99)), 5000);
  size_t known = 0;
  for (size_t i = 0; i < DurationEstimate::kContextsMax; ++i) {
    known += estimate.us(before(i)) == us(i) ? 1 : 0;
  }
  EXPECT_EQ(known, DurationEstimate::kContextsMax - 1) << "the first made room";
}

TEST_F(PredictorTest, ACallThatReturnsAtOnceSaysOnlyThatTheWorkWasOver) {
  kernel(1, 0, 70);
  for (int i = 0; i < 4; ++i) launch_of(0);
  now_ += to_ns(297);
  wait(3);  // over after 300, not after 400: 75 each at most
  EXPECT_DOUBLE_EQ(predicted(0), 75);
  now_ += kMs;
  for (int i = 0; i < 4; ++i) launch_of(0);
  now_ += to_ns(900);
  wait(3);  // over for long
  EXPECT_DOUBLE_EQ(predicted(0), 75);
}

TEST_F(PredictorTest, OnlyWhatTheQueueHeldWhenItEndedIsCorrected) {
  kernel(1, 0, 70);
  kernel(1, 1, 71);
  launch_of(0);
  now_ += kMs;  // its end has passed by any account
  launch_of(1);
  wait(150);
  EXPECT_DOUBLE_EQ(predicted(0), 100);
  EXPECT_DOUBLE_EQ(predicted(1), 150);
}

TEST_F(PredictorTest, NothingIsInferredBesideOthers) {
  attach(2, 0);
  kernel(1, 0, 70);
  launch_of(0, 2);
  launch_of(0);
  wait(200);
  EXPECT_DOUBLE_EQ(predicted(0), 100);
}

TEST_F(PredictorTest, NothingIsInferredFromAQueueWithUnseenWorkInIt) {
  kernel(1, 0, 70);
  step(Event(EventKind::kUnobserved, now_, 1));
  now_ += kMs;
  Event observed(EventKind::kObserved, now_, 1);
  observed.untold = {12, kUnknownKernel, 0};
  step(observed);
  launch_of(0);
  wait(900);
  EXPECT_DOUBLE_EQ(predicted(0), 100);
  now_ += kMs;
  launch_of(0);
  wait(140);
  EXPECT_DOUBLE_EQ(predicted(0), 140) << "after a synchronizing call all is seen again";
}

TEST_F(PredictorTest, AnUnknownKernelIsTakenForTheMiddleOneOfItsClient) {
  for (const uint32_t us : {10u, 900u, 20u}) {
    kernel(1, us, us);
    launch_of(us);
    now_ += to_ns(us);
    done(1, static_cast<float>(us));
    now_ += kMs;
  }
  EXPECT_DOUBLE_EQ(predicted(kUnknownKernel), 20);
  EXPECT_DOUBLE_EQ(predicted(900), 900);
}

// Of a client whose predicted ends are believed most launches are taken for done before their timed
// events are read.
TEST_F(PredictorTest, ADurationThatComesAfterThePredictedEndIsLearned) {
  kernel(1, 0, 70);
  launch_of(0);
  tick(to_ns(150));  // of 100 predicted
  launch_of(0);
  Event late(EventKind::kCompleted, now_, 1);
  late.done = {1, 130, 0, Evidence::kMarker};
  step(late);
  EXPECT_DOUBLE_EQ(predicted(0), 130);
  EXPECT_FLOAT_EQ(hint_[0], 130);
  late.done.duration_us = 500;
  step(late);
  EXPECT_DOUBLE_EQ(predicted(0), 130) << "it is learned once";
}

TEST_F(PredictorTest, ADurationOfAStreamsSuccessorIsNotTakenForItsOwn) {
  kernel(1, 0, 70);
  launch_of(0);
  tick(to_ns(150));
  step(Event(EventKind::kStreamEnd, now_, 1));
  Event successor(EventKind::kCompleted, now_, 1);
  successor.done = {1, 500, 0, Evidence::kMarker};
  step(successor);
  EXPECT_DOUBLE_EQ(predicted(0), 100);
}

TEST_F(PredictorTest, AGraphIsOneLaunchWithADurationOfItsOwn) {
  kernel(1, 0, 70);
  kernel(1, 1, 71);
  const auto graph = [&] {
    Event e = launch(EventKind::kPosted, 1, Admission::kLease);
    e.launch.kernel = 1;
    e.launch.kind = LaunchKind::kGraph;
    step(e);
  };
  graph();
  wait(180);
  now_ += 400 * kUs;
  graph();
  EXPECT_EQ(core_->view().outlook(1, now_, 1).queue_end, now_ + to_ns(180));
  wait(180);
  now_ += 400 * kUs;
  graph();
  wait(180);
  const Outlook after = core_->view().outlook(1, now_, 0);
  EXPECT_TRUE(after.gap_synchronized);
  EXPECT_DOUBLE_EQ(after.gap_us, 400);
  EXPECT_DOUBLE_EQ(after.duration_us, 100) << "no other kernel learns from it";
}

TEST_F(PredictorTest, ALaunchBehindAFullQueueTeachesNoGap) {
  kernel(1, 0, 70);
  const auto launch_after = [&](double us) {
    now_ += to_ns(us);
    launch_of(0);
  };
  launch_after(0);
  launch_after(150);  // 50 after the predicted end
  launch_after(150);
  launch_after(10);  // the GPU is busy
  launch_after(10);
  tick(to_ns(300));
  EXPECT_DOUBLE_EQ(core_->view().outlook(1, now_, 0).gap_us, 50);
}

TEST(GapEstimateTest, ForgetsWhatItKnewWhenThreeGapsInARowAreOfAnotherKind) {
  GapEstimate gap;
  for (int i = 0; i < 30; ++i) gap.add(100);
  EXPECT_DOUBLE_EQ(gap.low_us(), 100);
  gap.add(30);
  gap.add(20);
  EXPECT_GT(gap.low_us(), 50) << "two may be chance";
  gap.add(25);
  EXPECT_DOUBLE_EQ(gap.low_us(), 20);
  for (const double us : {5.0, 900.0, 1000.0, 800.0}) gap.add(us);  // one that is shorter is none
  EXPECT_DOUBLE_EQ(gap.low_us(), 800);
}

TEST(GapEstimateTest, GapsOfTwoKindsInTurnAreNoNewPhase) {
  GapEstimate gap;
  for (int i = 0; i < 200; ++i) gap.add(i % 2 == 0 ? 10 : 100);
  EXPECT_LE(gap.low_us(), 15);
}

TEST(GapEstimateTest, PromisesNothingBeforeTheSecondGap) {
  GapEstimate gap;
  gap.add(100);
  EXPECT_EQ(gap.low_us(), 0);
  gap.add(80);
  EXPECT_DOUBLE_EQ(gap.low_us(), 80);
}

}  // namespace
}  // namespace heddle::core
