// What a rule lets a client use of a channel beside others.
#include "daemon/core/ceiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

Use use_of_dram(float part) {
  Use use;
  use[Channel::kDram] = part;
  return use;
}

class CeilingTest : public ::testing::Test {
 protected:
  void SetUp() override { ceiling_.limit({0, 0, 0.3F}); }

  const CeilingStatus& dram() const { return ceiling_.told().back(); }

  Ceiling ceiling_;
};

// Launches one after the other, each as soon as nothing is owed.
TEST_F(CeilingTest, MeansOverTenMsStayBelowTheLimitAndATenth) {
  const Use use = use_of_dram(0.9F);
  constexpr double kStepUs = 10, kLaunchUs = 100;
  std::vector<double> used;  // in each step
  double left_us = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (left_us <= 0 && !ceiling_.spent()) {
      ceiling_.spend(&use, kLaunchUs);
      left_us = kLaunchUs;
    }
    used.push_back(left_us > 0 ? 0.9 * kStepUs : 0);
    left_us -= kStepUs;
    ceiling_.pass(kStepUs, true);
  }
  constexpr size_t kSteps = 1'000;
  double sum = 0, most = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    sum += used[i] - (i >= kSteps ? used[i - kSteps] : 0);
    if (i + 1 >= kSteps) most = std::max(most, sum / Ceiling::kMeanUs);
  }
  EXPECT_LE(most, 0.3 * 1.1);
  ASSERT_TRUE(dram().use);
  EXPECT_NEAR(*dram().use, 0.3, 0.01) << "all that is allowed is used";
}

