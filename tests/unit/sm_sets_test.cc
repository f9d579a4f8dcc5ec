// On how many SMs a kernel is best, by its curve, and what the core makes of it.
#include <utility>

#include "daemon/model/right_size.h"
#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

constexpr SmGroups kH100{GroupCount(16), {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 12}};

ipc::KernelMetrics curve(double on_1, double on_2, double on_4, double on_8) {
  ipc::KernelMetrics m{};
  m.set(ipc::metric_of("us_on_1"), on_1);
  m.set(ipc::metric_of("us_on_2"), on_2);
  m.set(ipc::metric_of("us_on_4"), on_4);
  m.set(ipc::metric_of("us_on_8"), on_8);
  return m;
}

TEST(RightSize, IsTheLeastWithinFivePercent) {
  EXPECT_EQ(latency_size(curve(300, 150, 104, 100), 100, kH100), SmCount(32));
  EXPECT_EQ(latency_size(curve(102, 101, 100, 100), 100, kH100), SmCount(8));
  EXPECT_EQ(latency_size(curve(1600, 800, 400, 200), 100, kH100), SmCount(132))
      << "it wants them all";
  EXPECT_EQ(latency_size({}, 100, kH100), SmCount(0)) << "nothing was measured";
  EXPECT_EQ(latency_size(curve(300, 150, 104, 100), 0, kH100), SmCount(0));
  EXPECT_EQ(latency_size(curve(100, 220, 180, 140), 100, kH100), SmCount(132))
      << "nothing is faster on fewer: one of these was mismeasured";
}

TEST(RightSize, ThroughputTradesTimeForSms) {
  const auto m = curve(300, 150, 104, 101);
  EXPECT_EQ(throughput_size(m, 100, kH100, 0), SmCount(132));
  EXPECT_EQ(throughput_size(m, 100, kH100, 0.01), SmCount(32));
  EXPECT_EQ(throughput_size(m, 100, kH100, 1), SmCount(16))
      << "300 on 8 is more SM time than 150 on 16";
  EXPECT_EQ(throughput_size(curve(160, 150, 104, 101), 100, kH100, 1), SmCount(8));
}

TEST(RightSize, BetweenTwoPointsTimeFollowsOneOverSms) {
  const auto m = curve(800, 400, 200, 100);
  EXPECT_NEAR(us_on_groups(m, 50, kH100, GroupCount(3)), 800.0 / 3, 1);
  EXPECT_NEAR(us_on_groups(m, 50, kH100, GroupCount(6)), 800.0 / 6, 1);
  EXPECT_EQ(us_on_groups(m, 50, kH100, GroupCount(16)), 50);
  EXPECT_EQ(us_on_groups({}, 50, kH100, GroupCount(4)), 0);
}

// Gives kernel n of each client n groups, on sets as the test says.
struct Sizing : Policy {
  SmFamily sets;
  bool hears = true;
  uint32_t asked_for = 0;
  uint32_t wanted = 0;   // SMs; 0: the kernel's ID in groups
  ClientId resizes = 0;  // once, in the next tick, or kernel_init
  bool resizes_in_init = false;
  int priority = kBuiltinPriority;
  bool timed = false;
  DispatchVerdict verdict{};
  double wave_us = 0;            // of the kernel that it was asked about
  std::vector<double> run_us{};  // of what it was told of the end of
  // What the budget says of the launch that asks, on the SMs of its kernel and on so many.
  LaunchId waiting = 0;
  bool fits = false, fits_on_32 = false;

