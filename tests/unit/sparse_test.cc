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
    if (quiet && telling.may_skip(1)) {
      telling.skip(3'000);
      continue;
    }
    if (telling.adjacent(1)) quiet = telling.was_quiet(at);
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

TEST(Sparse, ALaunchThatFindsTheQueueFullBeginsNoRow) {
  Telling telling;
  telling.tell(1'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), kUntoldMost);
  for (int i = 0; i < 5; ++i) telling.skip(100'000);
  telling.tell(50'000, 3'000, true, 1);  // the GPU has ten times as much to do
  telling.tell(60'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), 0u);
  telling.tell(600'000, 3'000, true, 1);
  EXPECT_EQ(telling.may_follow(), kUntoldMost);
}

TEST(Sparse, ARowEndsWithALoudKernelAndWithAWait) {
  Telling telling;
  telling.tell(1'000, 3'000, true, 1);
  EXPECT_TRUE(telling.adjacent(1));
  EXPECT_FALSE(telling.may_skip(2)) << "any thread's wait";
  EXPECT_FALSE(telling.adjacent(2));
  telling.skip(3'000);
  EXPECT_FALSE(telling.adjacent(1));
  telling.tell_wait();
  EXPECT_FALSE(telling.may_skip(1));
  telling.tell(20'000, 3'000, false, 2);
  EXPECT_FALSE(telling.may_skip(2));
}

}  // namespace
}  // namespace heddle::ipc
