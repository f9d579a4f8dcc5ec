// The daemon at the limits of what it takes: who comes beyond them is told, and those who are in
// notice nothing.
#include <sys/resource.h>

#include <memory>

#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

TEST_F(DaemonTest, TurnsAwayWhoComesWhenDescriptorsRunOut) {
  start([] {
    const rlimit few{40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
  });
  FakeClient first(config_.socket, {});
  const size_t managed = attach_together(config_.socket, 60, [&] {
    first.ask(0, 1);
    EXPECT_TRUE(first.wait_granted(0, 1)) << "who is in notices";
  });
  EXPECT_LT(managed, 60u);
  EXPECT_TRUE(has_clients(1));
  EXPECT_EQ(FakeClient(config_.socket, {}).attached().managed, 1u);
  EXPECT_LE(count(log_text(), "connection_refused"), 3u);
}

// Not even the spare one can be had again: nobody can be turned away, and the listener stays
// readable.
TEST_F(DaemonTest, SleepsWhileNotOneDescriptorIsLeft_AndListensAgain) {
  start();
  const auto limit = [&](rlim_t most) {
    const rlimit soft{most, 4'096};
    prlimit(pid_, RLIMIT_NOFILE, &soft, nullptr);
  };
  const auto used_ns = [&] {
    std::ifstream stream("/proc/" + std::to_string(pid_) + "/schedstat");
    int64_t ns = 0;
    stream >> ns;
    return ns;
  };
  limit(3);
  const int knocking = ipc::connect_socket(config_.socket.c_str(), 100);
  const int64_t before = used_ns();
  poll(nullptr, 0, 500);  // the time over which it is measured
  EXPECT_LT(used_ns() - before, 100'000'000) << "it spins";
  limit(1'024);
  EXPECT_EQ(FakeClient(config_.socket, {}).attached().managed, 1u);
  close(knocking);
}

TEST_F(DaemonTest, LeavesPlacesForOthersWhenOneUserTakesAllHeCan) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, for a second user";
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  start();
  std::vector<std::unique_ptr<FakeClient>> greedy;
  for (int i = 0; i < 514; ++i) {
    greedy.push_back(
        std::make_unique<FakeClient>(config_.socket, FakeClient::Options{.uid = 65'534}));
    if (greedy.back()->attached().managed == 0) break;
  }
  EXPECT_EQ(greedy.size(), 513u);
  EXPECT_NE(std::string(greedy.back()->attached().reason).find("half"), std::string::npos);
  FakeClient other(config_.socket, {});
  EXPECT_EQ(other.attached().managed, 1u);
}

}  // namespace
}  // namespace heddle::testing
