// MPS's control daemon as heddled starts, asks and stops it; a script stands in for NVIDIA's.
#include "daemon/server/mps.h"
#include "tests/folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace heddle::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace std::chrono_literals;

// A process that waits to be killed.
class Idle {
 public:
  explicit Idle(uid_t uid = 0) : pid_(fork()) {
    if (pid_ != 0) return;
    if (uid != 0 && setuid(uid) != 0) _exit(1);
    for (;;) pause();
  }
  ~Idle() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

// Not if it only waits to be reaped.
bool runs(pid_t pid) {
  char exe[8];
  return readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), exe, sizeof exe) > 0;
}

class Mps : public ::testing::Test {
 protected:
  void SetUp() override {
    settings_.manage = true;
    settings_.pipe_directory = folder_ / "pipe";
    settings_.log_directory = folder_ / "log";
    settings_.control = HEDDLE_FAKE_MPS;
  }
  void TearDown() override {
    pid_t pid = 0;
    std::ifstream(folder_ / "pipe/nvidia-cuda-mps-control.pid") >> pid;
    if (pid > 0) kill(pid, SIGKILL);
  }
  // The stand-in that does `what`.
  void behave(const std::string& what) {
    settings_.control = folder_ / ("mps-" + what);
    fs::create_symlink(HEDDLE_FAKE_MPS, settings_.control);
  }
  void serve(const json& servers) { std::ofstream(folder_ / "pipe/servers") << servers; }
  std::string start_error(std::chrono::milliseconds patience = MpsControl::kPatience) {
    const Result<void> started = MpsControl(settings_, patience).start();
    return started ? "" : started.error().message;
  }

  const TestFolder made_;
  const fs::path folder_ = made_.path();
  MpsSettings settings_;
};

TEST_F(Mps, SaysWhichPartOfTheSmsClientsGet) {
  MpsControl control(settings_);
  EXPECT_FALSE(control.default_percentage()) << "none runs";
  ASSERT_TRUE(control.start());
  EXPECT_EQ(control.default_percentage(), 100);
}

TEST_F(Mps, IsStartedApartAndWithAnEnvironmentOfItsOwn) {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  MpsControl control(settings_);
  EXPECT_FALSE(control.look().answers);
  ASSERT_EQ(start_error(), "");
  unsetenv("CUDA_VISIBLE_DEVICES");
  const MpsState state = control.look();
  EXPECT_TRUE(state.answers && state.error.empty()) << state.error;
  EXPECT_NE(getsid(state.control), getsid(0));
  std::ifstream file(folder_ / "pipe/environment");
  const json environment = json::parse(file);
  EXPECT_EQ(environment["CUDA_MPS_PIPE_DIRECTORY"], settings_.pipe_directory);
  EXPECT_EQ(environment["CUDA_MPS_LOG_DIRECTORY"], settings_.log_directory);
  EXPECT_FALSE(environment.contains("CUDA_VISIBLE_DEVICES"));
  struct stat pipes;
  ASSERT_EQ(stat(settings_.pipe_directory.c_str(), &pipes), 0);
  EXPECT_EQ(pipes.st_mode & 0777, 0755u) << "clients are of any user";
}

TEST_F(Mps, OneThatRunsIsFoundAndNotStartedTwice) {
  ASSERT_EQ(start_error(), "");
  const pid_t first = MpsControl(settings_).look().control;
  EXPECT_NE(start_error().find("already running"), std::string::npos);
  EXPECT_EQ(MpsControl(settings_).look().control, first);
}

TEST_F(Mps, TheServersRefusalIsTold) {
  behave("refuses");
  EXPECT_EQ(start_error(), settings_.control + " -d: Unable to open device; see control.log in " +
                               settings_.log_directory);
}

TEST_F(Mps, OneThatHangsIsGivenUp) {
  behave("hangs");
  EXPECT_NE(start_error(300ms).find("does not come back"), std::string::npos);
  MpsControl control(settings_, 60s);
  std::thread stopper([&] { control.cancel(); });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(control.start());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  stopper.join();
}

