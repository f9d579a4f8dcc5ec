// Which counts of clients the log tells, and how often.
#include "daemon/server/alerts.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

TEST(Untold, ACountIsToldOnceUntilItGrows) {
  Untold broken;
  using Ids = std::vector<core::ClientId>;
  EXPECT_EQ(broken.grown({{1, 0}, {2, 3}}, 1), Ids{2});
  EXPECT_EQ(broken.grown({{1, 0}, {2, 3}}, 1), Ids{});
  EXPECT_EQ(broken.grown({{1, 1}, {2, 3}}, 1), Ids{1}) << "another's is no reason to be silent";
  EXPECT_EQ(broken.grown({{1, 1}, {2, 4}}, 1), Ids{2});
  EXPECT_EQ(broken.grown({}, 1), Ids{});
  EXPECT_EQ(broken.next(), 1 + Untold::kTellNs);
}

}  // namespace
}  // namespace heddle::server
