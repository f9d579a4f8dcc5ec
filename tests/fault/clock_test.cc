// heddled and a program under the shim while the wall clock jumps (wild_clock.cc).
#include <sys/mman.h>

#include <chrono>

#include "tests/fault/board.h"
#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

constexpr uint64_t kThreads = 3, kLaunches = 300;

class ClockTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    set_environment();
    board_ = share_board();
    ASSERT_NE(board_, nullptr);
  }
  void TearDown() override {
    munmap(board_, sizeof *board_);
    close(fault::kBoardFd);
    DaemonTest::TearDown();
  }
  // The installed program: what is preloaded into it is asked for the time by all of it.
  void start_program() {
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
      setenv("STATE_DIRECTORY", folder_.c_str(), 1);
      setenv("LD_PRELOAD", HEDDLE_WILD_CLOCK, 1);
      execl(HEDDLE_HEDDLED, "heddled", "--socket", config_.socket.c_str(), "--policy",
            HEDDLE_POLICIES "/papers/fifo.lua", nullptr);
      _exit(127);
    }
    ASSERT_TRUE(eventually([&] { return status().contains("clients"); })) << log_text();
  }
  // A program that asks for each of its launches, and stays until its stdin ends.
  pid_t start_client(int standard_input) {
    const pid_t client = fork();
    if (client != 0) return client;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(standard_input, STDIN_FILENO);
    setenv("LD_PRELOAD", HEDDLE_SHIM " " HEDDLE_WILD_CLOCK, 1);
    setenv("HEDDLE_GATES", "0", 1);
    execl(HEDDLE_FAULT_CLIENT, "fault_client", "0", "1", std::to_string(kThreads).c_str(),
          std::to_string(kLaunches).c_str(), "0", nullptr);
    _exit(127);
  }
  static bool has_wild_clock(pid_t pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    const std::string text{std::istreambuf_iterator<char>(maps), {}};
    return text.find("wild_clock") != std::string::npos;
  }

  fault::Board* board_ = nullptr;
};

TEST_F(ClockTest, AWallClockThatJumpsByDaysHoldsNobodyUp_AndLetsNobodyGo) {
  start_program();
  int gate[2];
  ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
  const pid_t client = start_client(gate[0]);
  const fault::ClientNote& note = board_->clients[0];
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (note.finished == 0 && std::chrono::steady_clock::now() < until) usleep(10'000);
  EXPECT_EQ(note.finished, 1u);
  EXPECT_TRUE(has_wild_clock(pid_) && has_wild_clock(client));
  Request ps;
  ps.kind = Request::Kind::kPs;
  const json all = json::parse(request(config_.socket, ps).json);
  const json self = all["clients"].at(0)["counters"]["self"];
  for (const auto& [why, launches] : self.items()) EXPECT_EQ(launches, 0) << why;
  const json now = status(), stats = now["devices"].at(0)["stats"];
  // A ticket that is read behind a later one of another thread goes with that. Copies count, too.
  EXPECT_GE(stats["granted"].get<int>() + stats["posted"].get<int>(), kThreads * kLaunches);
  EXPECT_GT(stats["granted"], kThreads * kLaunches / 2);
  EXPECT_EQ(stats["starved"], 0);
  EXPECT_GE(now["uptime_s"], 0);
  EXPECT_LT(now["uptime_s"], 60);
  EXPECT_LT(note.longest_ns, 1'000'000'000) << "the starvation bound";
  EXPECT_EQ(note.wrong, 0u);
  for (const int fd : gate) close(fd);
  int result = -1;
  waitpid(client, &result, 0);
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(has_clients(0));
}

}  // namespace
}  // namespace heddle::testing
