// The daemon at the limits of what it takes: who comes beyond them is told, and those who are in
// notice nothing.
#include <sched.h>
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
  EXPECT_LE(count(end_log(), "connection_refused"), 3u);
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

// Descriptors for all whom a daemon takes; it inherits the limit.
bool raise_descriptor_limit() {
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= 8'192;
}

TEST_F(DaemonTest, TakesAThousandAndTwentyFourClients_AndTellsTheNextWhatToDo) {
  constexpr size_t kClientsMax = 1'024;
  if (!raise_descriptor_limit()) GTEST_SKIP() << "too few descriptors";
  start();
  FakeClient first(config_.socket, {});
  const size_t managed = attach_together(config_.socket, kClientsMax + 6, [&] {
    EXPECT_EQ(status()["clients"], kClientsMax);
    const ipc::Attached answer = FakeClient(config_.socket, {}).attached();
    EXPECT_EQ(answer.managed, 0u);
    EXPECT_NE(std::string(answer.reason).find("takes 1024 clients"), std::string::npos);
    EXPECT_NE(std::string(answer.reason).find("end some programs"), std::string::npos);
    first.ask(0, 1);
    EXPECT_TRUE(first.wait_granted(0, 1)) << "who is in notices";
  });
  EXPECT_EQ(managed, kClientsMax - 1);
  EXPECT_TRUE(has_clients(1));
  EXPECT_EQ(FakeClient(config_.socket, {}).attached().managed, 1u);
}

TEST_F(DaemonTest, HangsUpOnWhoComesBeyondTwiceAsManyConnections) {
  constexpr size_t kConnectionsMax = 2'048;
  if (!raise_descriptor_limit()) GTEST_SKIP() << "too few descriptors";
  start();
  FakeClient first(config_.socket, {});
  std::vector<int> mute;
  const auto connect = [&] {
    mute.push_back(ipc::connect_socket(config_.socket.c_str(), 10'000));
    ASSERT_GE(mute.back(), 0);
  };
  const auto hung_up = [](int fd, int patience_ms) {
    pollfd end{fd, POLLIN, 0};
    char byte;
    return poll(&end, 1, patience_ms) == 1 && recv(fd, &byte, 1, 0) == 0;
  };
  // Those of the questions before may not be gone yet.
  while (mute.size() < kConnectionsMax - 1) connect();
  for (int i = 0; i < 3; ++i) {
    connect();
    EXPECT_TRUE(hung_up(mute.back(), 10'000));
    close(mute.back());
    mute.pop_back();
  }
  for (const int fd : mute) EXPECT_FALSE(hung_up(fd, 0));
  first.ask(0, 1);
  EXPECT_TRUE(first.wait_granted(0, 1)) << "who is in notices";
  EXPECT_FALSE(status().contains("clients"));
  for (const int fd : mute) close(fd);
  EXPECT_TRUE(has_clients(1));
  EXPECT_EQ(FakeClient(config_.socket, {}).attached().managed, 1u);
  const std::string log = end_log();
  EXPECT_NE(log.find("all 2048 connections are taken"), std::string::npos);
  EXPECT_LE(count(log, "connection_refused"), 3u);
}

// The table is of a device, and of all tasks that were ever there.
TEST_F(DaemonTest, SaysOnceThatItLearnsNoMore) {
  constexpr uint32_t kTasks = 6;  // four that live fill their user's share of the table
  start();
  std::vector<std::unique_ptr<FakeClient>> clients;
  for (uint32_t task = 0; task < kTasks; ++task) {
    clients.push_back(std::make_unique<FakeClient>(
        config_.socket, FakeClient::Options{.label = std::to_string(task)}));
    FakeClient& client = *clients.back();
    for (uint32_t index = 0; index < ipc::kKernels; ++index) {
      client.register_kernel(index, index, "k");
    }
    client.ask(0, 1, ipc::kKernels - 1);
    ASSERT_TRUE(client.wait_granted(0, 1)) << task;
  }
  EXPECT_EQ(count(end_log(), "learns_no_more"), 1u);
}

TEST_F(DaemonTest, LeavesPlacesForOthersWhenOneUserTakesAllHeCan) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, for a second user";
  if (!raise_descriptor_limit()) GTEST_SKIP() << "too few descriptors";
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

// Of one user, who keep connections and say nothing.
class Silent : public DaemonTest {
 protected:
  static constexpr int kOfContainer = 64;
  static constexpr uid_t kUser = 65'534;

  void SetUp() override {
    DaemonTest::SetUp();
    if (geteuid() != 0) GTEST_SKIP() << "needs root, for a second user";
    start();
  }
  void TearDown() override {
    if (keeper_ > 0) {
      kill(keeper_, SIGKILL);
      waitpid(keeper_, nullptr, 0);
    }
    DaemonTest::TearDown();
  }
  // They are all accepted when this returns.
  void keep(bool in_container) {
    keeper_ = fork();
    if (keeper_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Who made the namespace is not of it: its child is, and ends with it.
      if (in_container && (unshare(CLONE_NEWPID) != 0 || fork() != 0)) pause();
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (setuid(kUser) != 0) _exit(1);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (int i = 0; i < kOfContainer; ++i) (void)ipc::connect_socket(config_.socket.c_str(), 100);
      while (true) pause();
    }
    ASSERT_TRUE(eventually([&] { return connections() >= kOfContainer; }));
  }
  // Each has a pidfd, and nothing else has.
  int connections() const {
    int count = 0;
    for (const fs::directory_entry& fd :
         fs::directory_iterator("/proc/" + std::to_string(pid_) + "/fd")) {
      std::error_code closed;
      count += fs::read_symlink(fd, closed).string().find("pidfd") != std::string::npos ? 1 : 0;
    }
    return count;
  }
  bool attaches() {
    try {
      return FakeClient(config_.socket, {.uid = kUser}).attached().managed != 0;
    } catch (const std::runtime_error&) {  // hung up on
      return false;
    }
  }

  pid_t keeper_ = -1;
};

TEST_F(Silent, AContainerShutsOutNoOtherOfItsUser) {
  keep(true);
  EXPECT_TRUE(attaches());
}

TEST_F(Silent, ASilentConnectionGivesWayWhereItsUsersShareIsFull) {
  keep(false);
  ASSERT_TRUE(eventually([&] { return attaches(); }));
  EXPECT_GT(status()["refusals"]["count"], 0);
  EXPECT_NE(status()["refusals"]["last"].get<std::string>().find("pid " + std::to_string(keeper_)),
            std::string::npos)
      << status()["refusals"];
}

}  // namespace
}  // namespace heddle::testing
