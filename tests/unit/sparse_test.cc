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

TEST(Sparse, AQuietKernelIsOverBeforeALaunchThatComesSoon) {
  EXPECT_TRUE(is_quiet(8'000, 3));
  EXPECT_FALSE(is_quiet(8'000, 9)) << "it runs for longer";
  EXPECT_FALSE(is_quiet(kPauseNs, 3)) << "a gap worth filling";
  EXPECT_FALSE(is_quiet(8'000, 0)) << "nobody knows";
}

TEST(Sparse, ARowIsToldByTwoLaunchesNowAndThen) {
  Telling telling;
  std::vector<uint32_t> untold;
  for (int launch = 0; launch < 100; ++launch) {
    if (telling.may_skip(1)) {
      telling.skip();
      continue;
    }
    untold.push_back(telling.untold());
    telling.tell(true, 1);
  }
  const std::vector<uint32_t> rows{0, kUntoldMost, 0, kUntoldMost, 0, kUntoldMost, 0};
  EXPECT_EQ(untold, rows);
}

TEST(Sparse, ARowEndsWithALoudKernelAndWithAWait) {
  Telling telling;
  telling.tell(true, 1);
  EXPECT_EQ(telling.may_follow(), kUntoldMost);
  EXPECT_TRUE(telling.adjacent(1));
  EXPECT_FALSE(telling.may_skip(2)) << "any thread's wait";
  EXPECT_FALSE(telling.adjacent(2));
  telling.skip();
  EXPECT_FALSE(telling.adjacent(1));
  telling.tell_wait();
  EXPECT_FALSE(telling.may_skip(1));
  telling.tell(false, 2);
  EXPECT_FALSE(telling.may_skip(2));
}

}  // namespace
}  // namespace heddle::ipc
