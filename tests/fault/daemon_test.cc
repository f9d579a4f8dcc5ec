// The daemon in a process of its own, under what wears daemons out: crowds, full disks, restarts.
// Clients are bare processes that attach and end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <optional>
#include <vector>

#include "tests/fault/board.h"
#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

constexpr const char* kFaulty = R"(
local function gate() return GATE end
return policy { name = "faulty", api = 1, version = "1",
  hooks = { client_init = gate, client_active = gate, client_idle = gate,
            enqueue = function(k) error("on purpose") return RUN end } }
)";

// What a connection says whose process has ended: this one has only its descriptor.
ipc::Attached attach_for_the_dead(const std::string& path) {
  alignas(16) static char stack[65536];
  const auto connect = [](void* socket) {
    return ipc::connect_socket(static_cast<const char*>(socket), 10'000);
  };
  const pid_t child =
      clone(connect, stack + sizeof stack, CLONE_FILES | SIGCHLD, const_cast<char*>(path.c_str()));
  int result = 0;
  waitpid(child, &result, 0);
  const int fd = WEXITSTATUS(result);
  ipc::Attached answer;
  answer.managed = 7;
  (void)ipc::send_packet(fd, attach_packet(5));
  pollfd readable{fd, POLLIN, 0};
  if (poll(&readable, 1, 10'000) == 1) {
    (void)ipc::receive_packet(fd, std::as_writable_bytes(std::span(&answer, 1)));
  }
  close(fd);
  return answer;
}

TEST_F(DaemonTest, ListsPoliciesAsTheirFilesAreNow) {
  const std::string file = folder_ + "/policies/p.lua";
  const auto save = [&](const std::string& version) {
    std::ofstream(file)
        << R"(return policy { name = "p", api = 1, version = ")" << version
        << R"(", params = { depth = { type = "int", default = 2, doc = "d" } }, hooks = {} })";
  };
  config_.policy.name = file;
  FilePolicyStore store(config_.policy);
  save("1");
  const json first = store.list();
  ASSERT_EQ(first.at(1).value("version", ""), "1") << first;
  EXPECT_EQ(first, store.list());
  save("1.10");
  EXPECT_EQ(store.list().at(1)["version"], "1.10");
  auto loaded = store.load(file, false);
  ASSERT_TRUE(loaded) << loaded.error().message;
  store.adopted(*loaded, false);
  EXPECT_EQ(store.list().at(1)["running"], true);
  loaded = store.with_params("p", {{"depth", "7"}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  store.adopted(*loaded, false);
  EXPECT_EQ(store.list().at(1)["params"].at(0)["value"], "7");
  fs::remove(file);
  EXPECT_EQ(store.list().size(), 1u);
}

TEST_F(DaemonTest, TakesNoPolicyThatOthersCanWrite) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files to others";
  constexpr gid_t kOthers = 4242;
  const std::string file = folder_ + "/policies/p.lua";
  std::ofstream(file) << kFaulty;
  FilePolicyStore store(config_.policy, "");
  const auto refusal = [&](gid_t group, mode_t mode) {
    EXPECT_EQ(chown(file.c_str(), 0, group), 0);
    EXPECT_EQ(chmod(file.c_str(), mode), 0);
    const auto loaded = store.load("p", true);
    return loaded ? "" : loaded.error().message;
  };
  EXPECT_EQ(refusal(kOthers, 0644), "");
  EXPECT_EQ(refusal(0, 0664), "") << "root's own group is nobody else";
  EXPECT_NE(refusal(kOthers, 0664).find("chmod g-w"), std::string::npos);
  EXPECT_NE(refusal(0, 0666).find("chmod o-w"), std::string::npos);
}

TEST_F(DaemonTest, AnEndedProcessNeitherAttachesNorEvictsTheOneWithItsPid) {
  start();
  const ipc::Attached answer = attach_for_the_dead(config_.socket);
  // A kernel before 6.16 may have hung up on it already.
  if (answer.managed == 7) GTEST_SKIP() << "turned away at the door";
  EXPECT_EQ(answer.managed, 0u);
  EXPECT_NE(std::string(answer.reason).find("has ended"), std::string::npos) << answer.reason;
  EXPECT_TRUE(has_clients(0));
}