TEST_F(Mps, OneThatDiesAfterItsStartWasNotStarted) {
  behave("dies");
  EXPECT_NE(start_error(3s).find("Cannot find MPS control daemon process"), std::string::npos);
  const MpsState state = MpsControl(settings_).look();
  EXPECT_FALSE(state.answers);
  EXPECT_EQ(state.error, "") << "its socket is left, on which nobody listens";
}

TEST_F(Mps, AnotherProgramIsNotTakenForMps) {
  behave("mumbles");
  ASSERT_EQ(start_error(), "");
  const MpsState state = MpsControl(settings_).look();
  EXPECT_FALSE(state.answers);
  EXPECT_NE(state.error.find("is no list of processes"), std::string::npos) << state.error;
  EXPECT_FALSE(MpsControl(settings_).default_percentage());
  settings_.control = "/nowhere/nvidia-cuda-mps-control";
  EXPECT_NE(start_error().find("PATH must name it"), std::string::npos);
}

TEST_F(Mps, ADirectoryThatCannotBeItsOwnIsNamed) {
  std::ofstream(folder_ / "pipe") << "a file";
  EXPECT_EQ(start_error().rfind(settings_.pipe_directory + ": cannot be made", 0), 0u);
  fs::remove(folder_ / "pipe");
  if (geteuid() != 0) GTEST_SKIP() << "only root makes a directory somebody else's";
  fs::create_directory(folder_ / "pipe");
  ASSERT_EQ(chown(settings_.pipe_directory.c_str(), 1, 1), 0);
  EXPECT_NE(start_error().find("belongs to uid 1"), std::string::npos);
}

TEST_F(Mps, ListsServersClientsAndWhoWaitsForAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has processes of two users";
  ASSERT_EQ(start_error(), "");
  const Idle server(1), client(1), waits(2), own(1);
  serve({{std::to_string(server.pid()), {client.pid()}}});
  std::ofstream log(settings_.log_directory + "/control.log", std::ios::app);
  for (const auto& [pid, uid] : {std::pair{waits.pid(), 2}, {own.pid(), 1}, {client.pid(), 1}}) {
    log << "[2026-05-31 23:48:25.153 Control 7] NEW CLIENT " << pid << " from user " << uid
        << ": Server is not ready, push client to pending list\n";
  }
  log << "[2026-05-31 23:48:25.153 Control 7] NEW CLIENT 999999 from user 2: Server is not ready, "
         "push client to pending list\n";
  log.close();
  // Children change their user on their own time.
  const auto is_of = [](const Idle& process, uid_t uid) {
    struct stat owner;
    return stat(("/proc/" + std::to_string(process.pid())).c_str(), &owner) == 0 &&
           owner.st_uid == uid;
  };
  while (!(is_of(server, 1) && is_of(client, 1) && is_of(waits, 2) && is_of(own, 1))) usleep(1000);
  const MpsState state = MpsControl(settings_).look();
  ASSERT_EQ(state.servers.size(), 1u);
  EXPECT_EQ(state.servers[0].uid, 1u);
  EXPECT_TRUE(state.has_client(client.pid()));
  EXPECT_EQ(state.clients(), 1u);
  ASSERT_EQ(state.waiting.size(), 1u)
      << "who is gone, or of the user that is served, does not wait";
  EXPECT_EQ(state.waiting[0].pid, waits.pid());
}

TEST_F(Mps, IsNotStoppedUnderItsClients) {
  ASSERT_EQ(start_error(), "");
  MpsControl control(settings_);
  const pid_t daemon = control.look().control;
  const std::string self = std::to_string(getpid());
  serve({{self, {getpid()}}});
  Result<void> stopped = control.stop();
  ASSERT_FALSE(stopped);
  EXPECT_NE(stopped.error().message.find("pid " + self), std::string::npos);
  EXPECT_TRUE(runs(daemon));
  serve({{self, {99'999'999}}});  // of a PID namespace that is not seen from here
  EXPECT_FALSE(control.stop());
  EXPECT_TRUE(runs(daemon));
  serve({{self, json::array()}});
  stopped = control.stop();
  EXPECT_TRUE(stopped) << stopped.error().message;
  EXPECT_FALSE(runs(daemon));
  EXPECT_FALSE(control.look().answers);
  ASSERT_EQ(start_error(), "") << "in the directory that it left";
}

}  // namespace
}  // namespace heddle::server
