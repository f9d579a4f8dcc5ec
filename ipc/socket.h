// The Unix socket: SOCK_SEQPACKET, so that a packet is a message and a send is atomic between
// threads. No exceptions, no allocation: the shim uses it too. Errors are errno values, negated.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::ipc {

// The default socket, unless HEDDLE_SOCKET or the configuration names another: root's daemon's,
// /run/heddle/heddle.sock; for other users $XDG_RUNTIME_DIR/heddle.sock while no daemon listens on
// that one.
inline constexpr const char* kSocketEnv = "HEDDLE_SOCKET";
inline constexpr const char* kSystemSocket = "/run/heddle/heddle.sock";

// The path to use, written into `path` (`size` bytes). Returns its length, or -ENAMETOOLONG.
int default_socket_path(char* path, size_t size);
// The same for a thread that must not read the environment: the caller passes the values of the two
// variables.
int socket_path(const char* named, const char* runtime, char* path, size_t size);

// True if `path` is a socket that no process listens on any more: its file stays when a server
// ends. A server that does listen does not notice the check.
bool is_stale_socket(const char* path);

// A connected, close-on-exec descriptor, or -errno. Does not block on a full backlog longer than
// `timeout_ms`.
int connect_socket(const char* path, int timeout_ms);

// A listening, non-blocking, close-on-exec descriptor with the given mode, or -errno. Replaces a
// stale socket file; -EADDRINUSE if a process listens on it. If several processes call this at
// once, one succeeds: they wait for each other at the file `path`.lock, which stays.
int listen_socket(const char* path, mode_t mode, int backlog);

// Clients that connect from now on cannot send descriptors: they get EPERM. 0 or -errno;
// -ENOPROTOOPT below Linux 6.16.
int refuse_descriptors(int listener);

// Sends one packet, with at most 4 descriptors. 0 or -errno (-EAGAIN instead of blocking).
int send_packet(int socket, std::span<const std::byte> packet, std::span<const int> fds = {});

// Receives one packet into `buffer`. Returns its length, 0 at end of file, or -errno; -EMSGSIZE if
// the packet did not fit. Up to `fds.size()` descriptors are stored, close-on-exec; the rest of
// `fds` is -1. Surplus descriptors are closed. The sender can make that block for as long as it
// likes, so a server passes room for kDescriptorsMost, or refuses descriptors.
inline constexpr size_t kDescriptorsMost = 253;  // SCM_MAX_FD: a packet has no more
ssize_t receive_packet(int socket, std::span<std::byte> buffer, std::span<int> fds = {});

// The process at the other end, from SO_PEERCRED: `pid` is 0 for a process of a PID namespace that
// this one does not contain, `uid` and `gid` are the overflow id for a user that it does not map.
// `pidfd` is -1 if the kernel has none (below 5.3). `by_number`: it was opened by the pid (below
// 6.5), so it is another process's if the peer ended just now. The pidfd, not the socket, shows
// whether the process lives, because a forked child keeps the socket open. Returns 0, or -errno
// (-ESRCH and others) if the process has ended.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  int pidfd = -1;
  bool by_number = false;
};
int peer_of(int socket, Peer& peer);

// A memfd of `bytes`, or -errno; and the functions that seal one.
int make_memory(const char* name, size_t bytes);
int seal_client_memory(int fd);   // SHRINK | GROW | SEAL
int seal_control_memory(int fd);  // SHRINK | GROW | FUTURE_WRITE | SEAL: map it for writing first

// Futex on a word in shared memory (not PRIVATE).
int futex_wait(const void* word, uint32_t expected, int64_t timeout_ns);
int futex_wake(const void* word, int waiters = 0x7fffffff);

}  // namespace heddle::ipc
