// Clients whose rings are full of tickets, and another user's who asks.
#include <chrono>
#include <memory>

#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

using Clock = std::chrono::steady_clock;

class Turns : public DaemonTest {
 protected:
  static constexpr int kHostile = 60;
  static constexpr uint16_t kRecords = 64;     // of each thread
  static constexpr double kGrantMostMs = 500;  // also where the machine is busy

  void SetUp() override {
    DaemonTest::SetUp();
    start();
    if (geteuid() != 0) GTEST_SKIP() << "needs root, for a second user";
    for (int i = 0; i < kHostile; ++i) {
      hostile_.push_back(
          std::make_unique<FakeClient>(config_.socket, FakeClient::Options{.uid = 65'534}));
    }
  }
  // All at once: the daemon stands still while they write.
  void fill() {
    kill(pid_, SIGSTOP);
    for (const auto& client : hostile_) {
      client->memory().counters.threads_used = ipc::kThreads;
      for (uint16_t thread = 0; thread < ipc::kThreads; ++thread) {
        ipc::RecordFields launch;
        launch.stream = thread;
        for (uint16_t i = 0; i < kRecords; ++i) client->post(thread, launch);
        client->ask(thread, 1);
      }
    }
  }
  size_t taken() const {
    size_t all = 0;
    for (const auto& client : hostile_) {
      for (const auto& thread : client->control().grants) all += thread.ring_tail;
    }
    return all;
  }

  std::vector<std::unique_ptr<FakeClient>> hostile_;
};

TEST_F(Turns, FullRingsOfAnotherUserHoldUpNoGrant) {
  FakeClient client(config_.socket, {.priority = 0});
  fill();
  double worst_ms = 0;
  for (uint32_t seq = 1; seq <= 200; ++seq) {
    const auto begin = Clock::now();
    client.ask(0, seq);
    kill(pid_, SIGCONT);
    ASSERT_TRUE(client.wait_granted(0, seq));
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    worst_ms = std::max(worst_ms, took.count());
    // However slow the machine is: it comes before most of what others wrote.
    if (seq == 1) {
      EXPECT_LT(taken(), kHostile * ipc::kThreads * kRecords / 4);
    }
    client.complete_all(0);
  }
  printf("worst grant %.1f ms\n", worst_ms);
  EXPECT_LT(worst_ms, kGrantMostMs);
}

}  // namespace
}  // namespace heddle::testing
