// The simulated driver as programs meet it: real processes, one owner of the device.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/folder.h"

extern char** environ;

namespace heddle::sim {
namespace {

class SimDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HEDDLE_SIM_SOCKET", (directory_ + "/gpu.sock").c_str(), 1);
    setenv("HEDDLE_SIM_LOG", log_path().c_str(), 1);
    setenv("LD_LIBRARY_PATH", HEDDLE_SIM_DIR, 1);
    // As CUDA programs do, these leave what they created to the driver's end.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  }
  std::string log_path() const { return directory_ + "/log.json"; }

  // Starts a program with its output in a pipe.
  pid_t start(std::vector<std::string> arguments, int& output) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    if (arguments[0][0] != '/') arguments[0] = std::string(HEDDLE_PROGRAM_DIR) + "/" + arguments[0];
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output = ends[0];
    return pid;
  }

  static std::string read_line(int fd) {
    std::string line;
    for (char c; read(fd, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

  static std::string read_all(int fd) {
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;)
      text.append(part, static_cast<size_t>(n));
    close(fd);
    return text;
  }

  static int exit_status(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Waits for the owner's line about a client that left, at most ten seconds.
  std::string exit_line(pid_t pid) {
    const std::string start = "{\"pid\":" + std::to_string(pid) + ",";
    for (int i = 0; i < 1000; ++i) {
      std::ifstream log(log_path());
      for (std::string line; std::getline(log, line);) {
        const bool whole = !log.eof();
        if (whole && line.rfind(start, 0) == 0 && line.find("exit_ns") != std::string::npos) {
          return line;
        }
      }
      poll(nullptr, 0, 10);
    }
    return {};
  }

  const TestFolder made_;
  const std::string directory_ = made_.path();
};

TEST_F(SimDriverTest, ConformsInBothModes) {
  for (const char* mode : {"mps", "timeslice"}) {
    setenv("HEDDLE_SIM_MODE", mode, 1);
    setenv("HEDDLE_SIM_SOCKET", (directory_ + "/" + mode).c_str(), 1);
    int output;
    const pid_t pid = start({HEDDLE_CONFORMANCE}, output);
    const std::string text = read_all(output);
    EXPECT_EQ(exit_status(pid), 0) << mode << "\n" << text;
  }
  unsetenv("HEDDLE_SIM_MODE");
}

TEST_F(SimDriverTest, TwoProcessesShareOneGpuAndComputeRightResults) {
  int outputs[2];
  const pid_t latency = start({"heddle-demo", "latency", "--seconds", "1"}, outputs[0]);
  const pid_t batch = start({"heddle-demo", "batch", "--seconds", "1"}, outputs[1]);
  const std::string text = read_all(outputs[0]) + read_all(outputs[1]);
  EXPECT_EQ(exit_status(latency), 0) << text;
  EXPECT_EQ(exit_status(batch), 0) << text;
  for (pid_t pid : {latency, batch}) {
    const std::string line = exit_line(pid);
    EXPECT_NE(line.find("\"unsupported\":{}"), std::string::npos) << line;
  }
}

TEST_F(SimDriverTest, KilledClientLeavesTheGpuToTheOther) {
  int outputs[2];
  const pid_t dying =
      start({"heddle-demo", "batch", "--seconds", "60", "--kernel-ms", "500"}, outputs[0]);
  EXPECT_EQ(read_line(outputs[0]), "ready");
  const pid_t other = start({"heddle-demo", "latency", "--seconds", "1"}, outputs[1]);
  kill(dying, SIGKILL);
  const std::string text = read_all(outputs[1]);
  EXPECT_EQ(exit_status(other), 0) << text;
  EXPECT_EQ(exit_status(dying), 128 + SIGKILL);
  EXPECT_FALSE(exit_line(dying).empty());
  close(outputs[0]);
}

}  // namespace
}  // namespace heddle::sim
