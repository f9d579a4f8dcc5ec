// Users who fill every connection that they get, and root's command.
#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

class RootFirst : public DaemonTest {};

TEST_F(RootFirst, BypassIsAnsweredWhileTenUsersRefillAThousandConnections) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, for other users";
  constexpr int kUsers = 10, kConnections = 100, kOrders = 4;
  start([] { (void)!nice(-10); });  // as its unit does
  std::vector<pid_t> users;
  for (int i = 0; i < kUsers; ++i) {
    const pid_t user = fork();
    if (user == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (setuid(static_cast<uid_t>(60'000 + i)) != 0) _exit(1);
      std::vector<int> all(kConnections, -1);
      const std::vector<std::byte> packet = server::encode_request({});
      while (true) {
        for (int& fd : all) {
          if (fd >= 0) close(fd);
          fd = ipc::connect_socket(config_.socket.c_str(), 0);
          if (fd >= 0) (void)ipc::send_packet(fd, packet);
        }
      }
    }
    users.push_back(user);
  }
  ASSERT_TRUE(eventually([&] { return count(log_text(), "connection_refused") > 0; }));
  int failed = 0;
  for (int i = 0; i < kOrders; ++i) {
    Request order;
    order.kind = Request::Kind::kBypass;
    order.bypass = i % 2 == 0;
    failed += request(config_.socket, order).ok ? 0 : 1;
  }
  for (const pid_t user : users) {
    kill(user, SIGKILL);
    waitpid(user, nullptr, 0);
  }
  EXPECT_EQ(failed, 0) << "of " << kOrders << ": one without an answer in ten seconds";
}

}  // namespace
}  // namespace heddle::testing