TEST_F(CeilingTest, SaysHowLongALaunchIsPaidForAndWhichChannelOwes) {
  const Use use = use_of_dram(0.9F);
  EXPECT_FALSE(ceiling_.spent());
  ceiling_.spend(&use, 1'150);  // 1 035 us of the DRAM, of which 150 are saved up
  EXPECT_EQ(ceiling_.spent(), Channel::kDram);
  EXPECT_NEAR(ceiling_.owes_us(), (1'035 - 150) / 0.3, 1);
  ceiling_.pass(ceiling_.owes_us() + 1, true);
  EXPECT_FALSE(ceiling_.spent());
}

TEST_F(CeilingTest, TimeAlonePaysAtTheWholeChannel) {
  const Use use = use_of_dram(0.9F);
  ceiling_.spend(&use, 1'000);
  ceiling_.pass(751, false);
  EXPECT_FALSE(ceiling_.spent());
}

TEST_F(CeilingTest, UseThatNobodyMeasuredIsUnknownAndSpendsNothing) {
  for (int ms = 0; ms < 100; ++ms) {
    ceiling_.spend(nullptr, 1'000);
    ceiling_.pass(1'000, true);
  }
  EXPECT_FALSE(ceiling_.spent());
  EXPECT_FALSE(dram().use) << "it is not guessed";
  EXPECT_EQ(dram().unknown, 1);
  const Use use = use_of_dram(0.2F);
  for (int ms = 0; ms < 100; ++ms) {
    ceiling_.spend(ms % 4 == 0 ? nullptr : &use, 1'000);
    ceiling_.pass(1'000, true);
  }
  ASSERT_TRUE(dram().use);
  EXPECT_NEAR(*dram().use, 0.15, 0.001);
  EXPECT_EQ(dram().unknown, 0.25);
}

TEST_F(CeilingTest, WhatDidNotRunIsGivenBack) {
  const Use use = use_of_dram(0.9F);
  ceiling_.spend(&use, 2'000);
  ceiling_.spend(&use, -1'900);
  EXPECT_FALSE(ceiling_.spent());
}

TEST_F(CeilingTest, OwesForHalfASecondAtMost) {
  const Use use = use_of_dram(0.9F);
  for (int i = 0; i < 40; ++i) ceiling_.spend(&use, 150'000);
  EXPECT_NEAR(ceiling_.owes_us(), 500'000, 1);
}

TEST_F(CeilingTest, OtherLimitsKeepWhatIsOwedOfTheSame) {
  const Use use = use_of_dram(0.9F);
  ceiling_.spend(&use, 2'000);
  ceiling_.limit({0.5F, 0, 0.3F});
  EXPECT_EQ(ceiling_.spent(), Channel::kDram);
  ceiling_.limit({0.5F, 0, 0});
  EXPECT_FALSE(ceiling_.spent());
  EXPECT_TRUE(ceiling_.any());
}

// Client 2 may use a tenth of the DRAM beside client 1, and its kernel, of 1 ms, uses nine.
class CeilingOfAClientTest : public CoreTest {
 protected:
  void SetUp() override {
    attach(1, 5);
    attach(2, 5);
    kernel(2, 0, 7);
    teach(2, 1'000, 100);
    core_->set_use(0, 2, 7, use_of_dram(0.9F));
    limit(0.1F);
    post(1);
    ask(2);
  }
  void limit(float dram) {
    Event e(EventKind::kTerms, now_, 2);
    e.terms = {1, 0, 5, {}, {0, 0, dram}};
    step(e);
  }
  WaitTold waits() {
    const Explanation all = core_->view().explain(2);
    return all.now.empty() ? WaitTold{} : all.now[0];
  }
};

TEST_F(CeilingOfAClientTest, HoldsItsLaunchBackUntilItOwesNothing) {
  ASSERT_EQ(grants_.size(), 1u) << "the first goes";
  EXPECT_EQ(allowed(2), Allowance::kGated) << "it asks while client 1 is active";
  tick(1'000 * kUs);
  done(2, 1'000);
  post(1);
  ask(2);
  EXPECT_EQ(grants_.size(), 1u);
  EXPECT_TRUE(waits().withheld);
  EXPECT_EQ(waits().why, "its client has used all that its rule allows of dram beside others");
  const TimeNs until = core_->next_deadline();
  while (grants_.size() == 1 && now_ < 30 * kMs + until) {
    now_ = std::max(now_ + 1, core_->next_deadline());
    post(1);
  }
  EXPECT_EQ(grants_.size(), 2u);
  EXPECT_TRUE(core_->view().explain(2).past.at(0).withheld);
}

TEST_F(CeilingOfAClientTest, EndsWithItsRule) {
  tick(1'000 * kUs);
  done(2, 1'000);
  post(1);
  ask(2);
  EXPECT_TRUE(waits().withheld);
  limit(0);
  EXPECT_FALSE(waits().withheld);
}

// The graph takes 1 ms and launches kernel 7 three times and another one once.
class GraphUnderACeilingTest : public CeilingOfAClientTest {
 protected:
  void SetUp() override {
    attach(1, 5);
    attach(2, 5);
    measured_kernel(1, 7, 40);
    kernel(2, 2, 8);
    graph(0, {{1, 3}, {2, 1}});
    teach(2, 1'000, 100);
    limit(0.1F);
  }
  void measured_kernel(uint32_t index, uint64_t id, double dram_pct) {
    Event e(EventKind::kKernel, now_, 2);
    e.kernel = {{id, 132, 128, 0, 0, 0, 0, "", {}}, index};
    e.kernel.metrics.set(ipc::metric_of("dram_pct"), dram_pct);
    e.kernel.metrics.set(ipc::metric_of("us_profiled"), 10);
    step(e);
  }
  void graph(uint32_t index, const std::vector<NodesBody::Node>& nodes, uint32_t others = 0) {
    Event e(EventKind::kKernel, now_, 2);
    e.kernel = {{99, 4, 0, 0, 0, 0, 0, "", {}}, index};
    step(e);
    e.kind = EventKind::kNodes;
    e.nodes = {index, static_cast<uint32_t>(nodes.size()), others, {}};
    std::copy(nodes.begin(), nodes.end(), e.nodes.nodes);
    step(e);
  }
  // Beside client 1, for 0.2 s.
  CeilingStatus told() {
    for (int i = 0; i < 200; ++i) {
      post(1);
      post(2);
      tick(1'000 * kUs);
      done(2, 1'000);
    }
    for (const ClientStatus& c : core_->view().clients()) {
      if (c.view.id == 2) return c.ceilings.back();
    }
    return {};
  }
};

TEST_F(GraphUnderACeilingTest, PaysForTheKernelsThatWereMeasuredAndTellsTheRestUnknown) {
  const CeilingStatus dram = told();
  ASSERT_TRUE(dram.use);
  EXPECT_NEAR(dram.unknown, 0.25, 0.01);
  EXPECT_NEAR(*dram.use, 0.75 * 40 / DeviceModel{}.dram_peak_pct, 0.02);
}

TEST_F(GraphUnderACeilingTest, PaysTheMeanOfKernelsThatAreAllMeasured) {
  measured_kernel(2, 8, 0);
  graph(0, {{1, 3}, {2, 1}});
  const CeilingStatus dram = told();
  ASSERT_TRUE(dram.use);
  EXPECT_EQ(dram.unknown, 0);
  EXPECT_NEAR(*dram.use, 0.75 * 40 / DeviceModel{}.dram_peak_pct, 0.02);
}

// What a probe measured is of the graph as a whole.
TEST_F(GraphUnderACeilingTest, HasItsOwnUseUntilEachOfItsKernelsIsMeasured) {
  core_->set_use(0, 2, 99, use_of_dram(0.2F));
  graph(0, {{1, 3}, {2, 1}});
  const CeilingStatus dram = told();
  ASSERT_TRUE(dram.use);
  EXPECT_EQ(dram.unknown, 0);
  EXPECT_NEAR(*dram.use, 0.2, 0.01);
}

TEST_F(GraphUnderACeilingTest, HasItsOwnUseThoughThatIsMeasuredAfterItsNodesAreKnown) {
  core_->set_use(0, 2, 99, use_of_dram(0.2F));
  const CeilingStatus dram = told();
  ASSERT_TRUE(dram.use);
  EXPECT_EQ(dram.unknown, 0);
  EXPECT_NEAR(*dram.use, 0.2, 0.01);
}

TEST_F(GraphUnderACeilingTest, PaysForAKernelThatIsMeasuredAfterItsNodesAreKnown) {
  Event e(EventKind::kProfile, now_, 2);
  e.profile = {};
  e.profile.kernel_id = 8;
  e.profile.metrics.set(ipc::metric_of("dram_pct"), 0);
  e.profile.metrics.set(ipc::metric_of("us_profiled"), 10);
  step(e);
  const CeilingStatus dram = told();
  ASSERT_TRUE(dram.use);
  EXPECT_EQ(dram.unknown, 0);
  EXPECT_NEAR(*dram.use, 0.75 * 40 / DeviceModel{}.dram_peak_pct, 0.02);
}

// Remembers of each kernel what it used when the policy was asked last.
struct Asked : Policy {
  std::string_view name() const override { return "asked"; }
  bool hears_kernels() const override { return true; }
  KernelVerdict kernel_init(Gpu&, const LaunchView& k) override {
    unknown_pct[k.facts->id] = k.metrics->get("unknown_pct");
    ++asked[k.facts->id];
    return {};
  }
  std::map<uint64_t, std::optional<double>> unknown_pct;
  std::map<uint64_t, int> asked;
};

TEST_F(GraphUnderACeilingTest, IsAskedAboutByWhatItsKernelsUse) {
  Asked policy;
  use(&policy);
  graph(0, {{1, 3}, {2, 1}});
  ASSERT_TRUE(policy.unknown_pct[99]);
  EXPECT_NEAR(*policy.unknown_pct[99], 25, 1e-9);
  measured_kernel(2, 8, 0);
  const int asked = policy.asked[99];
  for (int i = 0; i < 3; ++i) {
    post(2);
    done(2, 1'000);
  }
  EXPECT_EQ(*policy.unknown_pct[99], 0) << "more is known of it";
  EXPECT_EQ(policy.asked[99], asked + 1);
  use(nullptr);
}

TEST_F(GraphUnderACeilingTest, IsUnknownWithoutAMeasuredKernel) {
  graph(0, {{2, 1}, {2'000, 1}, {0, 1}}, 7);
  EXPECT_FALSE(told().use);
  EXPECT_EQ(told().unknown, 1);
}

// What goes first is of client 2, which owes for it then.
class OwingClientTest : public CeilingOfAClientTest {
 protected:
  // Keeps the handles that it was given, and runs one whatever became of it.
  struct Keeping : Policy {
    std::string_view name() const override { return "keeping"; }
    AllowanceVerdict client_init(Gpu&, ClientId) override { return {HookResult::kDecided}; }
    AllowanceVerdict client_active(Gpu&, ClientId) override { return {HookResult::kDecided}; }
    EnqueueVerdict enqueue(Gpu& gpu, LaunchId id) override {
      kept.push_back(id);
      gpu.queue_insert(gpu.queue_create("kept"), id, 0);
      return {HookResult::kDecided};
    }
    DispatchVerdict dispatch(Gpu&) override {
      ++dispatched;
      DispatchVerdict verdict{HookResult::kDecided};
      verdict.run = run;
      return verdict;
    }
    std::vector<LaunchId> kept;
    LaunchId run = 0;
    int dispatched = 0;
  };

  void SetUp() override {
    CeilingOfAClientTest::SetUp();
    tick(1'000 * kUs);
    done(2, 1'000);
    done(1);
    grants_.clear();
  }
};

TEST_F(OwingClientTest, HoldsUpNobodyBelow) {
  attach(3, 9);
  ask(2);
  ASSERT_TRUE(waits().withheld);
  ask(3);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].client, 3u);
}

TEST_F(OwingClientTest, AsksNothingOfThePolicy) {
  Keeping keeping;
  use(&keeping);
  ask(2);
  ASSERT_TRUE(waits().withheld);
  keeping.dispatched = 0;
  post(1);
  tick(1'100 * kUs);
  EXPECT_TRUE(waits().withheld);
  EXPECT_EQ(keeping.dispatched, 0);
}

TEST_F(OwingClientTest, IsNotRunByAHandleThatThePolicyKept) {
  Keeping keeping;
  use(&keeping);
  limit(0);
  ask(2);
  limit(0.1F);
  ASSERT_FALSE(keeping.kept.empty());
  step(launch(EventKind::kPosted, 2, Admission::kSelfStale));
  ASSERT_TRUE(waits().withheld) << "what went by itself used up what is allowed";
  keeping.run = keeping.kept.back();
  ask(1);
  for (const Decision& grant : grants_) EXPECT_EQ(grant.client, 1u);
  EXPECT_GT(core_->stats().policy_faults, 0u);
}

}  // namespace
}  // namespace heddle::core
