// Which launches of a row are told (ipc/sparse.h).
#include <gtest/gtest.h>

#include <vector>

#include "ipc/layout.h"
#include "ipc/sparse.h"

namespace heddle::ipc {
namespace {

TEST(Sparse, TheWordHoldsAPriority) {
  EXPECT_EQ(sparse_priority(pack_sparse(-5)), -5);
  EXPECT_NE(pack_sparse(0), 0u);
}

// Launches of a kernel of 3 µs each, and how many went untold before each that is told.
std::vector<uint32_t> launch(Telling& telling, int launches, int64_t every_ns) {
  std::vector<uint32_t> untold;
  bool quiet = false;
  int64_t at = 1'000'000;
  for (int i = 0; i < launches; ++i, at += every_ns) {
    if (quiet && telling.may_skip(at, 1)) {
      telling.skip(at, 3'000);
      continue;
    }
    if (telling.says_of_last(1)) quiet = telling.follows_closely(at);
    untold.push_back(telling.untold());
    telling.tell(at, 3'000, quiet, 1);
  }
  return untold;
}

TEST(Sparse, ARowIsToldByTwoLaunchesNowAndThen) {
  Telling telling;
  const std::vector<uint32_t> rows{0, 0, kUntoldMost, 0, kUntoldMost, 0, kUntoldMost, 0};
  EXPECT_EQ(launch(telling, 6 + 4 * kUntoldMost - 20, 8'000), rows);
}

TEST(Sparse, EachIsToldWhereTheGpuIsIdleForLong) {
  Telling telling;
  EXPECT_EQ(launch(telling, 50, kGapNs + 3'000), std::vector<uint32_t>(50, 0));
}

// A launch every 2 µs of a kernel of 3 µs: until kQueueNs of them wait, rows; then each is told.
TEST(Sparse, EachIsToldWhereMuchIsQueued) {
  Telling telling;
  std::vector<uint32_t> untold = launch(telling, 1000, 2'000);
  ASSERT_GT(untold.size(), 100u);
  EXPECT_EQ(untold[2], kUntoldMost);
  EXPECT_EQ(std::vector<uint32_t>(untold.end() - 100, untold.end()), std::vector<uint32_t>(100, 0));
}

TEST(Sparse, ALaunchThatFindsMuchQueuedOrTheGpuIdleForLongEndsTheRow) {
  Telling telling;
  telling.tell(1'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), kUntoldMost);
  EXPECT_TRUE(telling.may_skip(3'000, 1)) << "a short queue";
  telling.skip(3'000, 3'000);
  EXPECT_TRUE(telling.may_skip(9'000, 1));
  telling.skip(9'000, 300'000);
  EXPECT_FALSE(telling.may_skip(308'900 - kQueueNs, 1)) << "a long one, with what went untold";
  EXPECT_TRUE(telling.may_skip(309'000 - kQueueNs, 1));
  EXPECT_FALSE(telling.may_skip(309'000 + kGapNs, 1)) << "a gap";
  EXPECT_FALSE(telling.may_skip(1'000 + kRowNs, 1)) << "too long without a word";
  EXPECT_EQ(telling.backlog_ns(50'000, 1), 259'000);
  EXPECT_EQ(telling.backlog_ns(50'000, 2), 0) << "a wait is over";
  telling.tell(50'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), 0u) << "there is a queue";
  telling.tell(400'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), kUntoldMost) << "a gap ended";
  telling.tell(401'000, 3'000, true, 2);
  EXPECT_EQ(telling.may_follow(), kUntoldMost) << "nothing is queued behind a wait";
}

TEST(Sparse, ARowEndsWithALoudKernelAWaitAndWhateverIsToldOtherwise) {
  Telling telling;
  telling.tell(1'000, 3'000, true, 1);
  EXPECT_TRUE(telling.says_of_last(1));
  EXPECT_FALSE(telling.may_skip(9'000, 2)) << "any thread's wait";
  EXPECT_FALSE(telling.says_of_last(2));
  telling.skip(9'000, 3'000);
  telling.tell_wait();
  EXPECT_FALSE(telling.may_skip(15'000, 1));
  telling.tell(20'000, 3'000, false, 2);
  EXPECT_FALSE(telling.may_skip(25'000, 2));
  telling.tell(30'000, 3'000, true, 2);
  telling.stop();
  EXPECT_FALSE(telling.may_skip(35'000, 2));
}

}  // namespace
}  // namespace heddle::ipc
