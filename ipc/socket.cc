#include "ipc/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace heddle::ipc {
namespace {

constexpr int kMaxFds = 4;

int fill_address(const char* path, sockaddr_un& address) {
  const size_t length = strlen(path);
  if (length == 0 || length >= sizeof address.sun_path) return -ENAMETOOLONG;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path, length);
  return 0;
}

// Connects, and waits while the backlog is full: AF_UNIX returns EAGAIN at once and cannot be
// polled.
int connect_within(int fd, const sockaddr_un& address, int timeout_ms) {
  constexpr int kStepMs = 5;
  for (int waited = 0;; waited += kStepMs) {
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return 0;
    if (errno != EAGAIN && errno != EINTR) return -errno;
    if (waited >= timeout_ms) return -ETIMEDOUT;
    poll(nullptr, 0, kStepMs);
  }
}

bool somebody_listens(const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return true;
  const bool refused =
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      (errno == ECONNREFUSED || errno == ENOENT);
  close(probe);
  return !refused;
}

// The caller holds the lock file, because no other process may act between the check for a stale
// socket and listen().
int listen_locked(const char* path, const sockaddr_un& address, mode_t mode, int backlog) {
  struct stat existing;
  if (lstat(path, &existing) == 0) {
    if (!S_ISSOCK(existing.st_mode)) return -EEXIST;
    if (somebody_listens(address)) return -EADDRINUSE;
    unlink(path);
  }
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path, mode) != 0 || listen(fd, backlog) != 0) {
    const int error = -errno;
    close(fd);
    return error;
  }
  return fd;
}

}  // namespace

int default_socket_path(char* path, size_t size) {
  return socket_path(secure_getenv(kSocketEnv), secure_getenv("XDG_RUNTIME_DIR"), path, size);
}

int socket_path(const char* named, const char* runtime, char* path, size_t size) {
  int length;
  if (named != nullptr && *named != '\0') {
    length = snprintf(path, size, "%s", named);
  } else if (geteuid() != 0 && runtime != nullptr &&
             (access(kSystemSocket, F_OK) != 0 || is_stale_socket(kSystemSocket))) {
    length = snprintf(path, size, "%s/heddle.sock", runtime);
  } else {
    length = snprintf(path, size, "%s", kSystemSocket);
  }
  return length >= 0 && static_cast<size_t>(length) < size ? length : -ENAMETOOLONG;
}

// Connects with the wrong socket type: the kernel then refuses with EPROTOTYPE if a process is
// bound to the path, else with ECONNREFUSED.
bool is_stale_socket(const char* path) {
  sockaddr_un address;
  struct stat file;
  if (fill_address(path, address) != 0 || stat(path, &file) != 0 || !S_ISSOCK(file.st_mode)) {
    return false;
  }
  const int before = errno;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool refused =
      fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  errno = before;
  return refused;
}

int connect_socket(const char* path, int timeout_ms) {
  sockaddr_un address;
  if (const int error = fill_address(path, address)) return error;
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  const int error = connect_within(fd, address, timeout_ms);
  if (error != 0) {
    close(fd);
    return error;
  }
  return fd;
}

int listen_socket(const char* path, mode_t mode, int backlog) {
  sockaddr_un address;
  if (const int error = fill_address(path, address)) return error;
  char lock_path[sizeof address.sun_path + 8];
  snprintf(lock_path, sizeof lock_path, "%s.lock", path);
  const int lock = open(lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (lock < 0) return -errno;
  int locked;
  do {
    locked = flock(lock, LOCK_EX);
  } while (locked != 0 && errno == EINTR);
  const int fd = locked == 0 ? listen_locked(path, address, mode, backlog) : -errno;
  close(lock);
  return fd;
}

int refuse_descriptors(int listener) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS
  const int no = 0;
  return setsockopt(listener, SOL_SOCKET, kPassRights, &no, sizeof no) == 0 ? 0 : -errno;
}

int send_packet(int socket, std::span<const std::byte> packet, std::span<const int> fds) {
  if (fds.size() > kMaxFds) return -EINVAL;
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : 0;
}

ssize_t receive_packet(int socket, std::span<std::byte> buffer, std::span<int> fds) {
  for (int& fd : fds) fd = -1;
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMost * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  ssize_t received;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return -errno;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      if (i < fds.size()) {
        fds[i] = fd;
      } else {
        close(fd);
      }
    }
  }
  return (message.msg_flags & MSG_TRUNC) != 0 ? -EMSGSIZE : received;
}

int peer_of(int socket, Peer& peer) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return -errno;
  peer = {credentials.pid, credentials.uid, credentials.gid, -1};
  // The pidfd that the kernel gives for the peer (6.5) cannot mean another process. Before 6.5 only
  // the pid is left, which another process may have by now.
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD
  length = sizeof peer.pidfd;
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &peer.pidfd, &length) == 0) return 0;
  if (errno != ENOPROTOOPT) return -errno;
  peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, credentials.pid, 0u));
  peer.by_number = true;
  return peer.pidfd < 0 && errno == ESRCH ? -ESRCH : 0;
}

int make_memory(const char* name, size_t bytes) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -errno;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int error = -errno;
    close(fd);
    return error;
  }
  return fd;
}

int seal_client_memory(int fd) {
  return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ? 0 : -errno;
}

int seal_control_memory(int fd) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  return fcntl(fd, F_ADD_SEALS, kSeals) == 0 ? 0 : -errno;
}

int futex_wait(const void* word, uint32_t expected, int64_t timeout_ns) {
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  const int before = errno;  // the application's: a call that it did not make must not change it
  const int result =
      syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0) == 0 ? 0 : -errno;
  errno = before;
  return result;
}

int futex_wake(const void* word, int waiters) {
  const long woken = syscall(SYS_futex, word, FUTEX_WAKE, waiters, nullptr, nullptr, 0);
  return woken >= 0 ? static_cast<int>(woken) : -errno;
}

}  // namespace heddle::ipc
