// Sizes inside a graph, as right_size_inside.lua finds them: a graph whose time is known by its
// sizes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/policy/files.h"
#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

class InsideTest : public PolicyTest {
 protected:
  InsideTest() {
    gpu_.launches[7].kind = core::LaunchKind::kGraph;
    gpu_.active = true;
  }

  void load_shipped(const std::string& name) {
    const std::filesystem::path folder = HEDDLE_POLICIES;
    std::ifstream file(policy_file(folder / name));
    const std::string body{std::istreambuf_iterator<char>(file), {}};
    auto loaded = load_policy({body, name, folder}, {}, limits_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    policy_ = std::move(*loaded);
    ASSERT_EQ(policy_->init(gpu_), HookResult::kDefault);
  }

  // Launches until the sizes stay.
  core::KernelVerdict search() {
    load_shipped("right_size_inside.lua");
    for (int i = 0; i < 100; ++i) {  // three are at work for longer than settle_ms
      gpu_.now_ns += 1'000'000;
      policy_->tick(gpu_);
    }
    core::KernelVerdict v = sizes();
    size_t resized = gpu_.resized.size();
    for (int launches = 0; launches < 20'000; ++launches) {
      gpu_.now_ns += 3'000'000;
      core::LaunchView k = gpu_.launches[7];
      k.run_us = time_us(v);
      EXPECT_EQ(policy_->stopping(gpu_, k), HookResult::kDefault) << policy_->last_fault().message;
      if (gpu_.resized.size() == resized) continue;
      resized = gpu_.resized.size();
      v = sizes();
    }
    return v;
  }

  core::KernelVerdict sizes() {
    core::LaunchView kernel = gpu_.launches[7];
    return policy_->kernel_init(gpu_, kernel);
  }

  // Of the sizes that the graph has now. Its first half fills half of the SMs, its second all.
  double time_us(const core::KernelVerdict& v) const {
    if (same_) return 1000;
    const double all = gpu_.view.sm_total;
    double us = 0;
    for (uint32_t part = 0; part < v.parts; ++part) {
      const double sm = v.inside[part];
      us += 100 * (part < v.parts / 2 ? std::max(1.0, all / 2 / sm) : all / sm);
    }
    return us;
  }

  bool same_ = false;  // however few SMs it has
};

TEST_F(InsideTest, PartsThatNeedFewerSmsGiveThemUp) {
  const core::KernelVerdict v = search();
  ASSERT_EQ(v.parts, 16U);
  for (uint32_t part = 0; part < 16; ++part) {
    EXPECT_EQ(v.inside[part], part < 8 ? 64U : 96U) << part;
  }
}

TEST_F(InsideTest, AGraphThatNeedsTheLeastSizeHasIt) {
  same_ = true;
  const core::KernelVerdict v = search();
  ASSERT_EQ(v.parts, 16U);
  for (uint32_t part = 0; part < 16; ++part) EXPECT_EQ(v.inside[part], 16U) << part;
}

TEST_F(InsideTest, AGpuOfTheLeastSizeHasNoOther) {
  gpu_.view.sm_total = 16;
  const core::KernelVerdict v = search();
  for (uint32_t part = 0; part < v.parts; ++part) EXPECT_EQ(v.inside[part], 16U) << part;
}

TEST_F(InsideTest, ASmallGpuHasTheSizesBelowItsOwn) {
  gpu_.view.sm_total = 64;
  const core::KernelVerdict v = search();
  for (uint32_t part = 0; part < 16; ++part) {
    EXPECT_EQ(v.inside[part], part < 8 ? 32U : 64U) << part;
  }
}

// Whoever hears of each launch's end costs heddled time, and launches alone their short way.
TEST_F(InsideTest, RightSizeItselfHearsNoLaunch) {
  load_shipped("right_size.lua");
  EXPECT_FALSE(policy_->hears_stopping());
}

TEST_F(InsideTest, ATableHasOneToSixteenSizes) {
  load(with_hooks("kernel_init = function(kn) return { 8, 0, 16 }, -2 end"));
  const core::KernelVerdict v = sizes();
  EXPECT_EQ(v.parts, 3U);
  EXPECT_EQ(v.inside[2], 16U);
  EXPECT_EQ(v.launch_priority, -2);
  for (const char* bad : {"{}", "{ 8, 'x' }", "{ -1 }",
                          "{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 }"}) {
    load(with_hooks(std::string("kernel_init = function(kn) return ") + bad + " end"));
    EXPECT_EQ(sizes().result, HookResult::kFault) << bad;
    expect_fault("verdict", "a table of 1 to 16 numbers of SMs");
  }
}

}  // namespace
}  // namespace heddle::policy