  EnqueueVerdict enqueue(Gpu& gpu, LaunchId id) override {
    fits = gpu.budget_fits(id, {}).fits;
    fits_on_32 = gpu.budget_fits(id, SmCount(32)).fits;
    return {};
  }
  std::string_view name() const override { return "sizing"; }
  SmFamily family() const override { return sets; }
  bool hears_kernels() const override { return hears; }
  bool hears_tick() const override { return true; }
  bool hears_stopping() const override { return true; }
  HookResult stopping(Gpu&, const LaunchView& k) override {
    run_us.push_back(k.run_us);
    return HookResult::kDefault;
  }
  HookResult tick(Gpu& gpu) override {
    if (!resizes_in_init) resize(gpu);
    return HookResult::kDefault;
  }
  void resize(Gpu& gpu) {
    if (const ClientId id = std::exchange(resizes, 0); id != 0) gpu.resize(id);
  }
  KernelVerdict kernel_init(Gpu& gpu, const LaunchView& k) override {
    ++asked_for;
    wave_us = k.wave_us;
    if (resizes_in_init) resize(gpu);
    KernelVerdict verdict{.result = HookResult::kDecided, .launch_priority = priority};
    verdict.sm = SmCount(wanted != 0 ? wanted : static_cast<uint32_t>(8 * k.facts->id));
    verdict.timed = timed;
    return verdict;
  }
};

class SmSets : public CoreTest {
 protected:
  SmSets() {
    Config config;
    config.mps = true;
    reset(config);
  }
  void attach_split(ClientId id, int priority, uint32_t sm_set = 0, MadeSets made = {}) {
    Event e(EventKind::kAttached, now_, id);
    e.attached = {};
    e.attached.task = id;
    e.attached.priority = static_cast<uint8_t>(priority);
    e.attached.share = 1;
    e.attached.groups = kH100;
    e.attached.sm_set = SmSet(sm_set);
    e.attached.made_sets = made;
    step(e);
  }
  // A kernel that is known to take so long.
  Decision known_kernel(ClientId id, uint32_t index, uint64_t kernel_id, bool graph = false) {
    Event p(EventKind::kProfile, now_, id);
    p.profile = {kernel_id, duration_, {}, {}, 0, curve_};
    step(p);
    Event e(EventKind::kKernel, now_, id);
    e.kernel = {};
    e.kernel.index = index;
    e.kernel.id = kernel_id;
    e.kernel.grid_blocks = 132;
    e.kernel.block_threads = graph ? 0 : 128;
    Decision hint;
    for (const Decision& d : core_->step(e)) {
      if (d.kind == DecisionKind::kHint) hint = d;
    }
    return hint;
  }
  double outstanding_us() const { return core_->view().clients().front().outstanding_us; }

  Sizing policy_;
  Summary duration_{100, 100, 100, 50};
  ipc::KernelMetrics curve_ = curve(900, 500, 300, 120);
};

TEST_F(SmSets, PolicyMayHaveEachLaunchTimed) {
  use(&policy_);
  attach_split(1, 0);
  policy_.timed = true;
  EXPECT_EQ(known_kernel(1, 0, 2, true).measure, 1);
  policy_.timed = false;
  EXPECT_EQ(known_kernel(1, 1, 3, true).measure, 0);
}

TEST_F(SmSets, AKernelsSizeIsToldWithItsFirstHint) {
  use(&policy_);
  attach_split(1, 0);
  EXPECT_EQ(known_kernel(1, 0, 2).size, GroupCount(2));
  EXPECT_EQ(known_kernel(1, 1, 5).size, GroupCount(6)) << "5 groups are no size of the family";
  EXPECT_EQ(known_kernel(1, 2, 13).size, GroupCount(0)) << "all of them";
  EXPECT_TRUE(core_->view().sized(1));
}

TEST_F(SmSets, LaunchesThatDoNotAskArePredictedOnTheirSms) {
  use(&policy_);
  attach_split(1, 0);
  known_kernel(1, 0, 4);
  post(1);
  EXPECT_NEAR(outstanding_us(), 300, 1) << "of its curve, on 4 groups";
}

TEST_F(SmSets, AGraphTakesAsLongInItsSetAsItsCurveSaysOrAsAnywhere) {
  for (const bool measured : {true, false}) {
    reset({});
    use(&policy_);
    attach_split(1, 0);
    if (!measured) curve_ = {};
    known_kernel(1, 0, 4, true);
    EXPECT_NEAR(policy_.wave_us, 100.0 / 132, 0.01) << "its mean node";
    post(1);
    EXPECT_NEAR(outstanding_us(), measured ? 300 : 100, 1);
  }
}

