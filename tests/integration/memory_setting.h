// Programs under limits on device memory: the built shim, preloaded, between the simulated driver
// and a server.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>

#include "tests/integration/server_setting.h"

extern char** environ;

namespace heddle::testing {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr const char* kOutOfMemory = "-2";

// The program memory_client, which allocates as it is told.
class Program {
 public:
  explicit Program(std::vector<std::string> environment) {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    for (char** variable = environ; *variable != nullptr; ++variable) {
      environment.emplace_back(*variable);
    }
    std::vector<char*> all;
    for (std::string& variable : environment) all.push_back(variable.data());
    all.push_back(nullptr);
    char program[] = HEDDLE_MEMORY_CLIENT;
    char* argv[] = {program, nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program, &actions, nullptr, argv, all.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = fdopen(out[0], "r");
    EXPECT_EQ(receive(), "0");
  }
  ~Program() {
    kill();
    close(in_);
    fclose(out_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(const std::string& line) {
    const std::string text = line + '\n';
    EXPECT_EQ(write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string receive() {
    char line[256] = {};
    if (fgets(line, sizeof line, out_) == nullptr) return "gone";
    return std::string(line, strcspn(line, "\n"));
  }
  std::string operator()(const std::string& line) {
    send(line);
    return receive();
  }
  std::string alloc(char kind, uint64_t bytes) {
    return (*this)(std::string("alloc ") + kind + ' ' + std::to_string(bytes));
  }
  uint64_t number(const std::string& line) { return std::stoull((*this)(line)); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  FILE* out_ = nullptr;
};

class MemoryLimit : public ServerTest {
 protected:
  void limit(const std::string& memory, server::MemoryPer per = server::MemoryPer::kRule,
             bool closed = false) {
    server::Rule rule;
    rule.name = "team";
    rule.label = "team*";
    rule.terms.memory = memory;
    rule.terms.memory_per = per;
    rule.terms.fail_closed = closed;
    config_.rules = {rule};
  }
  std::unique_ptr<Program> program(const std::string& label = "team",
                                   std::vector<std::string> more = {}) {
    std::vector<std::string> environment{
        "LD_PRELOAD=" HEDDLE_SHIM, "HEDDLE_REAL_LIBCUDA=" HEDDLE_SIM_DRIVER,
        "HEDDLE_SOCKET=" + config_.socket, "HEDDLE_SIM_SOCKET=" + directory_ + "/gpu",
        "HEDDLE_LABEL=" + label};
    environment.insert(environment.end(), more.begin(), more.end());
    return std::make_unique<Program>(environment);
  }
  // What the daemon knows of a process on its GPU; null: nothing yet.
  json row(const Program& of) {
    for (const json& client : ps()) {
      if (client.at("pid") == of.pid() && !client.at("devices").empty()) {
        return client.at("devices").at(0);
      }
    }
    return nullptr;
  }
  // Holds within 10 s, or fails.
  template <class Condition>
  void eventually(const char* what, Condition&& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  void restart() {
    stop();
    start();
  }
};

}  // namespace heddle::testing
