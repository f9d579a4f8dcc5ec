// What the core holds at most, filled: it goes on with what it knows, and takes nothing of one for
// another's.
#include "daemon/core/client/client.h"
#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

using LimitsTest = CoreTest;

Work work_of(uint64_t number) {
  Work work;
  work.stream = static_cast<uint16_t>(number % 3);
  work.seq = number;
  work.posted_at = static_cast<TimeNs>(number);
  work.predicted_us = 2;
  work.sm_set = SmSet(number % 2 == 0 ? 1 : 0);
  return work;
}

TEST(OutstandingTest, TheOldestMakesRoomAndEachStreamKeepsItsOrder) {
  constexpr uint64_t kMax = Outstanding::kWorkMax, kMore = 1'000;
  Outstanding all;
  Work out;
  for (uint64_t n = 0; n < kMax; ++n) ASSERT_FALSE(all.add(work_of(n), out));
  for (uint64_t n = 0; n < kMore; ++n) {
    ASSERT_TRUE(all.add(work_of(kMax + n), out));
    EXPECT_EQ(out.seq, n);
  }
  EXPECT_EQ(all.predicted_us(), 2.0 * kMax);
  EXPECT_EQ(all.on_sets_us(), kMax);
  uint64_t taken = 0;
  for (uint16_t stream = 0; stream < 3; ++stream) {
    uint64_t last = 0;
    for (; all.take(stream, ~uint64_t{0}, out); ++taken) {
      EXPECT_GE(out.seq, std::max(last + 1, kMore));
      EXPECT_EQ(out.seq % 3, stream);
      last = out.seq;
    }
  }
  EXPECT_EQ(taken, kMax);
  EXPECT_TRUE(all.empty());
  EXPECT_EQ(all.predicted_us() + all.on_sets_us(), 0);
  for (uint64_t n = 0; n < kMax; ++n) ASSERT_FALSE(all.add(work_of(n), out)) << "room again";
}

TEST_F(LimitsTest, AClientThatNeverSynchronizesHoldsNoOtherUpAfterItsEnd) {
  constexpr uint64_t kLaunches = 3 * Outstanding::kWorkMax;
  attach_both();
  for (uint64_t i = 0; i < kLaunches; ++i) post(1);
  ask(2);
  EXPECT_TRUE(grants_.empty());
  EXPECT_EQ(core_->view().clients()[0].launches, kLaunches);
  wait(1);
  tick(kMs);
  done(1);
  EXPECT_NEAR(core_->view().clients()[0].gpu_us, 1'000, 1) << "the time that there was";
  tick(100 * kMs);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].client, 2u);
}

TEST_F(LimitsTest, AKernelBeyondTheTableIsRejectedAndItsLaunchesAreScheduled) {
  constexpr uint32_t kIndexMax = 1 << 16;
  attach_both();
  for (const uint32_t index : {kIndexMax, ~0u}) kernel(2, index, 7);
  EXPECT_EQ(core_->stats().rejected, 2u);
  kernel(2, kIndexMax - 1, 7);
  EXPECT_EQ(core_->stats().rejected, 2u);
  post(1);
  Event e = launch(EventKind::kAsked, 2, Admission::kAsk);
  e.launch.kernel = kIndexMax;
  step(e);
  EXPECT_TRUE(grants_.empty());
  done(1);
  tick(100 * kMs);
  EXPECT_EQ(grants_.size(), 1u);
}

// Client 1 fills the places of its user; client 2 is of another.
class FullTableTest : public CoreTest {
 protected:
  static constexpr uint32_t kShare = StatsTable::kKernelsMax / StatsTable::kShareOfUser;