TEST_F(SmSets, AKernelThatIsSlowInItsSetTakesLessOnAllSms) {
  duration_ = {};
  use(&policy_);
  attach_split(1, 0);
  known_kernel(1, 0, 4, true);
  post(1);
  now_ += kMs;
  done(1, 600);
  EXPECT_NEAR(core_->view().outlook(1, now_, 0).duration_us, 200, 1) << "of its curve, on 4 groups";
}

TEST_F(SmSets, ALaunchThatCouldNotMoveTakesAllSms) {
  use(&policy_);
  attach_split(1, 0);
  known_kernel(1, 0, 4);
  Event e = launch(EventKind::kPosted, 1, Admission::kLease);
  e.launch.unmovable = true;
  step(e);
  EXPECT_NEAR(outstanding_us(), 100, 1);
}

// A graph goes as it is until its twin is there, which says nothing of the SMs that its client has.
TEST_F(SmSets, WhatRanOffItsClientsSmsIsNoSample) {
  for (const bool asks : {false, true}) {
    Config config;
    config.measure_runs = 40;
    config.measure_us = 0;
    reset(config);
    attach_split(1, 0, 0b11);
    duration_ = {}, curve_ = {};
    known_kernel(1, 0, 4, true);
    for (int i = 0; i < 40; ++i) {
      Event e = launch(asks ? EventKind::kAsked : EventKind::kPosted, 1,
                       asks ? Admission::kAsk : Admission::kLease);
      e.launch.unmovable = i < 30;
      step(e);
      now_ += kMs;
      done(1, i < 30 ? 100 : 600);
      if (i >= 30) continue;
      EXPECT_NEAR(core_->view().outlook(1, now_, 0).duration_us, 100, 1) << "so far";
    }
    EXPECT_NEAR(core_->view().outlook(1, now_, 0).duration_us, 600, 1);
    const TaskProfile profile = core_->view().profile(1);
    ASSERT_EQ(profile.kernels.size(), 1U);
    EXPECT_EQ(profile.kernels[0].duration.count, 10U);
    EXPECT_NEAR(profile.kernels[0].duration.mean_us, 600, 1);
  }
}

// Four groups each, that do not meet; the neighbour's blocks would leave no room on all SMs.
TEST_F(SmSets, NeighboursArePricedOnTheSmsThatTheyRunOn) {
  policy_.sets.placement = SmFamily::Placement::kRing;
  use(&policy_);
  for (const ClientId id : {1, 2}) {
    attach_split(id, id == 1 ? 0 : 9);
    known_kernel(id, 0, 4);
  }
  Event e(EventKind::kTerms, now_, 1);
  e.terms = {1, 0, 0, {1.10F}};
  step(e);
  e = Event(EventKind::kKernel, now_, 2);
  e.kernel = {};
  e.kernel.id = 4;
  e.kernel.grid_blocks = 264;
  e.kernel.block_threads = 1024;
  step(e);
  for (const ClientId id : {1, 2}) {
    Use dram;
    dram[Channel::kDram] = 0;
    core_->set_use(0, id, 4, dram);
  }
  post(1);
  ask(2);
  EXPECT_TRUE(policy_.fits_on_32);
  EXPECT_TRUE(policy_.fits);
  policy_.wanted = 132;
  use(&policy_);
  e = launch(EventKind::kWithdrawn, 2, Admission::kAsk);
  e.launch.ask_seq = ask_seq_[2];
  step(e);
  ask(2);
  EXPECT_FALSE(policy_.fits) << "on all of them";
}

TEST_F(SmSets, AGrantWithoutASizeHasTheKernels) {
  use(&policy_);
  attach_split(1, 0);
  attach_split(2, 9);
  known_kernel(2, 0, 2);
  ask(2);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].sm_set, SmSet(0xc000)) << "the last two groups";
}

