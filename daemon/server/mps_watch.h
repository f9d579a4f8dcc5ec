// What the loop knows of MPS, and what it does about it: a managed control daemon is started where
// none answers, and started again when it died, until it is told to stop. Loop thread only; looks
// and orders run on libuv's pool, one at a time (mps.h).
//
// Looks come a second after something may have changed, and then at growing distance: programs
// become clients of MPS when they first need a context, any time after they attached. That the
// control daemon died is seen at once (pidfd).
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

// How a client shares the GPU. kMps: the control daemon lists it; else what its driver told it. Of
// drivers that say nothing: what the configuration says; kTimeslice: there was no control daemon's
// socket where it would look; kAuto: it cannot be told, as before the client's first context, or
// because its control daemon is another.
GpuMode mode_of(const Identity& client, GpuMode configured, const MpsState& mps);

class MpsWatch {
 public:
  using Order = Request::MpsOrder;  // kStatus: look
  using Done = std::function<void(const Result<void>&)>;

  // `looked` is called whenever state() is another.
  MpsWatch(uv_loop_t* loop, const MpsSettings& settings, Log& log, std::function<void()> looked);

  // Something came or went that may be a client of MPS.
  void look_soon();
  // `done` is called on the loop once the order is carried out and state() says what came of it. At
  // most one may be given while another is not done.
  void carry_out(Order order, Done done);
  // Gives up what runs and waits for it; nothing happens afterwards.
  void close();

  const MpsState& state() const { return state_; }
  const MpsSettings& settings() const { return settings_; }
  bool wanted() const { return wanted_; }  // managed, and not told to stop

 private:
  struct Work;

  void begin(Order order, Done done);
  void end(Work& work);
  void arm();
  // A start failed, and is tried again at the armed time however often anybody looks.
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
  std::optional<std::pair<Order, Done>> next_;  // came while something ran
  std::set<pid_t> told_;                        // who waits, and is in the log

  Timer timer_;
  uint64_t armed_ms_ = 0;  // 0: not
  size_t looks_ = 0;       // since something may have changed
  Descriptor pidfd_;
  std::unique_ptr<FdWatch> death_;
};

// What the server asks of MPS and answers for it: how the GPUs are shared, and orders of an
// administrator, which are answered once they are carried out. Loop thread only.
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
