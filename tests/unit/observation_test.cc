// Whose launches nobody need hear of: when that begins and ends, and what the core makes of it.
#include "daemon/server/reports.h"

#include "tests/unit/core_fixture.h"

namespace heddle::server {
namespace {

using core::TimeNs;

constexpr TimeNs kMs = 1'000'000;
constexpr core::ClientId kAlone = 7;

class ObservationTest : public ::testing::Test {
 protected:
  // Client kAlone launches at this rate for a while; who is unobserved then.
  core::ClientId launch(double per_s, TimeNs for_ns, core::ClientId alone = kAlone) {
    core::ClientId unobserved = 0;
    for (const TimeNs end = now_ + for_ns; now_ < end; now_ += kMs) {
      posted_ += per_s / 1e3;
      unobserved = observation_.update(now_, alone, static_cast<uint64_t>(posted_));
    }
    return unobserved;
  }

  Observation observation_;
  TimeNs now_ = 0;
  double posted_ = 0;
};

TEST_F(ObservationTest, BeginsOnceAProgramIsAloneAndFast) {
  EXPECT_EQ(launch(50'000, 90 * kMs), 0u);
  EXPECT_EQ(launch(50'000, 20 * kMs), kAlone);
}

TEST_F(ObservationTest, IsNotForWhoLaunchesSlowly) {
  EXPECT_EQ(launch(Observation::kLaunchesPerS / 2, 2'000 * kMs), 0u);
}

TEST_F(ObservationTest, LooksNowAndThen) {
  launch(50'000, 110 * kMs);
  int observed = 0;
  for (int ms = 0; ms < 5'000; ++ms) observed += launch(50'000, kMs) == 0;
  EXPECT_NEAR(observed, 200, 20);
}

TEST_F(ObservationTest, EndsForWhoStoppedWorking) {
  launch(50'000, 110 * kMs);
  launch(0, 520 * kMs);
  for (int ms = 0; ms < 1'000; ++ms) EXPECT_EQ(launch(0, kMs), 0u);
}

TEST_F(ObservationTest, EndsAtOnceWithAnother) {
  EXPECT_EQ(launch(50'000, 110 * kMs), kAlone);
  EXPECT_EQ(observation_.update(now_, 0, 0), 0u);
  EXPECT_EQ(launch(50'000, 90 * kMs), 0u) << "alone again, but not for long enough";
}

}  // namespace
}  // namespace heddle::server

namespace heddle::core {
namespace {

class UnobservedTest : public CoreTest {
 protected:
  UnobservedTest() {
    attach(1, 0);
    kernel(1, 0, 99);
    teach(1, 100, 300);
    go_unobserved();
  }
  void go_unobserved(uint64_t launches = 0) {
    Event e(EventKind::kUnobserved, now_, 1);
    e.untold.launches = launches;
    step(e);
  }
  void observe(uint64_t launches = 0) {
    Event e(EventKind::kObserved, now_, 1);
    e.untold.launches = launches;
    step(e);
  }
  // Another asks as soon as the first is observed again.
  void disturb() {
    observe();
    attach(2, 9);
    ask(2);
  }
};

class RowTest : public CoreTest {
 protected:
  RowTest() {
    attach(1, 0);
    kernel(1, 0, 99);
    kernel(1, 1, 98);
    teach(1, 10, 300);
  }
  void post_before_row() {
    Event e = launch(EventKind::kPosted, 1, Admission::kLease);
    e.launch.may_follow = 24;
    step(e);
  }
  void row(uint64_t launches, uint32_t last_kernel = kUnknownKernel, float backlog_us = 0) {
    Event e(EventKind::kRow, now_, 1);
    e.untold = {launches, last_kernel, backlog_us};
    step(e);
  }
  Summary gap(uint64_t id, Summary KernelProfile::*kind) {
    for (const KernelProfile& k : core_->view().profile(1).kernels) {
      if (k.facts.id == id) return k.*kind;
    }
    return {};
  }
};

TEST_F(RowTest, IsCountedAsWhatTheClientLaunchesElse) {
  const ClientStatus before = core_->view().clients()[0];
  post_before_row();
  tick(kMs);
  row(before.launches);
  EXPECT_EQ(core_->view().clients()[0].launches, 2 * before.launches + 1);
  EXPECT_NEAR(core_->view().clients()[0].gpu_us, 2 * before.gpu_us + 10, 1);
}

TEST_F(RowTest, LaunchesOfARowKeepTheirClientBusy) {
  for (const float backlog_us : {0.0F, 80.0F}) {
    tick(kMs);
    row(5, 0, backlog_us);
    step(launch(EventKind::kPosted, 1, Admission::kLease));  // 10 µs
    tick(60 * kUs);
    EXPECT_EQ(core_->view().outlook(1, now_, 0).busy, backlog_us > 0);
  }
}

TEST_F(RowTest, TheTimeUntilTheNextThatIsToldIsNoGap) {
  const uint32_t before = gap(99, &KernelProfile::gap_launching).count;
  post_before_row();
  tick(200 * kUs);
  row(20);
  post(1);
  EXPECT_EQ(gap(99, &KernelProfile::gap_launching).count, before);
  tick(30 * kUs);
  post(1);
  EXPECT_EQ(gap(99, &KernelProfile::gap_launching).count, before + 1) << "those two are adjacent";
}

TEST_F(RowTest, AWaitsGapIsOfTheLastKernelOfTheRow) {
  Event one = launch(EventKind::kPosted, 1, Admission::kLease);
  one.launch.kernel = 1;
  step(one);
  tick(10 * kUs);
  done(1, 10);  // it is measured, so that its profile is shown
  post_before_row();
  const uint32_t of_last = gap(98, &KernelProfile::gap_synchronized).count;
  const uint32_t of_first = gap(99, &KernelProfile::gap_synchronized).count;
  tick(100 * kUs);
  row(10, 1);
  wait(1);
  done(1);
  tick(500 * kUs);
  post(1);
  EXPECT_EQ(gap(98, &KernelProfile::gap_synchronized).count, of_last + 1);
  EXPECT_EQ(gap(99, &KernelProfile::gap_synchronized).count, of_first);
}

// Of another client's kernel that is timed while the row goes on nobody may say that it was alone.
TEST_F(RowTest, NoClientIsAloneBesideARow) {
  attach(2, 9);
  kernel(2, 0, 7);
  post_before_row();
  tick(100 * kUs);
  ask(2);
  tick(kMs / 10);
  ASSERT_FALSE(grants_.empty());
  done(2, 50, Evidence::kMarker);
  EXPECT_TRUE(core_->view().profile(2).kernels.empty());
  tick(3 * kMs);  // by now it is over
  ask(2);
  tick(kMs / 10);
  done(2, 50, Evidence::kMarker);
  EXPECT_EQ(core_->view().profile(2).kernels.size(), 1u);
}

TEST_F(UnobservedTest, StaysAtWorkHoweverLong) {
  tick(60'000 * kMs);
  EXPECT_TRUE(core_->view().clients()[0].view.active);
  EXPECT_EQ(allowed(1), Allowance::kLeased);
}

TEST_F(UnobservedTest, IsTakenForBusyForAWhileThatEnds) {
  disturb();
  tick(kMs);
  EXPECT_TRUE(grants_.empty()) << "what it launched may run";
  tick(2 * kMs);
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(UnobservedTest, IsBusyUntilItsSynchronizingCallReturns) {
  wait(1);
  disturb();
  tick(50 * kMs);
  EXPECT_TRUE(grants_.empty());
  done(1);
  tick(3 * kMs);  // what follows its kernels then is not known
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(UnobservedTest, LaunchesAfterObservationBeginsCountAsEver) {
  disturb();
  tick(kMs);
  post(1);
  tick(3 * kMs);
  EXPECT_EQ(grants_.size(), 1u) << "both what was unseen and what was posted is over";
}

TEST_F(UnobservedTest, ItsGapsAreNotLearnedFromWhatNobodySaw) {
  const double before = core_->view().profile(1).kernels.at(0).gap_synchronized.mean_us;
  tick(5 * kMs);
  observe();
  tick(kMs);
  post(1);
  EXPECT_EQ(core_->view().profile(1).kernels.at(0).gap_synchronized.mean_us, before);
}

TEST_F(UnobservedTest, UnobservedLaunchesAreCounted) {
  const ClientStatus before = core_->view().clients()[0];
  tick(20 * kMs);
  observe(before.launches);
  const ClientStatus after = core_->view().clients()[0];
  EXPECT_EQ(after.launches, 2 * before.launches);
  EXPECT_NEAR(after.gpu_us, 2 * before.gpu_us, 1);
  go_unobserved(before.launches);  // what was counted too late for the last time
  EXPECT_EQ(core_->view().clients()[0].launches, 3 * before.launches);
}

TEST_F(UnobservedTest, ThatItBeginsEndsNoGap) {
  observe();
  done(1);
  post(1);
  done(1);
  const uint32_t before = core_->view().profile(1).kernels.at(0).gap_synchronized.count;
  tick(kMs / 10);
  go_unobserved();
  EXPECT_EQ(core_->view().profile(1).kernels.at(0).gap_synchronized.count, before);
}

TEST_F(UnobservedTest, ARecordThatComesAllTheSameChangesNothing) {
  post(1);
  done(1);
  tick(100 * kMs);
  EXPECT_TRUE(core_->view().clients()[0].view.active);
}

}  // namespace
}  // namespace heddle::core