TEST_F(SmSets, AnotherPolicyIsAskedAboutEachKernelAndNoneTakesTheSizesBack) {
  use(&policy_);
  attach_split(1, 0);
  known_kernel(1, 0, 2);
  EXPECT_EQ(policy_.asked_for, 1u);
  Sizing other;
  other.priority = -3;
  use(&other);
  EXPECT_EQ(other.asked_for, 1u);
  bool ok = false;
  bool taken_back = false;
  for (const Decision& d : core_->set_policy(nullptr, now_, ok)) {
    taken_back |= d.kind == DecisionKind::kHint && d.size.get() == 0 && !d.raised;
  }
  EXPECT_TRUE(taken_back);
  EXPECT_FALSE(core_->view().sized(1));
}

// Beyond so many in a row, kernels are put to a new policy as they are launched, or asked for.
TEST_F(SmSets, AKernelThatAsksHasTheNewPolicysSize) {
  constexpr uint32_t kKernels = 1100;
  use(&policy_);
  attach_split(1, 0);
  attach_split(2, 9);
  for (uint32_t i = 0; i < kKernels; ++i) known_kernel(2, i, 2);
  Sizing other;
  other.wanted = 32;
  use(&other);
  ASSERT_LT(other.asked_for, kKernels);
  Event e = launch(EventKind::kAsked, 2, Admission::kAsk);
  e.launch.kernel = kKernels - 1;
  step(e);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].sm_set, SmSet(0xf000));
}

TEST_F(SmSets, AKernelSeenInBypassIsAskedAboutAfterIt) {
  use(&policy_);
  take(core_->set_bypass(true, now_));
  attach_split(1, 0);
  known_kernel(1, 0, 2);
  post(1);
  EXPECT_EQ(policy_.asked_for, 0u);
  take(core_->set_bypass(false, now_));
  EXPECT_EQ(policy_.asked_for, 1u);
  EXPECT_TRUE(core_->view().sized(1));
}

TEST_F(SmSets, ResizingOneClientLeavesAnotherSized) {
  use(&policy_);
  attach_split(1, 0);
  attach_split(2, 0);
  known_kernel(1, 0, 2);
  known_kernel(2, 0, 2);
  post(1);
  policy_.resizes = 1;
  tick(kMs);
  EXPECT_EQ(policy_.asked_for, 3u);
  EXPECT_TRUE(core_->view().sized(1) && core_->view().sized(2));
}

TEST_F(SmSets, AResizeInKernelInitIsHeardAtTheNextEvent) {
  attach_split(1, 0);
  known_kernel(1, 0, 2);
  policy_.resizes = 1;
  policy_.resizes_in_init = true;
  use(&policy_);
  tick(kMs);
  EXPECT_EQ(policy_.asked_for, 2u);
}

TEST_F(SmSets, ClientsOnTheRingAreFarApartAndIsolatedOnesKeepToTheirPart) {
  policy_.sets.placement = SmFamily::Placement::kRing;
  policy_.sets.isolated = true;
  use(&policy_);
  attach_split(1, 0);
  attach_split(2, 0);
  EXPECT_EQ(allowance_[1].ring.anchor, 1);
  EXPECT_EQ(allowance_[2].ring.anchor, 9);
  EXPECT_EQ(allowance_[1].sm_set, SmSet(0)) << "nobody else is at work";
  known_kernel(1, 0, 2);
  known_kernel(2, 0, 12);
  post(1);
  post(2);
  EXPECT_EQ(allowance_[1].sm_set, SmSet(0x00ff));
  EXPECT_EQ(allowance_[2].sm_set, SmSet(0xff00));
  EXPECT_TRUE(core_->view().sized(2));
  now_ += 20 * kUs;
  done(1);
  curve_ = {};
  known_kernel(1, 0, 13);
  Event stays = launch(EventKind::kAsked, 1, Admission::kAsk);
  stays.launch.unmovable = true;
  step(stays);
  EXPECT_NEAR(outstanding_us(), 100, 1) << "a grant cannot move it either";
  now_ += 10 * kMs;
  done(1);
  tick(now_ + 100 * kMs);
  EXPECT_EQ(allowance_[2].sm_set, SmSet(0)) << "alone again";
}