  FullTableTest() {
    Config config;
    config.measure_runs = 2;
    config.measure_us = 0;
    reset(config);
    attach_of(1, 1001);
    for (uint32_t i = 0; i < kShare; ++i) kernel(1, i, uint64_t{1} << 32 | i);
  }
  void attach_of(ClientId id, uint32_t uid) {
    Event e(EventKind::kAttached, now_, id);
    e.attached = {};
    e.attached.task = id;
    e.attached.uid = uid;
    e.attached.priority = 5;
    e.attached.share = 1;
    step(e);
  }
  // Runs of one launch each, until the task is measured.
  void measure(ClientId id, uint32_t index, float us) {
    for (int i = 0; i < 60; ++i) {
      Event e = launch(EventKind::kPosted, id, Admission::kLease);
      e.launch.kernel = index;
      step(e);
      wait(id);
      now_ += static_cast<TimeNs>(us) * kUs;
      done(id, us);
      tick(500 * kMs);
    }
  }
};

TEST_F(FullTableTest, AnotherUsersKernelsAreLearned) {
  attach_of(2, 1002);
  kernel(2, 77, 7);
  EXPECT_FALSE(core_->view().full(2));
  measure(2, 77, 300);
  EXPECT_EQ(hint_[77], 300);
  const TaskProfile profile = core_->take_profile(2);
  ASSERT_EQ(profile.kernels.size(), 1u);
  EXPECT_EQ(profile.kernels[0].facts.id, 7u);
}

// All of a client's share an entry, whose durations are nobody's.
TEST_F(FullTableTest, AKernelWithoutRoomIsScheduledAndGoesIntoNoProfile) {
  attach_of(3, 1001);
  EXPECT_FALSE(core_->view().full(3));
  for (uint32_t i = 0; i < 2; ++i) kernel(3, i, uint64_t{3} << 32 | i);
  EXPECT_TRUE(core_->view().full(3));
  measure(3, 0, 100);
  measure(3, 1, 900);
  EXPECT_TRUE(core_->view().measured(3)) << "its stage ends all the same";
  EXPECT_TRUE(core_->view().profile(3).kernels.empty());
  EXPECT_TRUE(core_->take_profile(3).kernels.empty());
  attach_of(4, 1001);
  kernel(4, 9, 9);
  EXPECT_EQ(core_->view().outlook(4, now_, 9).duration_us, Config{}.default_kernel_us)
      << "of which nothing was learned from them";
}

TEST_F(FullTableTest, AnEndingClientMakesRoom) {
  step(Event(EventKind::kDetached, now_, 1));
  attach_of(3, 1001);
  for (uint32_t i = 0; i < kShare; ++i) kernel(3, i, uint64_t{3} << 32 | i);
  EXPECT_FALSE(core_->view().full(3));
  kernel(3, 0, 5);
  EXPECT_FALSE(core_->view().full(3)) << "in the place of the one that it had";
}

TEST(SharedPlacesTest, UsersTogetherFillTheTableAndTheRichestForgetsFirst) {
  struct Value {
    int learned = 0;
  };
  SharedPlaces<Value> places(8, 4);
  for (const uint32_t user : {1, 2}) {
    for (uint64_t key = 0; key < 4; ++key) places.hold(user, key)->learned = 1;
    EXPECT_EQ(places.hold(user, 4), nullptr) << "its share";
  }
  EXPECT_EQ(places.hold(3, 0), nullptr) << "held, all of them";
  places.release(*places.peek(1, 2));
  places.release(*places.peek(1, 0));
  places.peek(1, 2);
  EXPECT_NE(places.hold(3, 0), nullptr);
  EXPECT_EQ(places.size(), 8u);
  EXPECT_EQ(places.peek(1, 2)->learned, 1) << "looked at last";
  EXPECT_EQ(places.peek(1, 0)->learned, 0) << "forgotten, for 2 in turn";
}

