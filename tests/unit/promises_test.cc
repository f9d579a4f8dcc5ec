// Which broken promises the log tells, and how often.
#include "daemon/server/promises.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

core::ClientStatus client(core::ClientId id, uint64_t broken) {
  core::ClientStatus status;
  status.view.id = id;
  status.promise.broken = broken;
  return status;
}

TEST(BrokenPromises, EachIsToldOnceUntilAnotherBlockBreaks) {
  BrokenPromises broken;
  const auto told = [&](std::vector<core::ClientStatus> clients) {
    std::vector<core::ClientId> ids;
    for (const core::ClientStatus* c : broken.untold(clients, 1)) ids.push_back(c->view.id);
    return ids;
  };
  using Ids = std::vector<core::ClientId>;
  EXPECT_EQ(told({client(1, 0), client(2, 3)}), Ids{2});
  EXPECT_EQ(told({client(1, 0), client(2, 3)}), Ids{});
  EXPECT_EQ(told({client(1, 1), client(2, 3)}), Ids{1}) << "another's is no reason to be silent";
  EXPECT_EQ(told({client(1, 1), client(2, 4)}), Ids{2});
  EXPECT_EQ(broken.next(), 1 + BrokenPromises::kTellNs);
}

}  // namespace
}  // namespace heddle::server
