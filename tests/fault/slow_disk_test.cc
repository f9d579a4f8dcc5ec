// Whatever disks and readers of the log do, launches are decided on.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

using Clock = std::chrono::steady_clock;

class SlowDisk : public DaemonTest {
 protected:
  // Everybody is gated; `hook` is what is done at each ask.
  void save(const std::string& hook) const {
    const std::string file = folder_ + "/policies/p.lua";
    std::ofstream(file + ".new")
        << "return policy { name = 'p', api = 1, version = '1', hooks = { client_init = "
           "function() return GATE end, client_active = function() return GATE end, enqueue = "
           "function(k) "
        << hook << " return RUN end } }";
    fs::rename(file + ".new", file);
  }
  void start_slow() {
    std::ofstream(folder_ + "/heddled.toml")
        << "[policy]\nname = 'p'\ndirectory = '" << folder_ << "/policies'\n";
    int log[2];
    ASSERT_EQ(pipe2(log, O_CLOEXEC), 0);
    reader_ = log[0];  // who never reads
    fcntl(log[1], F_SETFL, O_NONBLOCK);
    while (write(log[1], "full", 4) > 0) {
    }
    fcntl(log[1], F_SETFL, 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(log[1], STDERR_FILENO);
      setenv("STATE_DIRECTORY", folder_.c_str(), 1);
      setenv("HEDDLE_SLOW_DISK", (folder_ + "/slow").c_str(), 1);
      setenv("LD_PRELOAD", HEDDLE_SLOW_DISK, 1);
      execl(HEDDLE_HEDDLED, "heddled", "--config", (folder_ + "/heddled.toml").c_str(), "--socket",
            config_.socket.c_str(), nullptr);
      _exit(127);
    }
    close(log[1]);
    ASSERT_TRUE(eventually([&] { return status().contains("clients"); }));
  }
  void TearDown() override {
    fs::remove(folder_ + "/slow");
    DaemonTest::TearDown();
    close(reader_);
  }
  json policy() { return status()["policy"]; }

  int reader_ = -1;
};

TEST_F(SlowDisk, HoldsUpNoLaunch) {
  save("");
  start_slow();
  ASSERT_EQ(policy()["name"], "p");
  std::atomic<int64_t> longest_ns{0};
  std::atomic<uint64_t> granted{0};
  std::jthread client([&](const std::stop_token& end) {
    FakeClient launching(config_.socket, {});
    for (uint32_t seq = 1; !end.stop_requested(); ++seq) {
      const auto asked = Clock::now();
      launching.ask(0, seq);
      ASSERT_TRUE(launching.wait_granted(0, seq));
      launching.complete_all(0);
      longest_ns = std::max<int64_t>(longest_ns, (Clock::now() - asked).count());
      ++granted;
    }
  });
  ASSERT_TRUE(eventually([&] { return granted > 0; }));
  longest_ns = 0;
  std::ofstream(folder_ + "/slow").close();
  // A reload that waits for the disk, of a policy that is quarantined and written down.
  save("error('on purpose')");
  EXPECT_TRUE(eventually([&] { return policy()["faulted"].is_object(); })) << policy();
  EXPECT_TRUE(eventually([&] {
    std::error_code error;
    return fs::file_size(folder_ + "/quarantined", error) > 0 && !error;
  }));
  // Somebody lists, loads and sets, and somebody has the configuration read again.
  for (const auto kind :
       {Request::Kind::kPolicyList, Request::Kind::kPolicyLoad, Request::Kind::kPolicySet}) {
    Request r;
    r.kind = kind;
    r.policy = "p";
    (void)request(config_.socket, r);
  }
  const uint64_t before = granted;
  kill(pid_, SIGHUP);
  EXPECT_TRUE(eventually([&] { return granted > before + 1'000; }));
  // Lines of the log, which nobody reads.
  const uint64_t quiet = granted;
  for (int i = 0; i < 3'000; ++i) {
    const int fd = ipc::connect_socket(config_.socket.c_str(), 1'000);
    (void)ipc::send_packet(fd, std::as_bytes(std::span("not a message, and logged", 24)));
    close(fd);
  }
  EXPECT_TRUE(eventually([&] { return granted > quiet + 1'000; }));
  client.request_stop();
  client.join();
  // Half a second, and a shim would take the daemon for dead and let its launches go.
  EXPECT_LT(longest_ns, 400'000'000);
}

}  // namespace
}  // namespace heddle::testing
