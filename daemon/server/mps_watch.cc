#include "daemon/server/mps_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/server/clock.h"

namespace heddle::server {
namespace {

constexpr uint64_t kDelaysMs[] = {1'000, 3'000, 10'000, 30'000};
constexpr uint64_t kRetryMs = 30'000;  // after a failed start

}  // namespace

GpuMode mode_of(const Identity& client, GpuMode configured, const MpsState& mps) {
  if (client.pid != 0 && mps.has_client(client.pid)) return GpuMode::kMps;
  if (client.mode_told) return client.mps ? GpuMode::kMps : GpuMode::kTimeslice;
  if (configured != GpuMode::kAuto) return configured;
  return client.mps ? GpuMode::kAuto : GpuMode::kTimeslice;
}

struct MpsWatch::Work {
  uv_work_t work;
  MpsWatch* watch;
  Order order;
  Done done;
  Result<void> result;
  MpsState state;

  // Runs on the pool.
  void carry_out() {
    MpsControl& control = watch->control_;
    if (order == Order::kStop) result = control.stop();
    state = control.look();
    if (order != Order::kStart || state.answers) return;
    result = control.start();
    state = control.look();
  }
};

MpsWatch::MpsWatch(uv_loop_t* loop, const MpsSettings& settings, Log& log,
                   std::function<void()> looked)
    : loop_(loop),
      settings_(settings),
      log_(log),
      looked_(std::move(looked)),
      control_(settings),
      wanted_(settings.manage),
      timer_(loop, [this] {
        armed_ms_ = 0;
        begin(wanted_ && !state_.answers ? Order::kStart : Order::kStatus, nullptr);
      }) {}

void MpsWatch::look_soon() {
  looks_ = 0;
  const bool soon = armed_ms_ == kDelaysMs[0] || (armed_ms_ != 0 && failed());
  if (!soon) arm();
}

void MpsWatch::carry_out(Order order, Done done) {
  if (order == Order::kStart) wanted_ = settings_.manage;
  if (working_) {
    next_.emplace(order, std::move(done));
  } else {
    begin(order, std::move(done));
  }
}

void MpsWatch::close() {
  closed_ = true;
  control_.cancel();
  while (working_) uv_run(loop_, UV_RUN_ONCE);
  death_.reset();
}

void MpsWatch::begin(Order order, Done done) {
  if (working_ || closed_) return;
  auto work = std::make_unique<Work>(Work{{}, this, order, std::move(done), {}, {}});
  work->work.data = work.get();
  const auto carry_out = [](uv_work_t* w) { static_cast<Work*>(w->data)->carry_out(); };
  const auto carried_out = [](uv_work_t* w, int) {
    const std::unique_ptr<Work> owned(static_cast<Work*>(w->data));
    owned->watch->end(*owned);
  };
  working_ = uv_queue_work(loop_, &work->work, carry_out, carried_out) == 0;
  if (working_) (void)work.release();
}

void MpsWatch::end(Work& work) {
  working_ = false;
  if (closed_) return;
  if (work.order == Order::kStop && work.result) wanted_ = false;
  const MpsState before = std::exchange(state_, std::move(work.state));
  if (work.order == Order::kStart && !work.result) state_.error = work.result.error().message;
  if (!state_.answers || state_.control != before.control || !death_) {
    watch_death(state_.control);
  }
  tell(before);
  looked_();
  if (work.done) work.done(work.result);
  if (next_) {
    auto [order, done] = std::move(*next_);
    next_.reset();
    begin(order, std::move(done));
  } else if (armed_ms_ == 0) {
    arm();
  }
}

void MpsWatch::arm() {
  if (failed()) {
    armed_ms_ = kRetryMs;
  } else if (looks_ < std::size(kDelaysMs)) {
    armed_ms_ = kDelaysMs[looks_++];
  } else {
    return;
  }
  timer_.start(armed_ms_);
}

void MpsWatch::tell(const MpsState& before) {
  if (state_.answers && !before.answers) {
    log_.info("mps_answers",
              {{"pid", state_.control}, {"pipe_directory", settings_.pipe_directory}});
  } else if (before.answers && !state_.answers) {
    log_.warning("mps_gone", {{"pid", before.control}, {"clients", before.clients()}});
  }
  if (state_.shares_cgroup && !before.shares_cgroup) {
    log_.warning("mps_shares_cgroup",
                 {{"pid", state_.control},
                  {"hint",
                   "whoever ends heddled's cgroup ends MPS and its clients; systemd gives "
                   "it a unit of its own, if heddled is root's"}});
  }
  if (!state_.error.empty() && state_.error != before.error) {
    log_.error("mps_failed", {{"error", state_.error}});
  }
  std::set<pid_t> waiting;
  for (const MpsProcess& process : state_.waiting) {
    waiting.insert(process.pid);
    if (told_.count(process.pid) != 0) continue;
    log_.warning({process.uid, false}, "mps_client_waits",
                 {{"pid", process.pid},
                  {"uid", process.uid},
                  {"served_uid", state_.servers.front().uid},
                  {"hint",
                   "it waits inside cuInit until that user's programs are gone; run them "
                   "as one user"}});
  }
  told_ = std::move(waiting);
}

void MpsWatch::watch_death(pid_t control) {
  death_.reset();  // must end before its descriptor
  pidfd_ = Descriptor();
  if (control == 0) return;
  pidfd_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, control, 0)));
  if (pidfd_.get() < 0) return;  // before Linux 5.3 the next look finds out
  death_ = std::make_unique<FdWatch>(loop_, pidfd_.get(), [this] {
    watch_death(0);
    if (working_) return look_soon();  // it is being stopped, or ended during a look
    const MpsState before = std::exchange(state_, {});
    tell(before);
    looked_();
    look_soon();
  });
}

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

// Finds out how the clients share the GPUs. Kernels overlap only if all programs are MPS clients: a
// program beside the server is time-sliced against it. If a client's mode is unknown, its own word
// counts, unless MPS is managed and does not answer: then the client saw a stale socket. Without
// clients the mode changes only when a managed MPS comes or goes.
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

// If the configuration says how the GPU is shared, there is nothing to find out.
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

// Why the order cannot be carried out now; "": it can. MPS itself names its clients when it cannot
// be stopped. Programs that may become its clients at any moment are an obstacle as well.
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
