// The daemon in a process of its own, and clients that are bare processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/policy_store.h"
#include "daemon/server/server.h"
#include "ipc/socket.h"
#include "tests/fault/board.h"
#include "tests/folder.h"
#include "tests/integration/fake_client.h"

namespace heddle::testing {

namespace fs = std::filesystem;
using nlohmann::json;
using server::Request;

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    chmod(folder_.c_str(), 0711);
    fs::create_directory(folder_ + "/policies");
    config_.socket = folder_ + "/s";
    config_.policy.directory = folder_ + "/policies";
    config_.policy.watch = false;
    log_ = folder_ + "/log";
  }
  void TearDown() override { stop(); }

  // `before` runs in the daemon's process.
  void start(const std::function<void()>& before = [] {}) {
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
      before();
      _exit(serve() ? 0 : 1);
    }
    ASSERT_TRUE(eventually([&] { return status().contains("clients"); }));
  }
  void stop() {
    if (pid_ < 0) return;
    int result = -1;
    kill(pid_, SIGTERM);
    waitpid(pid_, &result, 0);
    EXPECT_EQ(result, 0) << "the daemon did not end well";
    pid_ = -1;
  }
  // True: it ran, and its log is written.
  bool serve() {
    server::Log log(server::LogLevel::kInfo);
    FilePolicyStore store(config_.policy, folder_ + "/quarantined");
    auto made = server::Server::make(config_, store, log);
    if (!made) return false;
    (*made)->handle_signals();
    (*made)->run();
    return true;
  }
  json status() {
    const server::Reply reply = request(config_.socket, Request{});
    return reply.ok ? json::parse(reply.json) : json::object();
  }
  bool has_clients(size_t count) {
    return eventually([&] { return status()["clients"] == count; });
  }
  size_t descriptors() const {
    const fs::directory_iterator all("/proc/" + std::to_string(pid_) + "/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  long field(const char* file, const std::string& name) const {
    std::ifstream stream("/proc/" + std::to_string(pid_) + "/" + file);
    for (std::string word; stream >> word;) {
      long value;
      if (word == name && stream >> value) return value;
    }
    return -1;
  }
  // For programs under the shim on the simulated GPU, and what `fault_client` writes to.
  void set_environment() const {
    setenv("HEDDLE_SIM_SOCKET", (folder_ + "/g").c_str(), 1);
    setenv("HEDDLE_SOCKET", config_.socket.c_str(), 1);
    setenv("HEDDLE_REAL_LIBCUDA", HEDDLE_SIM_DRIVER, 1);
  }
  static fault::Board* share_board() {
    constexpr int kFd = fault::kBoardFd;
    dup2(memfd_create("heddle-board", 0), kFd);
    if (ftruncate(kFd, sizeof(fault::Board)) != 0) return nullptr;
    void* at = mmap(nullptr, sizeof(fault::Board), PROT_READ | PROT_WRITE, MAP_SHARED, kFd, 0);
    return at != MAP_FAILED ? static_cast<fault::Board*>(at) : nullptr;
  }
  // All of it: the daemon's thread writes lines later than the daemon answers.
  std::string end_log() {
    stop();
    return log_text();
  }
  std::string log_text() const {
    std::ifstream stream(log_);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static size_t count(const std::string& text, const std::string& word) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
    return found;
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
  std::string log_;
  server::Config config_;
  pid_t pid_ = -1;
};

// A shim's first packet, and the three descriptors that come back. 0: managed.
inline int attach_bare(const std::string& path, std::span<const std::byte> packet) {
  const int fd = ipc::connect_socket(path.c_str(), 10'000);
  if (fd < 0 || ipc::send_packet(fd, packet) != 0) return 1;
  pollfd readable{fd, POLLIN, 0};
  if (poll(&readable, 1, 10'000) != 1) return 2;
  ipc::Attached answer;
  int fds[3];
  if (ipc::receive_packet(fd, std::as_writable_bytes(std::span(&answer, 1)), fds) !=
      sizeof answer) {
    return 3;
  }
  return answer.managed != 0 ? 0 : 4;
}

// Clients that attach at once; each stays until `gate` closes. Returns how many were managed.
inline size_t attach_together(const std::string& path, size_t count,
                              const std::function<void()>& meanwhile) {
  const std::vector<std::byte> packet = attach_packet(5);
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) return 0;
  int said[2];
  if (pipe2(said, O_CLOEXEC) != 0) return 0;
  std::vector<pid_t> all;
  for (size_t i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child != 0) {
      all.push_back(child);
      continue;
    }
    close(gate[1]);
    const char result = static_cast<char>(attach_bare(path, packet));
    if (write(said[1], &result, 1) != 1) _exit(9);
    char end;
    (void)!read(gate[0], &end, 1);
    _exit(0);
  }
  size_t managed = 0;
  for (size_t i = 0; i < count; ++i) {
    char result = 9;
    if (read(said[0], &result, 1) == 1 && result == 0) ++managed;
  }
  meanwhile();
  for (const int fd : {gate[0], gate[1], said[0], said[1]}) close(fd);
  for (const pid_t child : all) waitpid(child, nullptr, 0);
  return managed;
}

}  // namespace heddle::testing
