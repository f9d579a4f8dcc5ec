#include "daemon/server/mps_orders.h"

#include <algorithm>
#include <utility>

#include "daemon/server/clock.h"

namespace heddle::server {

MpsOrders::MpsOrders(uv_loop_t* loop, const Config& config, Engine& engine, Log& log, Done done)
    : config_(config),
      engine_(engine),
      done_(std::move(done)),
      watch_(loop, config.mps, log, [this] { find_mode(); }) {}

void MpsOrders::begin() {
  if (config_.mps.manage) {
    watch_.carry_out(MpsWatch::Order::kStart, nullptr);
  } else {
    look();
  }
}

// Kernels overlap only where all of them are of MPS clients: one program beside the server is
// time-sliced against it. Of whom it cannot be told its own word is taken, unless there is no
// server where managed programs look for it: then what it saw was left behind by one. Without
// clients nothing changes, but that a managed MPS came or went.
void MpsOrders::find_mode() {
  const MpsState& mps = watch_.state();
  const auto is_mps = [&](const auto& entry) {
    const GpuMode mode = mode_of(entry.second->identity(), GpuMode::kAuto, mps);
    return mode == GpuMode::kMps ||
           (mode == GpuMode::kAuto && (mps.answers || !config_.mps.manage));
  };
  const auto& clients = engine_.roster.all();
  if (!clients.empty()) {
    engine_.set_mode(std::all_of(clients.begin(), clients.end(), is_mps), monotonic_now());
  } else if (config_.mps.manage) {
    engine_.set_mode(mps.answers, monotonic_now());
  }
}

// Where the configuration says how the GPU is shared there is nothing to find out.
void MpsOrders::look() {
  if (config_.mps.manage || config_.gpu_mode == GpuMode::kAuto) watch_.look_soon();
}

Result<void> MpsOrders::carry_out(int socket, MpsWatch::Order order) {
  const std::string obstacle = obstacle_to(order);
  if (!obstacle.empty()) return fail(obstacle);
  for_ = socket;
  watch_.carry_out(order, [this](const Result<void>& result) {
    const int to = std::exchange(for_, kNobody);
    if (to != kHungUp) done_(to, result);
  });
  return {};
}

// Why the order is not to be carried out now, "" if nothing is in the way. Who may become a client
// of MPS any moment is in the way of stopping it as its clients are, which MPS itself names.
std::string MpsOrders::obstacle_to(MpsWatch::Order order) const {
  using Order = MpsWatch::Order;
  if (for_ != kNobody) return "another heddle mps is at work; wait for it";
  if (order == Order::kStatus) return "";
  if (!config_.mps.manage) return "heddled does not manage it; set [mps] manage = true";
  if (order == Order::kStart) return "";
  std::string users;
  for (const auto& [id, client] : engine_.roster.all()) {
    const Identity& who = client->identity();
    if (!who.mps && !watch_.state().has_client(who.pid)) continue;
    users += (users.empty() ? "client " : ", client ") + std::to_string(id) + " (pid " +
             std::to_string(who.pid) + (who.label.empty() ? "" : ", " + who.label) + ")";
  }
  return users.empty() ? "" : "not stopped under its clients: end " + users;
}

}  // namespace heddle::server
