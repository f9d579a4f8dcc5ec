// A peer sends descriptors that block whoever closes them.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <chrono>

#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

// As below Linux 6.16.
void forget_pass_rights() {
  constexpr uint32_t kPassRights = 83;
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPassRights, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) _exit(3);
}

// A TCP socket whose last close waits `seconds` for a peer that never reads.
class LingeringSocket {
 public:
  explicit LingeringSocket(int seconds) {
    const int small = 4'096;
    setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, at, length), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    getsockname(listener_, at, &length);
    EXPECT_EQ(connect(fd_, at, length), 0);
    accepted_ = accept(listener_, nullptr, nullptr);
    const std::vector<char> bytes(65'536);
    while (send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger wait{1, seconds};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
  }
  ~LingeringSocket() {
    close(accepted_);
    close(listener_);
    close_own();
  }
  int get() const { return fd_; }
  void relent() { setsockopt(fd_, SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof kAtOnce); }
  void close_own() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  static constexpr linger kAtOnce{0, 0};
  int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int accepted_ = -1;
};

class Blocking : public DaemonTest {
 protected:
  static constexpr int kLingerS = 5;
  static constexpr double kGrantMostMs = 2'000;  // also where the machine is busy

  double worst_grant_ms(FakeClient& client) {
    double worst = 0;
    for (int i = 0; i < 50; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      client.ask(0, ++asks_);
      EXPECT_TRUE(client.wait_granted(0, asks_));
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      worst = std::max(worst, took.count());
      client.complete_all(0);
    }
    return worst;
  }
  // The first packet of a connection ends it, so that the second stays unread.
  void attack(FakeClient& client) {
    for (const int before : {0, 1}) {
      LingeringSocket trap(kLingerS);
      const int fd = ipc::connect_socket(config_.socket.c_str(), 1'000);
      ASSERT_GE(fd, 0);
      const std::byte garbage[16] = {};
      kill(pid_, SIGSTOP);
      if (before != 0) {
        ASSERT_EQ(ipc::send_packet(fd, garbage), 0);
      }
      const int own = trap.get();
      const int sent = ipc::send_packet(fd, garbage, {&own, 1});
      EXPECT_TRUE(sent == 0 || sent == -EPERM) << sent;
      if (sent != 0) trap.relent();
      trap.close_own();
      kill(pid_, SIGCONT);
      const double worst = worst_grant_ms(client);
      printf("worst grant %.1f ms, descriptors %s\n", worst, sent == 0 ? "taken" : "refused");
      EXPECT_LT(worst, kGrantMostMs);
      EXPECT_TRUE(status().contains("clients"));
      close(fd);
    }
  }

 private:
  uint32_t asks_ = 0;
};

TEST_F(Blocking, NoDescriptorOfAPeerHoldsUpAGrant) {
  start();
  FakeClient client(config_.socket, {});
  attack(client);
}

TEST_F(Blocking, NoDescriptorOfAPeerHoldsUpAGrantWhereTheKernelRefusesNone) {
  start(forget_pass_rights);
  FakeClient client(config_.socket, {});
  attack(client);
}

}  // namespace
}  // namespace heddle::testing
