// Thousands of threads of one program, alive at once, under the shim and the daemon: 64 have a
// place of their own, the others launch unmanaged and are counted, and nobody's launch is lost or
// waits for ever.
#include <poll.h>

#include "ipc/limits.h"
#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

constexpr uint64_t kCrowd = 2'500;
constexpr uint64_t kLaunchesEach = 64;  // of a thread: what its place then says is all told
constexpr uint64_t kFew = 60;           // who all find a place
constexpr int kPatienceMs = 60'000;

// tests/fault/crowd.cc under the shim.
class Crowd {
 public:
  explicit Crowd(int priority) {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      setenv("LD_PRELOAD", HEDDLE_SHIM, 1);
      setenv("HEDDLE_PRIORITY", std::to_string(priority).c_str(), 1);
      execl(HEDDLE_CROWD, "crowd", std::to_string(kLaunchesEach).c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  ~Crowd() {
    close(to_);
    close(from_);
    int result = -1;
    waitpid(pid_, &result, 0);
    EXPECT_EQ(result, 0);
  }
  // So many threads come, launch together and go. True: every one of them got its own answer.
  bool gathers(uint64_t threads) {
    const std::string order = std::to_string(threads) + "\n";
    if (write(to_, order.data(), order.size()) != static_cast<ssize_t>(order.size())) return false;
    pollfd readable{from_, POLLIN, 0};
    char answer[64] = {};
    if (poll(&readable, 1, kPatienceMs) != 1) kill(pid_, SIGKILL);  // it hangs
    const ssize_t size = read(from_, answer, sizeof answer - 1);
    return size > 0 && std::to_string(threads) + " 0\n" == answer;
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

class CrowdTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    // On two cores a thread among thousands waits for its processor: that is not what is looked at.
    config_.core.starvation_us = 60e6;
    set_environment();
  }
  void TearDown() override {
    unsetenv("HEDDLE_GATES");
    DaemonTest::TearDown();
  }
  json client() {
    Request ps;
    ps.kind = Request::Kind::kPs;
    const server::Reply reply = request(config_.socket, ps);
    const json all = json::parse(reply.ok ? reply.json : R"({"clients":[{}]})");
    return all["clients"].back();
  }
  // How many of its launches the daemon granted.
  uint64_t launch_all(int priority, const char* allowed) {
    Crowd crowd(priority);
    EXPECT_TRUE(crowd.gathers(kCrowd)) << "a launch was lost, doubled or never let go";
    EXPECT_EQ(client()["devices"].at(0)["allowed"], allowed);
    // Who comes later finds the places of those who went, and what these had counted is told.
    EXPECT_TRUE(crowd.gathers(kFew));
    const json all = client();
    const json counted = all["counters"], self = counted["self"];
    EXPECT_EQ(counted["threads"], ipc::kThreads);
    const auto pool = self["pool"].get<uint64_t>();
    EXPECT_EQ(pool % kLaunchesEach, 0u) << "a thread had a place for some of its launches only";
    const uint64_t places = kCrowd - pool / kLaunchesEach;
    EXPECT_LE(places, ipc::kThreads - 1) << "the main thread has one";
    EXPECT_GE(places, ipc::kThreads - 2) << "the helper may have another";
    uint64_t sum = counted["launches"].get<uint64_t>();
    for (const json& one : self) sum += one.get<uint64_t>();
    constexpr uint64_t kAll = (kCrowd + kFew) * kLaunchesEach;
    EXPECT_LE(sum, kAll);
    EXPECT_GT(sum, kAll - ipc::kThreads * kLaunchesEach)
        << "each place may have a lot left to tell";
    return all["devices"].at(0)["granted"];
  }
};

TEST_F(CrowdTest, LaunchesUnderALease) {
  start();
  EXPECT_EQ(launch_all(0, "lease"), 0u);
}

TEST_F(CrowdTest, LaunchesAtOpenGates) {
  start();
  FakeClient beside(config_.socket, {.priority = 9});
  launch_all(9, "open");
}

TEST_F(CrowdTest, LaunchesWhenItIsGranted) {
  config_.policy.name = HEDDLE_POLICIES "/papers/fifo.lua";
  setenv("HEDDLE_GATES", "0", 1);
  start();
  EXPECT_GT(launch_all(9, "gate"), (ipc::kThreads + kFew - 2) * kLaunchesEach / 2);
}

TEST_F(CrowdTest, LaunchesAtGates) {
  config_.policy.name = HEDDLE_POLICIES "/papers/fifo.lua";
  start();
  // Of a unit, only the first launch is granted: how many units there are is a matter of time.
  EXPECT_GT(launch_all(9, "gate"), 0u);
}

}  // namespace
}  // namespace heddle::testing