// A process makes its sets once, and lives on under the next daemon, to which it may come sooner.
TEST_F(SmSets, WhatAProcessMadeUnderAnotherDaemonItKeeps) {
  policy_.sets.placement = SmFamily::Placement::kRing;
  policy_.sets.isolated = true;
  use(&policy_);
  constexpr SetSizes kMade{0b1010'1010};
  attach_split(1, 0, 0, {kMade, {.anchor = 9}});
  attach_split(2, 0, 0, {kMade, {.anchor = 1}});
  attach_split(3, 0);
  EXPECT_EQ(allowance_[1].ring.anchor, 9);
  EXPECT_EQ(allowance_[1].sizes, kMade);
  EXPECT_EQ(allowance_[2].ring.anchor, 1);
  EXPECT_EQ(allowance_[3].ring.anchor, 5) << "as far from theirs as can be";
  post(1);
  post(2);
  EXPECT_EQ(allowance_[1].sm_set, SmSet(0xff00));
  EXPECT_EQ(allowance_[2].sm_set, SmSet(0x00ff));
}

// Nobody but the process itself says what it made, and where.
TEST_F(SmSets, AClaimTakesNoMoreThanAnEvenShare) {
  policy_.sets.placement = SmFamily::Placement::kRing;
  policy_.sets.isolated = true;
  use(&policy_);
  attach_split(1, 0);
  attach_split(2, 0, 0, {SetSizes{0b1010'1010}, {.anchor = 2}});
  post(1);
  post(2);
  EXPECT_EQ(allowance_[1].sm_set, SmSet(0x00ff)) << "half, though another says that it begins at 2";
}

TEST_F(SmSets, APolicyHearsNoTimeOfWhatWasNotOnItsSet) {
  use(&policy_);
  attach_split(1, 0);
  known_kernel(1, 0, 4, true);
  for (const bool unmovable : {true, false}) {
    Event e = launch(EventKind::kPosted, 1, Admission::kLease);
    e.launch.unmovable = unmovable;
    step(e);
    now_ += kMs;
    done(1, 100);
  }
  EXPECT_EQ(policy_.run_us, (std::vector<double>{0, 100}));
}

TEST_F(SmSets, LivePlacementGivesWhoAsksTheSetWithTheLeastWork) {
  policy_.sets = {
      SetSizes(0b1010), SmFamily::Placement::kLive, false, 4, {}};  // 2 and 4 groups, 4 positions
  use(&policy_);
  for (ClientId id = 1; id <= 3; ++id) {
    attach_split(id, 9);
    known_kernel(id, 0, 4);
  }
  attach_split(9, 0);
  post(9);  // so that the others are gated
  now_ += 300 * kMs;
  done(9);
  grants_.clear();
  for (ClientId id = 1; id <= 3; ++id) ask(id);
  ASSERT_EQ(grants_.size(), 3u);
  EXPECT_TRUE((grants_[0].sm_set & grants_[1].sm_set).empty());
  EXPECT_TRUE(((grants_[0].sm_set | grants_[1].sm_set) & grants_[2].sm_set).empty());
}

TEST_F(SmSets, AClientWithoutSetsFindsAllSmsFreeWhileNobodyElseWorks) {
  struct Whole : Policy {
    std::string_view name() const override { return "whole"; }
    EnqueueVerdict enqueue(Gpu& gpu, LaunchId id) override {
      gpu.queue_insert(gpu.queue_create("q"), id, 0);
      return {HookResult::kDecided};
    }
    DispatchVerdict dispatch(Gpu& gpu) override {
      free = gpu.free_sms(gpu.queue_peek(gpu.queue_create("q")), SmCount(132));
      return {HookResult::kDecided};
    }
    SmCount free{};
  } policy;
  use(&policy);
  attach(1, 9);
  attach(2, 9);
  ask(1);
  EXPECT_EQ(policy.free, SmCount(132));
  for (int i = 0; i < 30; ++i) post(2);
  tick(2 * kMs);
  EXPECT_EQ(policy.free, SmCount());
}

}  // namespace
}  // namespace heddle::core
