// Closes descriptors that a peer sent, or that may hold some unread. Such a close can block for as
// long as the peer likes (SO_LINGER, FUSE), so that threads of its own do it. Only needed where the
// kernel cannot refuse descriptors (below 6.16). Loop thread only.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "daemon/server/handles.h"

namespace heddle::server {

class Closer {
 public:
  // A thread that hangs holds up none of the others.
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

}  // namespace heddle::server
