// The socket between shim and daemon, and the two sealed memories that travel through it.
#include "ipc/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/layout.h"
#include "tests/folder.h"

namespace heddle::ipc {
namespace {

class Socket : public testing::Test {
 protected:
  Socket() : path_(directory_ + "/s") {}
  ~Socket() override {
    for (const int fd : fds_) close(fd);
  }

  int keep(int fd) {
    if (fd >= 0) fds_.push_back(fd);
    return fd;
  }
  // Two connected ends, client first.
  std::pair<int, int> connected() {
    const int server = keep(listen_socket(path_.c_str(), 0600, 4));
    EXPECT_GE(server, 0);
    const int client = keep(connect_socket(path_.c_str(), 1000));
    EXPECT_GE(client, 0);
    return {client, keep(accept4(server, nullptr, nullptr, SOCK_CLOEXEC))};
  }

  const TestFolder made_;
  const std::string directory_ = made_.path();
  std::string path_;
  std::vector<int> fds_;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

// Each round leaves a stale socket for the next.
TEST_F(Socket, OnlyOneOfSeveralListens) {
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> ready = 0, listen = 0;
    std::vector<std::thread> all;
    std::array<int, 2> got;
    for (int& fd : got) {
      all.emplace_back([&] {
        for (++ready; ready < 2;) {
        }
        fd = listen_socket(path_.c_str(), 0600, 4);
        listen += fd >= 0 ? 1 : 0;
      });
    }
    for (std::thread& thread : all) thread.join();
    for (const int fd : got) {
      if (fd >= 0) close(fd);
    }
    ASSERT_EQ(listen, 1) << "round " << round;
  }
}

TEST_F(Socket, CarriesAPacketWithDescriptors) {
  const auto [client, server] = connected();
  const int memory[2] = {keep(make_memory("a", 4096)), keep(make_memory("b", 4096))};
  ASSERT_EQ(write(memory[0], "hello", 5), 5);
  ASSERT_EQ(send_packet(client, bytes_of("one"), memory), 0);
  ASSERT_EQ(send_packet(client, bytes_of("two")), 0);
  std::byte buffer[64];
  int got[3];
  ASSERT_EQ(receive_packet(server, buffer, got), 3);
  EXPECT_EQ(std::memcmp(buffer, "one", 3), 0);
  EXPECT_GE(keep(got[0]), 0);
  EXPECT_GE(keep(got[1]), 0);
  EXPECT_EQ(got[2], -1);
  EXPECT_TRUE(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
  char text[5];
  ASSERT_EQ(pread(got[0], text, 5, 0), 5);
  EXPECT_EQ(std::memcmp(text, "hello", 5), 0);
  ASSERT_EQ(receive_packet(server, buffer), 3) << "packets do not run together";
}

TEST_F(Socket, ClosesDescriptorsNobodyAskedFor) {
  const auto [client, server] = connected();
  const int memory[3] = {keep(make_memory("a", 1)), keep(make_memory("b", 1)),
                         keep(make_memory("c", 1))};
  const size_t before = open_descriptors();
  ASSERT_EQ(send_packet(client, bytes_of("x"), memory), 0);
  std::byte buffer[8];
  int got[1];
  ASSERT_EQ(receive_packet(server, buffer, got), 1);
  EXPECT_GE(keep(got[0]), 0);
  EXPECT_EQ(open_descriptors(), before + 1);
}

TEST_F(Socket, SaysWhenAPacketDidNotFit) {
  const auto [client, server] = connected();
  ASSERT_EQ(send_packet(client, bytes_of("longer than four")), 0);
  std::byte buffer[4];
  EXPECT_EQ(receive_packet(server, buffer), -EMSGSIZE);
}

TEST_F(Socket, KnowsThePeerFromTheKernel) {
  const auto [client, server] = connected();
  Peer peer;
  ASSERT_EQ(peer_of(server, peer), 0);
  keep(peer.pidfd);
  EXPECT_EQ(peer.pid, getpid());
  EXPECT_EQ(peer.uid, getuid());
  EXPECT_EQ(peer.gid, getgid());
}

TEST_F(Socket, EndsWhenThePeerLeaves) {
  const auto [client, server] = connected();
  shutdown(client, SHUT_RDWR);
  std::byte buffer[4];
  EXPECT_EQ(receive_packet(server, buffer), 0);
  EXPECT_EQ(send_packet(server, bytes_of("x")), -EPIPE);
}

TEST_F(Socket, ReplacesAStaleFileAndRefusesALiveOne) {
  const int first = listen_socket(path_.c_str(), 0600, 1);
  ASSERT_GE(first, 0);
  EXPECT_EQ(listen_socket(path_.c_str(), 0600, 1), -EADDRINUSE);
  close(first);  // the file stays, as after a kill -9
  EXPECT_EQ(connect_socket(path_.c_str(), 10), -ECONNREFUSED);
  const int second = keep(listen_socket(path_.c_str(), 0640, 1));
  ASSERT_GE(second, 0);
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

// In a mount namespace of its own, where /run is empty: root's socket, as another user finds it.
int default_paths() {
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
      mount("none", "/run", "tmpfs", 0, "mode=755") || mkdir("/run/heddle", 0755) != 0) {
    return 77;
  }
  const int listener = listen_socket(kSystemSocket, 0666, 1);
  const auto is = [](const char* expected) {
    char path[64];
    return socket_path(nullptr, "/run/user/1", path, sizeof path) > 0 &&
           strcmp(path, expected) == 0;
  };
  if (listener < 0 || setresuid(1, 1, 1) != 0) return 77;
  if (!is(kSystemSocket)) return 1;
  close(listener);  // the file stays, as after a kill -9
  return is("/run/user/1/heddle.sock") ? 0 : 2;
}

TEST_F(Socket, OfRootIsTakenByOthersWhileSomebodyListens) {
  const pid_t child = fork();
  if (child == 0) _exit(default_paths());
  int status = -1;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Socket, LeavesAFileThatIsNoSocketAlone) {
  keep(open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(listen_socket(path_.c_str(), 0600, 1), -EEXIST);
  EXPECT_EQ(listen_socket(std::string(200, 'x').c_str(), 0600, 1), -ENAMETOOLONG);
}

TEST(Memory, ControlMapsForReadingOnlyOnceSealed) {
  const int fd = make_memory("control", sizeof(ControlMemory));
  ASSERT_GE(fd, 0);
  void* daemon = mmap(nullptr, sizeof(ControlMemory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(daemon, MAP_FAILED);
  ASSERT_EQ(seal_control_memory(fd), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
  void* client = mmap(nullptr, sizeof(ControlMemory), PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(client, MAP_FAILED);
  auto& grant = static_cast<ControlMemory*>(daemon)->grants[3];
  const auto& seen = static_cast<const ControlMemory*>(client)->grants[3];
  // A waiter on its read-only mapping is woken through the daemon's writable one.
  EXPECT_EQ(futex_wait(&seen.granted, 1, 1'000'000), -EAGAIN);
  EXPECT_EQ(futex_wait(&seen.granted, 0, 1'000'000), -ETIMEDOUT);
  std::thread waiter([&] {
    while (seen.granted.load() == 0) futex_wait(&seen.granted, 0, 1'000'000'000);
  });
  grant.granted = 9;
  futex_wake(&grant.granted);
  waiter.join();
  munmap(daemon, sizeof(ControlMemory));
  munmap(client, sizeof(ControlMemory));
  close(fd);
}

TEST(Memory, ClientCannotShrinkWhatTheDaemonReads) {
  const int fd = make_memory("client", sizeof(ClientMemory));
  ASSERT_GE(fd, 0);
  ASSERT_EQ(seal_client_memory(fd), 0);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
  void* client = mmap(nullptr, sizeof(ClientMemory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT_NE(client, MAP_FAILED);
  munmap(client, sizeof(ClientMemory));
  close(fd);
}

}  // namespace
}  // namespace heddle::ipc
