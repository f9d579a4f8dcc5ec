// What the server asks of MPS and answers for it: how the GPUs are shared, and orders of an
// administrator, which are answered once they are carried out. Loop thread only.
#pragma once

#include <functional>
#include <string>

#include "daemon/server/config.h"
#include "daemon/server/engine.h"
#include "daemon/server/mps_watch.h"

namespace heddle::server {

class MpsOrders {
 public:
  using Done = std::function<void(int socket, const Result<void>&)>;

  // `done`: the order of that connection was carried out, which takes seconds.
  MpsOrders(uv_loop_t* loop, const Config& config, Engine& engine, Log& log, Done done);

  void begin();
  void close() { watch_.close(); }
  // Something came or went that may be a client of MPS.
  void look();
  void find_mode();
  // An error: it is not begun, because something is in the way.
  Result<void> carry_out(int socket, MpsWatch::Order order);
  bool waits(int socket) const { return socket == for_; }
  void hang_up(int socket) {
    if (socket == for_) for_ = kHungUp;
  }
  const MpsWatch& watch() const { return watch_; }

 private:
  static constexpr int kNobody = -1, kHungUp = -2;

  std::string obstacle_to(MpsWatch::Order order) const;

  const Config& config_;
  Engine& engine_;
  const Done done_;
  MpsWatch watch_;
  int for_ = kNobody;  // the connection that waits until its order is carried out
};

}  // namespace heddle::server
