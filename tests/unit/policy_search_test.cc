// The size of a graph, as right_size.lua finds it: the graph's time is known by its SMs.
#include <algorithm>
#include <string>

#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

class SearchTest : public PolicyTest {
 protected:
  SearchTest() {
    gpu_.launches[7].kind = core::LaunchKind::kGraph;
    gpu_.active = true;
  }

  void load_shipped(const std::string& name) {
    auto loaded = load_policy_file(HEDDLE_POLICIES "/" + name, {}, limits_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    policy_ = std::move(*loaded);
    ASSERT_EQ(policy_->init(gpu_), HookResult::kDefault);
  }

  // Launches until the size stays.
  core::KernelVerdict search(const char* policy = "right_size.lua") {
    load_shipped(policy);
    for (int i = 0; i < 100; ++i) {  // three are at work for longer than settle_ms
      gpu_.now_ns += 1'000'000;
      policy_->tick(gpu_);
    }
    core::KernelVerdict v = size();
    size_t resized = gpu_.resized.size();
    for (int launches = 0; launches < 20'000; ++launches) {
      gpu_.now_ns += 3'000'000;
      core::LaunchView k = gpu_.launches[7];
      k.run_us = time_us(v);
      EXPECT_EQ(policy_->stopping(gpu_, k), HookResult::kDefault) << policy_->last_fault().message;
      if (gpu_.resized.size() == resized) continue;
      resized = gpu_.resized.size();
      v = size();
    }
    return v;
  }

  core::KernelVerdict size() {
    core::LaunchView kernel = gpu_.launches[7];
    return policy_->kernel_init(gpu_, kernel);
  }

  // Its kernels fill a third of the SMs.
  double time_us(const core::KernelVerdict& v) const {
    if (same_) return 1000;
    return 1000 * std::max(1.0, gpu_.view.sm_total.get() / 3.0 / v.sm.get());
  }

  bool same_ = false;  // however few SMs it has
};

TEST_F(SearchTest, GraphGivesUpTheSmsThatItDoesNotFill) {
  const core::KernelVerdict v = search();
  EXPECT_EQ(v.sm.get(), 48U);
  EXPECT_FALSE(v.timed) << "the search is over";
}

TEST_F(SearchTest, GraphWithACurveIsSearchedToo) {
  ipc::KernelMetrics alike;
  alike.set(ipc::metric_of("us_on_1"), 1000);
  const core::SmGroups groups{core::GroupCount(4), {33, 33, 33, 33}};
  gpu_.launches[7].mean_us = 1000;
  gpu_.launches[7].metrics = &alike;
  gpu_.launches[7].groups = &groups;
  EXPECT_EQ(search().sm.get(), 48U);
}

TEST_F(SearchTest, GraphOnTrialIsTimed) {
  search();
  gpu_.launches[7].client = 2;
  const core::KernelVerdict v = size();
  EXPECT_EQ(v.sm, gpu_.view.sm_total);
  EXPECT_TRUE(v.timed);
}

TEST_F(SearchTest, GraphThatNeedsTheLeastSizeHasIt) {
  same_ = true;
  EXPECT_EQ(search().sm.get(), 16U);
}

TEST_F(SearchTest, GpuOfTheLeastSizeHasNoOther) {
  gpu_.view.sm_total = core::SmCount(16);
  EXPECT_EQ(search().sm.get(), 16U);
}

TEST_F(SearchTest, SmallGpuHasTheSizesBelowItsOwn) {
  gpu_.view.sm_total = core::SmCount(64);
  EXPECT_EQ(search().sm.get(), 32U);
}

TEST_F(SearchTest, KernelInitSaysWhetherLaunchesAreTimed) {
  load(with_hooks("kernel_init = function(kn) return 8, -2, true end"));
  core::KernelVerdict v = size();
  EXPECT_EQ(v.sm.get(), 8U);
  EXPECT_EQ(v.launch_priority, -2);
  EXPECT_TRUE(v.timed);
  load(with_hooks("kernel_init = function(kn) return nil, nil, true end"));
  v = size();
  EXPECT_EQ(v.result, HookResult::kDecided);
  EXPECT_TRUE(v.timed);
  load(with_hooks("kernel_init = function(kn) return 8, -2, 1 end"));
  EXPECT_EQ(size().result, HookResult::kFault);
  expect_fault("verdict", "timed as a boolean");
  load(with_hooks("kernel_init = function(kn) return { 8 } end"));
  EXPECT_EQ(size().result, HookResult::kFault);
  expect_fault("verdict", "sm, stream_priority or nil");
}

}  // namespace
}  // namespace heddle::policy
