// The loop; connections and their messages are in sessions.cc.
#include "daemon/server/server.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "daemon/base/files.h"
#include "daemon/server/watchdog.h"
#include "ipc/fault.h"

namespace heddle::server {
namespace {

// The loop stays awake for a deadline nearer than this: sleeping and waking cost as much.
constexpr core::TimeNs kSpinToDeadlineNs = 60'000;
// How long the loop stays awake while a thread waits for a grant: longer if the host has cores to
// spare.
const uint32_t kContendedSpinUs = std::thread::hardware_concurrency() >= 4 ? 1000 : 50;
// While awake, descriptors are looked at this often.
constexpr core::TimeNs kLookNs = 100'000;
// The core is not ticked more often than this, whatever deadline it names.
constexpr core::TimeNs kTickMinNs = 2'000;
// While awake, the daemon writes heartbeats at this interval.
constexpr core::TimeNs kBeatNs = 20'000'000;
// Long, because a client that finds the queue full must try again, and others may be quicker.
constexpr int kBacklog = 4'096;
// After a failed write profiles are saved again this much later.
constexpr uint64_t kSaveAgainMs = 60'000;

// Pauses for half a microsecond, for a hyperthread that may share the core: a virtual machine does
// not tell whether one does.
void relax() {
  for (int i = 0; i < 8; ++i) __builtin_ia32_pause();
}

std::optional<std::pair<dev_t, ino_t>> file_at(const std::string& path, int flags) {
  struct stat file;
  if (fstatat(AT_FDCWD, path.c_str(), &file, flags) != 0) return std::nullopt;
  return std::pair(file.st_dev, file.st_ino);
}

std::string listen_error(const std::string& path, int error) {
  const char* remedy = "check the directory and its permissions, or set [daemon] socket";
  if (error == -EACCES)
    remedy = "as another user than root give --socket PATH, or set XDG_RUNTIME_DIR";
  if (error == -EADDRINUSE)
    remedy = "another heddled serves it; stop that one, or set another [daemon] socket";
  if (error == -EEXIST) remedy = "a file that is no socket is in the way; remove it";
  return path + ": cannot listen: " + strerror(-error) + "; " + remedy;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::make(const Config& config, PolicyStore& store, Log& log) {
  std::string path = config.socket;
  if (path.empty()) {
    char buffer[256];
    const int length = ipc::default_socket_path(buffer, sizeof buffer);
    if (length < 0) return fail("the default socket path is too long; set [daemon] socket");
    path = buffer;
  }
  const int listener = ipc::listen_socket(path.c_str(), config.socket_mode, kBacklog);
  if (listener < 0) return fail(listen_error(path, listener));
  const int doorbells = epoll_create1(EPOLL_CLOEXEC);
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  std::unique_ptr<Server> server(new Server(config, store, log, path, listener, doorbells, timer));
  if (doorbells < 0 || timer < 0) {
    return fail("epoll or timerfd: out of descriptors; raise the daemon's limit on open files");
  }
  server->connections_.listen();
  // Clients share the doorbell eventfds and may do anything to them, so the daemon never reads one.
  // Each reports its edges to a private epoll, and that is only drained.
  server->waking_ = std::make_unique<FdWatch>(&server->loop_.loop, doorbells, [doorbells] {
    epoll_event rang[64];
    while (epoll_wait(doorbells, rang, 64, 0) == 64) {
    }
  });
  server->timing_ = std::make_unique<FdWatch>(&server->loop_.loop, timer, [timer] {
    uint64_t count;
    while (read(timer, &count, sizeof count) > 0) {
    }
  });
  // No client waits yet, so the loop thread may read files.
  Result<Generation> configured = store.load(config.policy.name, false);
  server->policy_changes_.take_configured(
      configured ? prepare(std::move(*configured), server->engine_.policy.instances_wanted())
                 : tl::unexpected<Error>(std::move(configured.error())));
  server->policy_changes_.look(false);
  for (const std::string& warning : config.warnings) {
    log.warning("config_warning", {{"warning", warning}});
  }
  server->config_changes_.take_rules(config.rules);
  return server;
}

Server::Server(const Config& config, PolicyStore& store, Log& log, std::string path, int listener,
               int doorbells, int timer)
    : config_(config),
      store_(store),
      log_(log),
      doorbells_(doorbells),
      timer_(timer),
      socket_file_(file_at(path, AT_SYMLINK_NOFOLLOW)),
      profiles_(config.profiles.keep ? config.profiles.directory : "",
                [this](const char* event, const std::string& error) {
                  log_.warning(kSomeClient, event, {{"error", error}});
                }),
      engine_(config, store, profiles_, log),
      connections_(&loop_.loop, listener, log, [this](int fd) { on_readable(fd); }),
      memory_(
          config.context_memory, engine_.roster, log, [this](core::ClientId id) { want_back(id); },
          [this](const Client& client, uint32_t device, uint64_t bytes) {
            return parking_.make_room(client, device, bytes);
          }),
      parking_(&loop_.loop, engine_, memory_.accounts(), log),
      policy_changes_(&loop_.loop, store, log, engine_, jobs_),
      config_changes_(&loop_.loop, config_, log, jobs_, policy_changes_, engine_,
                      [this] { return regrade(); }),
      mps_(&loop_.loop, config_, engine_, log,
           [this](int fd, const Result<void>& carried_out) {
             const Reply reply = carried_out
                                     ? Reply{true, "", mps_json(mps_.watch()).dump()}
                                     : Reply{false, "mps: " + carried_out.error().message, "{}"};
             (void)ipc::send_packet(fd, encode_reply(reply));
             disconnect(fd);
           }),
      stop_asking_(&loop_.loop, config_, engine_.devices.gpus(), engine_.stop_answers, jobs_, log),
      save_again_(&loop_.loop, [this] { profiles_.retry(); }),
      stopper_([this] { stopping_ = true; }) {
  std::vector<GpuId> gpus;
  for (const DriverGpu& gpu : driver_gpus_) gpus.push_back(gpu.id);
  engine_.devices.gpus().keep(gpus);
  facts_ = {std::move(path),
            monotonic_now(),
            0,
            &config_,
            &log_,
            &connections_,
            &config_changes_,
            &policy_changes_,
            &mps_.watch(),
            &memory_.accounts(),
            &parking_};
  uv_async_init(&loop_.loop, stopper_.get(),
                [](uv_async_t* async) { Handle<uv_async_t>::call(async->data); });
}

Server::~Server() {
  connections_.end_all();
  // Remove the socket, so that a new client runs unmanaged at once instead of waiting for an
  // answer. If it was removed before, the path may belong to another heddled by now.
  if (socket_file_ && file_at(facts_.socket, AT_SYMLINK_NOFOLLOW) == socket_file_) {
    unlink(facts_.socket.c_str());
  }
}

const std::string& Server::socket_path() const { return facts_.socket; }

void Server::stop() { uv_async_send(stopper_.get()); }

void Server::handle_signals(ConfigChanges::Source source) {
  config_changes_.set_source(std::move(source));
  for (const int number : {SIGTERM, SIGINT}) {
    signals_.push_back(
        std::make_unique<SignalWatch>(&loop_.loop, number, [this] { stopping_ = true; }));
  }
  signals_.push_back(std::make_unique<SignalWatch>(&loop_.loop, SIGHUP, [this] {
    config_changes_.reread();
    stop_asking_.reread();
  }));
}

void Server::run() {
  log_.info("ready", {{"socket", facts_.socket},
                      {"policy", engine_.policy.generation().name},
                      {"spin_us", config_.spin_us}});
  config_changes_.tell_unkept();
  notify_service_manager("READY=1");
  mps_.begin();
  stop_asking_.begin(driver_gpus_.size());
  Watchdog watchdog;
  // A timer feeds the watchdog: it makes an idle loop turn, too, and it fires only in a turn that
  // serves the sockets.
  Timer turning(&loop_.loop, [&] {
    watchdog.turned();
    turning.start(watchdog.turn_ms());
  });
  if (watchdog.turn_ms() != 0) turning.start(watchdog.turn_ms());
  while (!stopping_) {
    const core::TimeNs now = monotonic_now();
    if (!spin(now)) nap(now);
  }
  notify_service_manager("STOPPING=1");
  const core::TimeNs now = monotonic_now();
  engine_.poll(now, true, [](Client&) {});
  engine_.set_bypass(true, now);
  mps_.close();
  jobs_.finish();
  policy_changes_.remember();
  jobs_.finish();
  while (saving_) uv_run(&loop_.loop, UV_RUN_ONCE);
  engine_.collect_profiles();
  profiles_.retry();
  for (const auto& [path, text] : profiles_.take_unsaved()) {
    const Result<void> saved = replace_file(path, text, 0600);
    profiles_.written(path, saved ? "" : saved.error().message);
  }
  log_.info("stopped", {{"clients", engine_.roster.all().size()}});
}

// Saves profiles on libuv's pool: the loop must not wait for the disk.
void Server::save_profiles() {
  if (saving_ || !profiles_.unsaved()) return;
  struct Saving {
    uv_work_t work;
    Server* server;
    std::vector<std::pair<std::string, std::string>> files;
    std::vector<std::string> errors;  // of each file; "": none
  };
  auto saving = std::make_unique<Saving>();
  saving->work.data = saving.get();
  saving->server = this;
  saving->files = profiles_.take_unsaved();
  const auto write = [](uv_work_t* work) {
    auto& s = *static_cast<Saving*>(work->data);
    for (const auto& [path, text] : s.files) {
      const Result<void> saved = replace_file(path, text, 0600);
      s.errors.push_back(saved ? "" : saved.error().message);
    }
  };
  const auto written = [](uv_work_t* work, int) {
    const std::unique_ptr<Saving> s(static_cast<Saving*>(work->data));
    s->server->saving_ = false;
    for (size_t i = 0; i < s->files.size(); ++i) {
      s->server->profiles_.written(s->files[i].first, s->errors[i]);
    }
    s->server->save_again_.start(kSaveAgainMs);
  };
  saving_ = uv_queue_work(&loop_.loop, &saving->work, write, written) == 0;
  if (saving_) (void)saving.release();
}

// Called within long turns, too: after kHeartbeatStaleNs without a heartbeat clients launch on
// their own.
void Server::beat() {
  const core::TimeNs now = monotonic_now();
  if (now < next_beat_) return;
  next_beat_ = now + kBeatNs;
  engine_.beat(now);
}

// One turn without sleep. False: nothing is expected soon.
bool Server::spin(core::TimeNs now) {
  beat();
  const bool due = engine_.devices.next_deadline() <= now;
  const bool heard = engine_.poll(now, due, [this](Client& client) { poll_kernels(client); });
  if (heard && engine_.gates.news()) last_event_ = now;
  if (engine_.gates.due(now)) engine_.check_decisions(now);
  core::TimeNs deadline = engine_.devices.next_deadline();
  if (deadline <= now && now - last_tick_ >= kTickMinNs) {
    last_tick_ = now;
    engine_.tick(now);
    deadline = engine_.devices.next_deadline();
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + ipc::kHeartbeatPeriodNs;
    engine_.heartbeat(now);
    policy_changes_.check_promotion();
    log_.tell_left_out();
    memory_.show();
    parking_.beat(now);
    engine_.collect_profiles();
    save_profiles();
  }
  policy_changes_.follow();
  if (now >= engine_.reports.next_review()) engine_.reports.review(now);
  // Not polling helps the clients: reading a ring makes each write to it wait for its cache line.
  if (engine_.at_ease(now)) return false;
  const uint32_t patience_us = engine_.contention.any() ? kContendedSpinUs : config_.spin_us;
  const bool busy = now - last_event_ < core::TimeNs{patience_us} * 1'000;
  if (!busy && deadline - now >= kSpinToDeadlineNs) return false;
  if (!look_around(now) && !heard) relax();
  return true;
}

// Serves sockets, exits and signals, however much clients write. False: that was done just before.
bool Server::look_around(core::TimeNs now) {
  if (now - last_look_ < kLookNs) return false;
  last_look_ = now;
  answered_ = false;
  uv_run(&loop_.loop, UV_RUN_NOWAIT);
  return true;
}

void Server::nap(core::TimeNs now) {
  engine_.fall_asleep(now);
  if (engine_.poll(monotonic_now(), true, [this](Client& client) { poll_kernels(client); })) {
    if (engine_.gates.news()) last_event_ = now;
    look_around(now);
  } else {
    core::TimeNs until = engine_.at_ease(now) ? now + kDrainNs : engine_.devices.next_deadline();
    until = std::min(until, engine_.gates.next(now));
    if (engine_.reports.unobserved() != nullptr) {
      until = std::min(engine_.devices.next_deadline(), engine_.reports.next_review());
    }
    if (!engine_.roster.all().empty() || profiles_.unsaved() || log_.left_out())
      until = std::min(until, next_heartbeat_);
    // An absolute time. A deadline of 0 means at once, but would disarm the timer.
    until = std::max<core::TimeNs>(until, 1);
    itimerspec when{};
    if (until != std::numeric_limits<core::TimeNs>::max()) {
      when.it_value = {until / 1'000'000'000, until % 1'000'000'000};
    }
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
    ++facts_.naps;
    HEDDLE_FAULT_POINT("daemon: about to nap");
    answered_ = false;
    uv_run(&loop_.loop, UV_RUN_ONCE);
  }
  engine_.wake_up();
}

}  // namespace heddle::server