TEST_F(DaemonTest, LeaksNothingOverTenThousandAttachments) {
  start();
  const std::vector<std::byte> packet = attach_packet(5);
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        const int result = attach_bare(config_.socket, packet);
        if (i % 2 == 0) kill(getpid(), SIGKILL);
        _exit(result);
      }
      int result;
      waitpid(child, &result, 0);
      ASSERT_TRUE(result == 0 || WIFSIGNALED(result)) << i << ": " << result;
    }
  };
  some(500);
  ASSERT_TRUE(has_clients(0));
  const size_t descriptors_before = descriptors();
  const long kib_before = field("status", "VmRSS:");
  some(9'500);
  ASSERT_TRUE(has_clients(0));
  // The question of has_clients() may still have counted before.
  EXPECT_TRUE(eventually([&] { return descriptors() <= descriptors_before; }))
      << descriptors() << " after " << descriptors_before;
  EXPECT_LT(field("status", "VmRSS:"), kib_before + 1'024);
}

TEST_F(DaemonTest, TakesThreeHundredProcessesAtOnce) {
  start();
  const auto look = [&] {
    EXPECT_EQ(status()["clients"], 300);
    Request ps;
    ps.kind = Request::Kind::kPs;
    const json all = json::parse(request(config_.socket, ps).json);
    EXPECT_TRUE(all["truncated"]);
    EXPECT_EQ(all["pids"].size(), 300u) << "all of them, though not all are described";
  };
  EXPECT_EQ(attach_together(config_.socket, 300, look), 300u);
  EXPECT_TRUE(has_clients(0));
}

// Programs under the shim, on the simulated GPU, that stay once they are done: all compute the
// right answer, and all are clients.
TEST_F(DaemonTest, ServesThreeHundredProgramsAtOnce) {
  constexpr uint32_t kPrograms = 300;
  start();
  set_environment();
  fault::Board* board = share_board();
  ASSERT_NE(board, nullptr);
  const fault::ClientNote& note = board->clients[0];
  int gate[2];
  ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
  std::vector<pid_t> all;
  for (uint32_t i = 0; i < kPrograms; ++i) {
    all.push_back(fork());
    if (all.back() != 0) continue;
    dup2(gate[0], STDIN_FILENO);
    setenv("LD_PRELOAD", HEDDLE_SHIM, 1);
    setenv("HEDDLE_PRIORITY", std::to_string(i % 10).c_str(), 1);
    execl(HEDDLE_FAULT_CLIENT, "fault_client", "0", std::to_string(i).c_str(), "1", "10", "0",
          nullptr);
    _exit(127);
  }
  // The simulated GPU takes a while for so many.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (note.finished < kPrograms && std::chrono::steady_clock::now() < until) usleep(10'000);
  EXPECT_EQ(note.finished, kPrograms);
  EXPECT_TRUE(has_clients(kPrograms)) << status()["clients"];
  for (const int fd : gate) close(fd);
  for (const pid_t program : all) {
    int result = -1;
    waitpid(program, &result, 0);
    EXPECT_EQ(result, 0);
  }
  EXPECT_EQ(note.wrong, 0u);
  EXPECT_TRUE(has_clients(0));
  munmap(board, sizeof *board);
  close(fault::kBoardFd);
}

// Says something, or nothing, on each connection, and never takes an answer.
class Mute {
 public:
  explicit Mute(std::string path) : path_(std::move(path)) { fds_.fill(-1); }
  ~Mute() {
    for (const int fd : fds_) close(fd);
  }
  void say() {
    for (size_t i = 0; i < fds_.size(); ++i) {
      if (fds_[i] < 0) fds_[i] = ipc::connect_socket(path_.c_str(), 1'000);
      if (i % 4 == 0 || ipc::send_packet(fds_[i], i % 4 == 1 ? attach_ : ask_) == 0) continue;
      close(fds_[i]);  // the daemon has hung up
      fds_[i] = -1;
    }
  }

 private:
  const std::string path_;
  const std::vector<std::byte> attach_ = attach_packet(0), ask_ = server::encode_request({});
  std::array<int, 100> fds_;
};

TEST_F(DaemonTest, ServesOthersBesideAHundredConnectionsThatNeverRead) {
  start();
  FakeClient client(config_.socket, {.priority = 9});
  const size_t descriptors_before = descriptors();
  std::optional<Mute> mute(config_.socket);
  uint32_t seq = 0;
  int64_t longest_ns = 0;
  const auto some = [&](int times) {
    for (int i = 0; i < times; ++i) {
      mute->say();
      const auto begin = std::chrono::steady_clock::now();
      client.ask(0, ++seq);
      ASSERT_TRUE(client.wait_granted(0, seq));
      client.complete_all(0);
      const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
      longest_ns = std::max<int64_t>(longest_ns, took.count());
    }
  };
  some(50);
  const long kib_before = field("status", "VmRSS:");
  some(1500);
  EXPECT_LT(field("status", "VmRSS:"), kib_before + 1'024);
  mute.reset();
  // A leak would be thousands; the daemon opens a few of its own meanwhile.
  EXPECT_TRUE(eventually([&] { return descriptors() < descriptors_before + 10; }))
      << descriptors() << " after " << descriptors_before;
  EXPECT_LT(longest_ns, 1'000'000'000) << "no ask waited for the starvation bound";
}

TEST_F(DaemonTest, RemembersWhatItQuarantinedAcrossARestart) {
  std::ofstream(folder_ + "/policies/faulty.lua") << kFaulty;
  config_.policy.name = "faulty";
  const auto ask = [&] {
    FakeClient client(config_.socket, {});
    for (uint32_t seq = 1; seq <= 12; ++seq) {
      client.ask(0, seq);
      ASSERT_TRUE(client.wait_granted(0, seq));
    }
  };
  start();
  EXPECT_EQ(status()["policy"]["name"], "faulty");
  ask();
  EXPECT_EQ(status()["policy"]["name"], "builtin");
  // An empty one is written as the first policy goes live.
  ASSERT_TRUE(eventually([&] {
    std::error_code error;
    const auto bytes = fs::file_size(folder_ + "/quarantined", error);
    return !error && bytes > 0;
  }));
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  start();
  EXPECT_EQ(status()["policy"]["name"], "builtin") << "it ran again what was quarantined";
  EXPECT_NE(status()["policy"]["error"].get<std::string>().find("quarantined"), std::string::npos);
  Request load;
  load.kind = Request::Kind::kPolicyLoad;
  load.policy = "faulty";
  EXPECT_TRUE(request(config_.socket, load).ok) << "whoever asks for it by name gets it";
  EXPECT_EQ(status()["policy"]["name"], "faulty");
}

TEST_F(DaemonTest, ServesOnWhenItsLogFindsNoRoom) {
  std::ofstream(folder_ + "/policies/faulty.lua") << kFaulty;
  config_.policy.name = "faulty";
  start([] { dup2(open("/dev/full", O_WRONLY), STDERR_FILENO); });
  FakeClient client(config_.socket, {});
  for (uint32_t seq = 1; seq <= 12; ++seq) {
    client.ask(0, seq);
    ASSERT_TRUE(client.wait_granted(0, seq));
  }
  EXPECT_EQ(status()["policy"]["name"], "builtin");
  EXPECT_TRUE(end_log().empty()) << "there was room after all";
}

TEST_F(DaemonTest, ServesOnWhenWhoReadsItsLogIsGone) {
  int log[2];
  ASSERT_EQ(pipe2(log, O_CLOEXEC), 0);
  const std::string file = folder_ + "/heddled.toml";
  std::ofstream(file) << "policy.name = 'builtin'\n";
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    dup2(log[1], STDERR_FILENO);
    setenv("STATE_DIRECTORY", "/dev/null", 1);
    execl(HEDDLE_HEDDLED, "heddled", "--config", file.c_str(), "--socket", config_.socket.c_str(),
          nullptr);
    _exit(127);
  }
  close(log[1]);
  ASSERT_TRUE(eventually([&] { return status().contains("clients"); }));
  close(log[0]);
  FakeClient client(config_.socket, {});  // which it logs
  EXPECT_TRUE(has_clients(1));
}

TEST_F(DaemonTest, SaysOnceThatItsStateFindsNoRoom) {
  std::ofstream(folder_ + "/policies/faulty.lua") << kFaulty;
  config_.policy.name = "faulty";
  fs::create_directory(folder_ + "/quarantined");  // no file can take its place
  start();
  FakeClient client(config_.socket, {});
  for (uint32_t seq = 1; seq <= 12; ++seq) {
    client.ask(0, seq);
    ASSERT_TRUE(client.wait_granted(0, seq));
  }
  EXPECT_EQ(status()["policy"]["name"], "builtin");
  EXPECT_TRUE(eventually([&] { return count(log_text(), "state_not_written") == 1; }));
}

}  // namespace
}  // namespace heddle::testing