TEST_F(LimitsTest, OneUsersClaimsAreNotAnothersUnderTheSameTask) {
  Event e(EventKind::kAttached, now_, 1);
  e.attached = {};
  e.attached.task = 7;
  e.attached.share = 1;
  for (const ClientId id : {1, 2}) {
    e.client = id;
    e.attached.uid = static_cast<uint32_t>(1000 + id);
    step(e);
    kernel(id, 0, 5);
  }
  teach(1, 40'000, 100);
  EXPECT_EQ(core_->view().outlook(1, now_, 0).duration_us, 40'000);
  EXPECT_EQ(core_->view().outlook(2, now_, 0).duration_us, Config{}.default_kernel_us);
}

TEST_F(LimitsTest, ADurationIsAtMostTheTimeThatPassed) {
  attach(1, 0);
  kernel(1, 0, 5);
  for (int i = 0; i < 3; ++i) {
    post(1);
    now_ += 10 * kMs;
    done(1, 59e6F, Evidence::kMarker);
  }
  EXPECT_EQ(core_->view().outlook(1, now_, 0).duration_us, 10'000);
}

TEST_F(LimitsTest, ForgedWorkThatIsNeverLaunchedHoldsABatchJobForTwoSecondsAtMost) {
  attach(1, 5);
  attach(2, 9);
  kernel(1, 0, 5);
  for (int i = 0; i < 3; ++i) {
    post(1);
    now_ += 1'000 * kMs;
    done(1, 59e6F, Evidence::kMarker);
  }
  for (int i = 0; i < 59; ++i) post(1);
  EXPECT_LE(core_->view().clients()[0].outstanding_us, 2e6);
  const TimeNs end = now_ + 5'000 * kMs;
  while (now_ < end) {
    const size_t before = grants_.size();
    ask(2);
    while (grants_.size() == before && now_ < end) tick(kMs);
    now_ += 10 * kMs;
    done(2, 10e3F);
  }
  EXPECT_GT(grants_.size(), 250u);
}

TEST(RunComparison, ForgetsAllKindsWhenThereAreTooManyAndLearnsThemAgain) {
  RunComparison runs;
  const auto add = [&](uint64_t kind) { return runs.add(kind, 1000, 10, true, 0); };
  for (uint64_t kind = 0; kind < RunComparison::kKindsMax; ++kind) add(kind), add(kind);
  EXPECT_EQ(add(0), 1000) << "all of them are known";
  EXPECT_EQ(add(RunComparison::kKindsMax), 0);
  EXPECT_EQ(add(0), 0) << "forgotten";
  add(0);
  EXPECT_EQ(add(0), 1000);
}

// ---- what cannot be ---------------------------------------------------------------------------

// A hook that drives the scheduler which called it: nobody may, so it is a mistake of ours.
struct Reentering : Policy {
  std::function<void()> drive;
  std::string_view name() const override { return "reentering"; }
  DispatchVerdict dispatch(Gpu&) override {
    drive();
    return {};
  }
};

TEST_F(LimitsTest, AnInvariantThatDoesNotHoldIsToldWithItsPlaceAndTheNextEventsAreHandled) {
  Reentering policy;
  policy.drive = [this] { step(Event(EventKind::kDetached, now_, 2)); };
  std::vector<std::string> told;
  core_->set_on_broken([&](const Broken& broken) {
    EXPECT_GT(broken.line, 0);
    told.push_back(std::string(broken.file).substr(std::string(broken.file).rfind('/') + 1));
  });
  use(&policy);
  contend();
  EXPECT_EQ(told, std::vector<std::string>{"scheduler.cc"});
  use(nullptr);
  done(1);
  ASSERT_EQ(grants_.size(), 1U) << "client 2 is still there";
  EXPECT_EQ(grants_[0].client, 2U);
}

TEST_F(LimitsTest, AnInvariantThatDoesNotHoldAbortsWhereNobodyListens) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Reentering policy;
  policy.drive = [this] { tick(0); };
  use(&policy);
  EXPECT_DEATH(contend(), "scheduler.cc:[0-9]+: this does not hold: !s.stepping");
}

}  // namespace
}  // namespace heddle::core
