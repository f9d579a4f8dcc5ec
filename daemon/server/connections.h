// Connections: which ones are accepted, refused, or ended to make room for others. Loop thread
// only.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "daemon/core/event.h"
#include "daemon/server/handles.h"
#include "daemon/server/log.h"
#include "daemon/server/origin.h"
#include "ipc/socket.h"

namespace heddle::server {

// Closes descriptors that a peer sent, and sockets with unread ones. Such a close can block for as
// long as the peer likes (SO_LINGER, FUSE), so threads of the closer's own do it. Needed only if
// the kernel cannot refuse descriptors (before 6.16).
class Closer {
 public:
  // A thread that hangs does not hold up the others.
  static constexpr size_t kThreads = 8;

  void close(Descriptor fd);

 private:
  // Shared with the threads, which outlive the closer if they hang.
  struct State {
    std::mutex mutex;
    std::condition_variable added;
    std::deque<Descriptor> waiting;
    size_t threads = 0, idle = 0;
  };
  static void run(State& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Each client costs about 100 KiB and three descriptors; each connection one or two.
inline constexpr size_t kClientsMax = 1'024, kConnectionsMax = 2 * kClientsMax;
// One user's container can take half of the places at most; the privileged may take all.
inline constexpr size_t kShareOfUser = 2;

struct Connection {
  Descriptor fd;
  ipc::Peer peer;
  Descriptor pidfd;
  Container container;        // of the unprivileged
  core::TimeNs since = 0;     // when it was accepted
  core::ClientId client = 0;  // 0 until it attaches
  uint64_t serial = 0;        // tells connections apart that had the same descriptor number
  bool privileged = false;
  bool complained = false;
  bool waits = false;  // for an answer that is computed off the loop
  std::unique_ptr<FdWatch> watch;
};

class Connections {
 public:
  // Connections and clients that were refused, and the reason of the newest.
  struct Refusals {
    uint64_t count = 0;
    std::string last;
    core::TimeNs at = 0;
  };

  // `readable(fd)`: a connection has something to read, or has ended.
  Connections(uv_loop_t* loop, int listener, Log& log, std::function<void(int)> readable);

  void listen();
  // nullptr: there is none.
  Connection* find(int fd) const;
  void end(int fd);
  void end_all();
  // Receives a packet of the peer, and closes descriptors that come with it. Its size, or -errno.
  ssize_t receive(const Connection& connection, std::span<std::byte> packet);
  void note_refusal(const std::string& error);

  const Refusals& refusals() const { return refusals_; }
  uint64_t accepted() const { return accepted_; }

 private:
  void accept_all();
  bool has_place(const Connection& connection);
  bool make_room(const std::function<bool(const Connection&)>& among);
  void turn_away(int error);
  void tell_refusal(const std::string& error, const char* hint);
  void hang_up(Descriptor fd);

  uv_loop_t* const loop_;
  const Descriptor listener_;
  Log& log_;
  const std::function<void(int)> readable_;
  const bool no_descriptors_;  // the kernel lets no peer send descriptors
  Closer closer_;
  Descriptor spare_;  // closed for a moment to refuse a connection when there are no descriptors
  std::unique_ptr<FdWatch> accepting_;
  Timer listen_again_;
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  uint64_t accepted_ = 0, last_serial_ = 0;
  Refusals refusals_;
  core::TimeNs last_refusal_ = 0;  // that was logged
};

}  // namespace heddle::server
