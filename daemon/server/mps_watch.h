// Watches MPS for the loop. A managed control daemon is started if none answers, and again if it
// dies, until an administrator stops it. Loop thread only. Looks and orders run on libuv's pool,
// one at a time (mps.h).
//
// Looks come a second after a possible change, and then at growing intervals: a program becomes a
// client of MPS when it first needs a context, any time after it attached. The death of the control
// daemon is seen at once (pidfd).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/server/attached.h"
#include "daemon/server/config.h"
#include "daemon/server/engine.h"
#include "daemon/server/handles.h"
#include "daemon/server/log.h"
#include "daemon/server/messages.h"
#include "daemon/server/mps.h"

namespace heddle::server {

// How a client shares the GPU. kMps if the control daemon lists it; otherwise by its driver. If the
// driver does not tell: by the configuration; otherwise kTimeslice if the client found no control
// daemon's socket; otherwise kAuto: unknown, as before the client's first context, or because it
// uses another control daemon.
GpuMode mode_of(const Identity& client, GpuMode configured, const MpsState& mps);

class MpsWatch {
 public:
  using Order = Request::MpsOrder;  // kStatus: look
  using Done = std::function<void(const Result<void>&)>;

  // `looked` is called whenever state() has changed.
  MpsWatch(uv_loop_t* loop, const MpsSettings& settings, Log& log, std::function<void()> looked);

  // A process came or went that may be a client of MPS.
  void look_soon();
  // Carries out an order. `done` is called on the loop afterwards, with state() up to date. At most
  // one order may wait for another.
  void carry_out(Order order, Done done);
  // Cancels the running work and waits for it; nothing happens afterwards.
  void close();

  const MpsState& state() const { return state_; }
  const MpsSettings& settings() const { return settings_; }
  bool wanted() const { return wanted_; }  // managed, and not stopped by an administrator

 private:
  struct Work;

  void begin(Order order, Done done);
  void end(Work& work);
  void arm();
  // A start failed. It is tried again at the armed time, not at each look.
  bool failed() const { return wanted_ && !state_.answers && !state_.error.empty(); }
  void tell(const MpsState& before);
  void watch_death(pid_t control);

  uv_loop_t* const loop_;
  const MpsSettings settings_;
  Log& log_;
  const std::function<void()> looked_;
  MpsControl control_;
  MpsState state_;
  bool wanted_;
  bool working_ = false, closed_ = false;
  std::optional<std::pair<Order, Done>> next_;  // an order that came while work was running
  std::set<pid_t> told_;                        // waiting processes that are in the log

  Timer timer_;
  uint64_t armed_ms_ = 0;  // 0: not armed
  size_t looks_ = 0;       // since a possible change
  Descriptor pidfd_;
  std::unique_ptr<FdWatch> death_;
};

// The server's part for MPS: finds out how the GPUs are shared, and carries out an administrator's
// orders, which are answered afterwards. Loop thread only.
class MpsOrders {
 public:
  using Done = std::function<void(int socket, const Result<void>&)>;

  // `done`: the order of that connection was carried out, which takes seconds.
  MpsOrders(uv_loop_t* loop, const Config& config, Engine& engine, Log& log, Done done);

  void begin();
  void close() { watch_.close(); }
  // A process came or went that may be a client of MPS.
  void look();
  void find_mode();
  // Begins an order. An error names the obstacle.
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
  int for_ = kNobody;  // the connection whose order is being carried out
};

}  // namespace heddle::server
