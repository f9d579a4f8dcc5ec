// Sizes inside a graph, as right_size.lua finds them: a graph whose time is known by its sizes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

class InsideTest : public PolicyTest {
 protected:
  InsideTest() {
    gpu_.launches[7].kind = core::LaunchKind::kGraph;
    gpu_.active = true;
  }

  void load_right_size() {
    const std::filesystem::path folder = HEDDLE_POLICIES;
    std::ifstream file(folder / "right_size.lua");
    const std::string body{std::istreambuf_iterator<char>(file), {}};
    auto loaded = load_policy({body, "right_size.lua", folder}, {{"inside", "true"}}, limits_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    policy_ = std::move(*loaded);
    ASSERT_EQ(policy_->init(gpu_), HookResult::kDefault);
    for (int i = 0; i < 100; ++i) {  // three are at work for longer than settle_ms
      gpu_.now_ns += 1'000'000;
      policy_->tick(gpu_);
    }
  }

  core::KernelVerdict sizes() {
    core::LaunchView kernel = gpu_.launches[7];
    return policy_->kernel_init(gpu_, kernel);
  }

  // Of the sizes that the graph has now. Its first half fills half of the SMs, its second all.
  static double time_us(const core::KernelVerdict& v) {
    double us = 0;
    for (uint32_t part = 0; part < v.parts; ++part) {
      const double sm = v.inside[part] == 0 ? 132 : v.inside[part];
      us += 100 * (part < v.parts / 2 ? std::max(1.0, 64 / sm) : 132 / sm);
    }
    return us;
  }
};

TEST_F(InsideTest, PartsThatNeedFewerSmsGiveThemUp) {
  load_right_size();
  int launches = 0;
  size_t resized = gpu_.resized.size();
  core::KernelVerdict v = sizes();
  ASSERT_EQ(v.parts, 16U);
  for (; launches < 20'000 && policy_; ++launches) {
    gpu_.now_ns += 3'000'000;
    core::LaunchView k = gpu_.launches[7];
    k.run_us = time_us(v);
    ASSERT_EQ(policy_->stopping(gpu_, k), HookResult::kDefault) << policy_->last_fault().message;
    if (gpu_.resized.size() == resized) continue;
    resized = gpu_.resized.size();
    v = sizes();
  }
  for (uint32_t part = 0; part < 16; ++part) {
    EXPECT_EQ(v.inside[part], part < 8 ? 64U : 0U) << part;
  }
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
