// The Unix socket: SOCK_SEQPACKET, so that a packet is a message and a send is atomic between
// threads. No exceptions, no allocation: the shim uses it too. Errors are errno values, negated.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::ipc {

// Default socket, unless HEDDLE_SOCKET or the configuration names another: /run/heddle/heddle.sock,
// root's daemon's; for others $XDG_RUNTIME_DIR/heddle.sock while nobody listens on that one.
inline constexpr const char* kSocketEnv = "HEDDLE_SOCKET";
inline constexpr const char* kSystemSocket = "/run/heddle/heddle.sock";

// The path to use, written into `path` (`size` bytes). Returns its length, or -ENAMETOOLONG.
int default_socket_path(char* path, size_t size);
// The same, for a thread that must not read the environment: with what the two variables said.
int socket_path(const char* named, const char* runtime, char* path, size_t size);

// True if `path` is a socket that nobody listens on any more. Its file stays when a server ends. No
// server notices the question.
bool is_stale_socket(const char* path);

// A connected, close-on-exec descriptor, or -errno. Does not block on a full backlog longer than
// `timeout_ms`.
int connect_socket(const char* path, int timeout_ms);

// A listening, non-blocking, close-on-exec descriptor with the given mode, or -errno. A stale
// socket file that nobody listens on is replaced; -EADDRINUSE if somebody does. Of several at once
// one succeeds: they wait for each other at the file `path`.lock, which stays.
int listen_socket(const char* path, mode_t mode, int backlog);

// Whoever connects from now on cannot send descriptors: EPERM. -ENOPROTOOPT below Linux 6.16.
int refuse_descriptors(int listener);

// Sends one packet, with at most 4 descriptors. 0 or -errno (-EAGAIN instead of blocking).
int send_packet(int socket, std::span<const std::byte> packet, std::span<const int> fds = {});

// Receives one packet into `buffer`. Returns its length, 0 at end of file, or -errno; -EMSGSIZE if
// the packet did not fit. Up to `fds.size()` descriptors are stored, close-on-exec, -1 elsewhere;
// surplus ones are closed, which blocks for as long as who sent them likes: a server asks for
// kDescriptorsMost, or refuses them.
inline constexpr size_t kDescriptorsMost = 253;  // SCM_MAX_FD: a packet has no more
ssize_t receive_packet(int socket, std::span<std::byte> buffer, std::span<int> fds = {});

// Who is at the other end, from SO_PEERCRED: `pid` is 0 for a process of a PID namespace that this
// one does not contain, `uid` and `gid` are the overflow id for a user that it does not map.
// `pidfd` is -1 where the kernel has none (below 5.3), and `by_number` says that it was opened by
// number (below 6.5): it is another's if the peer ended just now. The pidfd, not the socket, says
// whether the process lives: a forked child keeps the socket open. -ESRCH and others: it has ended.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  int pidfd = -1;
  bool by_number = false;
};
int peer_of(int socket, Peer& peer);

// A memfd of `bytes`, or -errno; and its seals.
int make_memory(const char* name, size_t bytes);
int seal_client_memory(int fd);   // SHRINK | GROW | SEAL
int seal_control_memory(int fd);  // SHRINK | GROW | FUTURE_WRITE | SEAL: map it for writing first

// Futex on a word in shared memory (not PRIVATE).
int futex_wait(const void* word, uint32_t expected, int64_t timeout_ns);
int futex_wake(const void* word, int waiters = 0x7fffffff);

}  // namespace heddle::ipc
