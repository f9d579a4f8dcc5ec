// What a rule lets a client use of a channel beside others.
#include "daemon/core/ceiling.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST_F(CeilingTest, OtherLimitsKeepWhatIsOwedOfTheSame) {
  const Use use = use_of_dram(0.9F);
  ceiling_.spend(&use, 2'000);
  ceiling_.limit({0.5F, 0, 0.3F});
  EXPECT_EQ(ceiling_.spent(), Channel::kDram);
  ceiling_.limit({0.5F, 0, 0});
  EXPECT_FALSE(ceiling_.spent());
  EXPECT_TRUE(ceiling_.any());
}

}  // namespace
}  // namespace heddle::core
