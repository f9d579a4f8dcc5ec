#include "daemon/server/policy_in_force.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

constexpr core::TimeNs kSecond = 1'000'000'000;

class ProbationTest : public ::testing::Test {
 protected:
  // Seconds pass in which it decides `decisions` times each and faults that often in all; the
  // second in which it becomes good, 0 if in none.
  int pass(int seconds, uint64_t decisions, uint64_t faults = 0) {
    faults_ += faults;
    int good_at = 0;
    for (int i = 1; i <= seconds; ++i) {
      decisions_ += decisions;
      if (probation_.update(now_ += kSecond, decisions_, faults_)) good_at = i;
    }
    return good_at;
  }

  Probation probation_{60 * kSecond};
  core::TimeNs now_ = 1'000 * kSecond;
  uint64_t decisions_ = 0, faults_ = 0;
  void SetUp() override { probation_.begin(now_); }
};

TEST_F(ProbationTest, AMinuteOfDecisionsWithoutAFaultIsGood) {
  EXPECT_EQ(pass(59, 1), 0);
  EXPECT_FALSE(probation_.is_good());
  EXPECT_EQ(pass(100, 1), 1) << "said once";
  EXPECT_TRUE(probation_.is_good());
}

TEST_F(ProbationTest, AFaultBeginsAnew) {
  EXPECT_EQ(pass(50, 1), 0);
  EXPECT_EQ(pass(60, 1, 1), 0);
  EXPECT_EQ(pass(1, 1), 1);
}

TEST_F(ProbationTest, AnIdleGpuProvesNothing) {
  EXPECT_EQ(pass(10'000, 0), 0);
  EXPECT_EQ(pass(30, 1), 0);
  EXPECT_EQ(pass(10'000, 0), 0);
  EXPECT_NE(pass(31, 1), 0);
}

TEST_F(ProbationTest, ALongPauseBetweenTwoLooksIsNoTimeOfDecisions) {
  EXPECT_EQ(pass(1, 1), 0);
  now_ += 1'000 * kSecond;  // a daemon without clients looks at nothing
  EXPECT_EQ(pass(1, 1), 0);
}

TEST_F(ProbationTest, ANewGenerationProvesItself) {
  EXPECT_NE(pass(60, 1), 0);
  probation_.begin(now_);
  decisions_ = 0;
  EXPECT_FALSE(probation_.is_good());
  EXPECT_EQ(pass(59, 1), 0);
  EXPECT_EQ(pass(1, 1), 1);
}

}  // namespace
}  // namespace heddle::server
