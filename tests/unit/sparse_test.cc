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
    if (telling.says_of_last(1)) quiet = telling.idle_shortly(at);
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

TEST(Sparse, EachIsToldWhereTheGpuIsBusyOrIdleForLong) {
  for (const int64_t every_ns : {int64_t{2'000}, kGapNs + 3'000}) {
    Telling telling;
    EXPECT_EQ(launch(telling, 50, every_ns), std::vector<uint32_t>(50, 0)) << every_ns;
  }
}

TEST(Sparse, ALaunchThatFindsTheGpuBusyOrIdleForLongEndsTheRow) {
  Telling telling;
  telling.tell(1'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), kUntoldMost);
  EXPECT_FALSE(telling.may_skip(3'000, 1)) << "it is busy";
  EXPECT_TRUE(telling.may_skip(9'000, 1));
  telling.skip(9'000, 100'000);
  EXPECT_FALSE(telling.may_skip(50'000, 1)) << "with what went untold, too";
  EXPECT_FALSE(telling.may_skip(109'000 + kGapNs, 1)) << "a gap";
  EXPECT_TRUE(telling.may_skip(110'000, 1));
  EXPECT_FALSE(telling.may_skip(1'000 + kRowNs, 1)) << "too long without a word";
  telling.tell(50'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), 0u);
  telling.tell(60'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), 0u) << "there is a queue";
  telling.tell(600'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), kUntoldMost);
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
