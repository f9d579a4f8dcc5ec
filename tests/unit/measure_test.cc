// The measurement stage: what is measured of a task, when that ends, and what a profile spares it.
// Below: runs beside others compared with the same alone.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "daemon/core/estimator.h"
#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

// Of sorted numbers: how far `value` is from where `share` of them lie below, as a share.
double rank_error(const std::vector<double>& sorted, double value, double share) {
  const auto below = std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
  const auto upto = std::upper_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
  const auto n = static_cast<double>(sorted.size());
  const double low = static_cast<double>(below) / n, high = static_cast<double>(upto) / n;
  return std::max({0.0, low - share, share - high});
}

// Seeds are fixed, so that a failure is the code's and not the draw's.
TEST(Distribution, FindsQuantilesOfManyShapesInConstantMemory) {
  constexpr unsigned kSeeds = 20;
  for (int shape = 0; shape < 3; ++shape) {
    for (const size_t count : {30u, 300u, 30'000u}) {
      SCOPED_TRACE("shape " + std::to_string(shape) + ", count " + std::to_string(count));
      double worst = 0, sum = 0;
      for (unsigned seed = 1; seed <= kSeeds; ++seed) {
        std::mt19937 random(seed);
        std::lognormal_distribution<double> skewed(3, 1);
        std::uniform_real_distribution<double> even(5, 500);
        std::normal_distribution<double> narrow(100, 2);
        Distribution d;
        std::vector<double> all;
        for (size_t i = 0; i < count; ++i) {
          all.push_back(shape == 0 ? skewed(random) : shape == 1 ? even(random) : narrow(random));
          d.add(all.back());
        }
        std::sort(all.begin(), all.end());
        const Summary s = d.summary();
        double mean = 0;
        for (const double x : all) mean += x / static_cast<double>(count);
        EXPECT_NEAR(s.mean_us, mean, 1e-4 * mean);
        EXPECT_EQ(s.count, count);
        for (const auto& [value, share] : {std::pair{s.p50_us, 0.5}, std::pair{s.p90_us, 0.9}}) {
          const double error = rank_error(all, static_cast<double>(value), share);
          worst = std::max(worst, error);
          sum += error;
        }
      }
      EXPECT_LT(worst, count < 100 ? 0.2 : 0.05);
      EXPECT_LT(sum / (2 * kSeeds), count < 100 ? 0.05 : 0.02);
    }
  }
}

TEST(Distribution, IsExactForAFew) {
  Distribution d;
  for (const double x : {40.0, 10.0, 30.0, 20.0}) d.add(x);
  const Summary s = d.summary();
  EXPECT_FLOAT_EQ(s.mean_us, 25);
  EXPECT_FLOAT_EQ(s.p50_us, 20);
  EXPECT_FLOAT_EQ(s.p90_us, 40);
}

TEST(Distribution, TakesEqualNumbers) {
  Distribution d;
  for (int i = 0; i < 1000; ++i) d.add(7);
  EXPECT_FLOAT_EQ(d.summary().p50_us, 7);
  EXPECT_FLOAT_EQ(d.summary().p90_us, 7);
}

class MeasureTest : public CoreTest {
 protected:
  static constexpr uint32_t kRuns = 20;

  MeasureTest() {
    Config config;
    config.measure_runs = kRuns;
    config.measure_us = 0;
    reset(config);
  }
  ClientStatus status(ClientId id) {
    for (ClientStatus& s : core_->view().clients()) {
      if (s.view.id == id) return s;
    }
    return {};
  }
  void attach_profiled(ClientId id, double duration_us, double gap_us) {
    Event e(EventKind::kAttached, now_, id);
    e.attached = {};
    e.attached.task = id;
    e.attached.profile_runs = 100;
    e.attached.share = 1;
    step(e);
    Event p(EventKind::kProfile, now_, id);
    const auto d = static_cast<float>(duration_us), g = static_cast<float>(gap_us);
    p.profile = {77, {d, d, d, 32}, {0, 0, 0, 90}, {g, g, g, 10}, 0, {}};
    step(p);
  }
};

// Who says that a kernel took an hour teaches no more than that it was away for half a millisecond.
TEST_F(MeasureTest, NothingTookLongerThanItWasAway) {
  attach(1, 0);
  kernel(1, 0, 77);
  post(1);
  now_ += 500 * kUs;
  done(1, 3.6e9f);
  post(1);
  EXPECT_NEAR(core_->view().clients().front().outstanding_us, 500, 1);
}

TEST_F(MeasureTest, ANewTaskIsMeasuredUntilItsRunsAreDone) {
  attach(1, 0);
  kernel(1, 0, 77);
  EXPECT_EQ(measure_[0], 1);
  teach(1, 300, 700, kRuns - 1);
  EXPECT_EQ(status(1).runs, kRuns - 1);
  EXPECT_FALSE(status(1).profiled);
  EXPECT_EQ(measure_[0], 5) << "one in five of its launches, behind the first";
  EXPECT_TRUE(core_->take_profile(1).kernels.empty());

  teach(1, 300, 700, 1);
  EXPECT_TRUE(status(1).profiled);
  EXPECT_EQ(measure_[0], 0);
  const TaskProfile profile = core_->take_profile(1);
  ASSERT_EQ(profile.kernels.size(), 1u);
  EXPECT_EQ(profile.runs, kRuns);
  EXPECT_EQ(profile.kernels[0].facts.id, 77u);
  EXPECT_EQ(profile.kernels[0].facts.grid_blocks, 132u);
  EXPECT_EQ(profile.kernels[0].duration.count, kRuns);
  EXPECT_NEAR(profile.kernels[0].duration.p50_us, 300, 1);
  EXPECT_EQ(profile.kernels[0].gap_synchronized.count, kRuns - 1);
  EXPECT_NEAR(profile.kernels[0].gap_synchronized.mean_us, 700, 1);
  EXPECT_TRUE(core_->take_profile(1).kernels.empty()) << "taken once";
}

TEST_F(MeasureTest, AProfileStaysAsItWasMeasured) {
  attach(1, 0);
  kernel(1, 0, 77);
  teach(1, 300, 700, kRuns);
  teach(1, 900, 700, 60);
  EXPECT_NEAR(core_->view().profile(1).kernels[0].duration.mean_us, 300, 1);
  EXPECT_NEAR(hint_[0], 900, 60) << "the prediction follows all the same";
}

TEST_F(MeasureTest, AProfiledTaskIsPredictedAtOnceAndNotTimed) {
  attach_profiled(1, 250, 2000);
  kernel(1, 0, 77);
  EXPECT_TRUE(status(1).profiled);
  EXPECT_EQ(status(1).runs, 100u);
  EXPECT_NEAR(hint_[0], 250, 1);
  EXPECT_EQ(measure_.count(0) != 0 ? measure_[0] : 0, 0);
  kernel(1, 1, 78);  // not in the profile
  EXPECT_EQ(measure_[1], 1);
}

// Notes the gap that a dispatch of Q9 may fill.
class GapWitness : public Policy {
 public:
  std::string_view name() const override { return "witness"; }
  DispatchVerdict dispatch(Gpu& gpu) override {
    gap_us = gpu.gap_us(9);
    return {};
  }
  double gap_us = -1;
};

TEST_F(MeasureTest, AGapOfAProfileIsOfferedToOthersAtOnce) {
  attach_profiled(1, 250, 2000);
  kernel(1, 0, 77);
  GapWitness witness;
  use(&witness);
  post(1);
  now_ += 250 * kUs;
  done(1);
  attach(2, 9);
  ask(2);
  EXPECT_NEAR(witness.gap_us, 2000, 50);
}

TEST_F(MeasureTest, AKernelThatTheProfileLacksIsAddedOnceItIsMeasured) {
  attach_profiled(1, 250, 2000);
  kernel(1, 0, 78);
  EXPECT_EQ(measure_[0], 1);
  teach(1, 40, 100, 31);
  EXPECT_TRUE(core_->take_profile(1).kernels.empty());
  teach(1, 40, 100, 1);
  EXPECT_EQ(measure_[0], 0);
  const TaskProfile profile = core_->take_profile(1);
  ASSERT_EQ(profile.kernels.size(), 1u);
  EXPECT_EQ(profile.kernels[0].facts.id, 78u);
}

// A profile's duration is not measured again: it must not be that of a few samples.
TEST_F(MeasureTest, AGraphsKernelThatIsLaunchedDirectlyTooHasNoDurationUntilItIsMeasured) {
  attach(1, 0);
  kernel(1, 0, 77);
  teach(1, 300, 700, kRuns);
  kernel(1, 1, 78);
  Event e(EventKind::kKernel, now_, 1);
  e.kernel = {};
  e.kernel.index = 2;
  e.kernel.id = 79;
  step(e);
  e.kind = EventKind::kNodes;
  e.nodes = {2, 1, 0, {{1, 5}}};
  step(e);
  Event direct = launch(EventKind::kPosted, 1, Admission::kLease);
  direct.launch.kernel = 1;
  step(direct);
  now_ += 100 * kUs;
  done(1, 100);
  const TaskProfile profile = core_->take_profile(1);
  ASSERT_EQ(profile.kernels.size(), 2u);
  EXPECT_EQ(profile.kernels[1].facts.id, 78u);
  EXPECT_EQ(profile.kernels[1].duration.count, 0u);
}

TEST_F(MeasureTest, ASampleTakenBesideAnothersWorkDoesNotCount) {
  attach(1, 0);
  kernel(1, 0, 77);
  attach(2, 0);
  for (int i = 0; i < 200; ++i) {
    post(2);
    teach(1, 300, 700, 1);
    done(2);
  }
  EXPECT_EQ(status(1).runs, 0u);
  EXPECT_TRUE(core_->view().profile(1).kernels.empty());
  EXPECT_EQ(measure_[0], 0) << "and it is not timed for ever";
  tick(100 * kMs);
  teach(1, 300, 700, kRuns);
  EXPECT_TRUE(status(1).profiled) << "the runs count once it is alone";
}

TEST_F(MeasureTest, AClientThatLeftDuringARunHadWorkInIt) {
  attach(1, 0);
  kernel(1, 0, 77);
  attach(2, 0);
  for (uint32_t i = 0; i < kRuns; ++i) {
    post(2);
    post(1);
    Event gone(EventKind::kDetached, now_, 2);
    step(gone);
    now_ += 300 * kUs;
    done(1, 300);
    now_ += 700 * kUs;
    attach(2, 0);
  }
  EXPECT_EQ(status(1).runs, 0u);
  EXPECT_TRUE(core_->view().profile(1).kernels.empty());
}

TEST_F(MeasureTest, AClientThatLeftLongAfterItsWorkRanBesideTheRun) {
  attach(1, 0);
  kernel(1, 0, 77);
  for (uint32_t i = 0; i < kRuns; ++i) {
    attach(2, 0);
    post(2);
    post(1);
    now_ += 100 * kUs;
    done(2);
    tick(30 * kMs);  // it is not active any more
    step(Event(EventKind::kDetached, now_, 2));
    done(1, 30'100);
    now_ += 700 * kUs;
  }
  EXPECT_EQ(status(1).runs, 0u);
  EXPECT_TRUE(core_->view().profile(1).kernels.empty());
}

// Notes what runs of Q0 take.
class RunWitness : public Policy {
 public:
  std::string_view name() const override { return "witness"; }
  DispatchVerdict dispatch(Gpu& gpu) override {
    runs = gpu.runs(9);
    return {};
  }
  RunTimes runs;
};

TEST_F(MeasureTest, RunsOfThoseAboveAreToldWithoutTheirPausesToo) {
  attach_both();
  kernel(1, 0, 77);
  teach(1, 300, 700);
  EXPECT_EQ(core_->view().runs_above().count, 0u) << "nobody below has work";
  RunWitness witness;
  use(&witness);
  ask(2);
  const RunTimes before = witness.runs;
  EXPECT_NEAR((before.alone_us - before.pauses_us) / static_cast<double>(before.count), 300, 5);
  EXPECT_NEAR(before.pauses_us / static_cast<double>(before.count), 300, 10) << "of 700";
  for (int i = 0; i < 4; ++i) {
    post(1);
    now_ += 450 * kUs;
    done(1, 450);
    done(2, 50);
    now_ += 700 * kUs;
    ask(2);
  }
  const RunTimes above = core_->view().runs_above();
  EXPECT_EQ(above.count, 4u);
  EXPECT_NEAR(above.took_us / above.alone_us, 1.5, 0.02);
}

// The driver queues so many launches, and then the host launches as fast as the GPU runs them.
TEST_F(MeasureTest, AHostThatAFullQueueHoldsUpIsSlowedDownByTheGpu) {
  attach_both();
  kernel(1, 0, 77);
  teach(1, 50, 50);
  RunWitness witness;
  use(&witness);
  const auto run = [&](double slower) {
    constexpr int kLaunches = 3000, kQueued = 1024;
    const TimeNs began = now_;
    const auto ran = [&](int launches) {
      return began + static_cast<TimeNs>(launches * slower * 50'000);
    };
    for (int i = 0; i < kLaunches; ++i) {
      now_ = std::max(now_ + 5 * kUs, ran(i - kQueued));
      post(1);
    }
    wait(1);
    now_ = ran(kLaunches);
    done(1, 50);
    tick(kMs);
  };
  for (int i = 0; i < 3; ++i) run(1);
  post(2);
  run(1.25);
  ask(2);
  EXPECT_NEAR(witness.runs.alone_us, 306e3, 2e3) << "one run alone, one beside";
  EXPECT_NEAR(witness.runs.took_us / witness.runs.alone_us, (1 + 1.25) / 2, 0.02);
}

TEST_F(MeasureTest, TheNextProcessOfATaskIsNotMeasuredAgain) {
  attach(1, 0);
  kernel(1, 0, 77);
  teach(1, 300, 700, kRuns);
  step(Event(EventKind::kDetached, now_, 1));
  measure_.clear();
  tick(kMs);
  attach(1, 0);  // the fixture's task is the client's number
  kernel(1, 0, 77);
  EXPECT_TRUE(status(1).profiled);
  EXPECT_EQ(measure_.count(0) != 0 ? measure_[0] : 0, 0);
}

TEST_F(MeasureTest, ACallThatSynchronizesNothingIsNoRun) {
  attach(1, 0);
  kernel(1, 0, 77);
  for (int i = 0; i < 50; ++i) done(1);
  EXPECT_EQ(status(1).runs, 0u);
}

TEST(SlowRuns, CountsRunsThatTookLongerByMoreThanThat) {
  SlowRuns runs;
  for (const double took_us : {90., 100., 105., 110., 111., 150., 1e6}) runs.add(took_us, 100);
  EXPECT_EQ(runs.slower(1), 5u) << "of seven, two as fast as alone";
  EXPECT_EQ(runs.slower(1.1), 3u) << "110 is no more than that";
  EXPECT_EQ(runs.slower(1.5), 1u);
  EXPECT_EQ(runs.slower(100), 1u);
  EXPECT_EQ(runs.slower(102), 0u) << "so far nobody counts";
  EXPECT_EQ(runs.slower(std::nan("")), 5u);
  EXPECT_EQ(runs.slower(std::numeric_limits<double>::infinity()), 0u);
}

TEST(SlowRuns, OneInAHundredTakesLongerThanTheP99) {
  SlowRuns runs;
  EXPECT_EQ(runs.p99(0), 1) << "of none";
  for (int i = 0; i < 297; ++i) runs.add(101, 100);
  EXPECT_NEAR(runs.p99(297), 1.01, 0.001);
  for (int i = 0; i < 3; ++i) runs.add(200, 100);
  EXPECT_NEAR(runs.p99(300), 1.01, 0.001) << "three of 300 may";
  runs.add(150, 100);
  EXPECT_NEAR(runs.p99(301), 1.5, 0.015);
  for (int i = 0; i < 300; ++i) runs.add(1e6, 100);
  EXPECT_NEAR(runs.p99(601), 101, 1) << "or more";
}

TEST(RunComparison, TellsWhatTheSameRunTakesAlone) {
  RunComparison runs;
  const uint64_t kind = RunComparison::kind_of(3, 100), other = RunComparison::kind_of(3, 40);
  EXPECT_EQ(kind, RunComparison::kind_of(3, 104));
  EXPECT_EQ(runs.add(kind, 1000, 10, true, 0), 0);
  EXPECT_EQ(runs.add(kind, 1100, 10, true, 0), 0);
  EXPECT_EQ(runs.add(kind, 5000, 10, false, 0), 1050);
  EXPECT_EQ(runs.add(kind, 5000, 10, false, 0), 1050) << "one beside others teaches nothing";
  EXPECT_EQ(runs.add(other, 5000, 10, false, 0), 0);
  for (int i = 0; i < 40; ++i) runs.add(kind, 2000, 10, true, 0);
  EXPECT_NEAR(runs.add(kind, 5000, 10, false, 0), 2000, 20) << "it follows what changes";
}

TEST(RunComparison, RunsThatScatterMoveWhatItTakesAloneLittle) {
  RunComparison runs;
  std::mt19937 random(7);
  double most_us = 0;
  for (int i = 0; i < 2'000; ++i) {
    const double us = 950 + 100 * (static_cast<double>(random()) / 4294967296.0);
    const double alone_us = runs.add(1, us, 10, true, 0);
    if (i >= 100) most_us = std::max(most_us, std::abs(alone_us - 1000));
  }
  EXPECT_LT(most_us, 20) << "of 1000, of which a promise may be 50";
  for (int i = 0; i < 8; ++i) runs.add(1, 1'150, 10, true, 0);
  EXPECT_NEAR(runs.add(1, 5000, 10, false, 0), 1150, 25) << "what changes is seen at once";
}

TEST(RunComparison, AHostThatLaunchesMoreSlowlyIsNobodysDoing) {
  RunComparison runs;
  constexpr uint64_t kHosts = 1, kGpus = 2;
  for (int i = 0; i < 2; ++i) {
    runs.add(kHosts, 1000, 950, true, 0);
    runs.add(kGpus, 1000, 50, true, 0);
  }
  EXPECT_NEAR(runs.add(kHosts, 1450, 1400, false, 0), 1450, 30);
  EXPECT_NEAR(runs.add(kHosts, 1100, 950, false, 0), 1000, 1) << "it waited for the GPU";
  EXPECT_NEAR(runs.add(kGpus, 1100, 75, false, 0), 1000, 5) << "which takes as long as it does";
}

TEST(RunComparison, AsksForARunAloneOfTheKindThatHadNone) {
  RunComparison runs;
  constexpr uint64_t kLong = 1, kShort = 2;
  TimeNs now = 0;
  const auto add = [&](uint64_t kind, bool alone) {
    now += 10'000'000;
    runs.add(kind, 100, 10, alone, now);
    return runs.comparing(now);
  };
  for (const uint64_t kind : {kLong, kLong, kShort, kShort}) add(kind, true);
  for (uint32_t i = 1; i < RunComparison::kBesideMax; ++i) EXPECT_FALSE(add(kLong, false));
  EXPECT_TRUE(add(kLong, false));
  EXPECT_TRUE(add(kShort, true)) << "not the one that is waited for";
  EXPECT_FALSE(add(kLong, true));
  // It took two runs: thirty are not disturbed then.
  for (int i = 0; i < 29; ++i) EXPECT_FALSE(add(kLong, false)) << i;
  bool asked = false;
  for (int i = 0; i < 4; ++i) asked |= add(kLong, false);
  EXPECT_TRUE(asked);
  EXPECT_FALSE(runs.comparing(now + RunComparison::kPatienceNs)) << "it may never come";
}

// The next run still meets what is in flight, the one after it may be alone.
TEST(RunComparison, ALongRunIsWaitedForUntilItCanBeAlone) {
  RunComparison runs;
  TimeNs now = 0;
  for (uint32_t i = 0; i < 100 && !runs.comparing(now); ++i) {
    now += 150'000'000;
    runs.add(1, 150'000, 0, false, now);
  }
  EXPECT_TRUE(runs.comparing(now + 400'000'000));
  EXPECT_FALSE(runs.comparing(now + RunComparison::kPatienceMostNs));
}

TEST(RunComparison, AsksTheMoreSeldomTheMoreItsRunsAloneAgree) {
  RunComparison runs;
  TimeNs now = 0;
  const auto add = [&](bool alone, double us) {
    now += 10'000'000;
    runs.add(1, us, 0, alone, now);
    return runs.comparing(now);
  };
  const auto until_asked = [&] {
    now += 60'000'000'000;  // it rested
    uint32_t beside = 1;
    while (!add(false, 130)) ++beside;
    return beside;
  };
  for (int i = 0; i < 2; ++i) add(true, 100);
  for (const uint32_t beside : {16, 32, 64, 64}) {
    EXPECT_EQ(until_asked(), beside);
    add(true, 100);
  }
  until_asked();
  add(true, 120);
  EXPECT_EQ(until_asked(), RunComparison::kBesideMax) << "it takes longer now";
}

}  // namespace
}  // namespace heddle::core
