#include "daemon/server/devices.h"

#include <algorithm>
#include <limits>

#include "daemon/server/gpus.h"

namespace heddle::server {
namespace {

constexpr uint32_t kSmsUnknown = 132;
constexpr uint32_t kSmsMost = 1'024;
// One client counts as alone only after this time. A new program makes a context first, and by then
// the freely submitted work of the other has ended. But after a restart of heddled its clients come
// back at once, and a client that has just left may come again.
constexpr core::TimeNs kAloneNs = 1'000'000'000;

bool is_plausible(uint32_t sm_count) { return sm_count != 0 && sm_count <= kSmsMost; }

}  // namespace

Devices::Devices(const Config& config, const profiles::ProfileStore& profiles, Log& log,
                 Mistakes& mistakes, Stepper& stepper)
    : config_(config),
      profiles_(profiles),
      log_(log),
      mistakes_(mistakes),
      stepper_(stepper),
      mps_(config.gpu_mode == GpuMode::kMps) {}  // kAuto: MpsOrders finds out later

bool Devices::open(uint8_t gpu, const Identity& identity, core::TimeNs now) {
  const GpuId& id = gpus_.id(gpu);
  const bool same = known_[gpu].gpu == id || known_[gpu].gpu == GpuId{};
  known_[gpu].gpu = id;
  if (schedulers_[gpu] && same) {
    learn_sm_total(gpu, identity, now);
    return false;
  }
  make(gpu, identity, now);
  return true;
}

void Devices::make(uint8_t gpu, const Identity& identity, core::TimeNs now) {
  schedulers_[gpu].reset();  // of another GPU that had this number
  used_ = std::max<uint8_t>(used_, gpu + 1);
  core::Config config = config_.core;
  config.device = gpu;
  config.sm_total =
      core::SmCount(is_plausible(identity.sm_count) ? identity.sm_count : kSmsUnknown);
  known_[gpu].sm_total = is_plausible(identity.sm_count) && identity.privileged;
  config.mps = mps_;
  config.switch_us = switch_us();
  config.alone = alone_;
  schedulers_[gpu] = std::make_unique<core::Scheduler>(config);
  core::Scheduler& scheduler = *schedulers_[gpu];
  use_gpu_model(scheduler, installed_gpu_models(), profiles_.gpu(), log_);
  scheduler.set_on_broken([this](const core::Broken& broken) { mistakes_.on_broken(broken); });
  log_.info(kSomeClient, "gpu_learned",
            {{"device", gpu}, {"uuid", gpus_.text(gpu)}, {"sm_total", config.sm_total.get()}});
  if (stepper_.recorder() != nullptr) stepper_.recorder()->device(config, now, true);
}

// The first client's number of SMs counts until a privileged client comes.
void Devices::learn_sm_total(uint8_t gpu, const Identity& identity, core::TimeNs now) {
  if (known_[gpu].sm_total || !identity.privileged || !is_plausible(identity.sm_count)) return;
  known_[gpu].sm_total = true;
  core::Scheduler& scheduler = on(gpu);
  if (scheduler.config().sm_total.get() == identity.sm_count) return;
  log_.warning("gpu_corrected", {{"device", gpu},
                                 {"sm_total", identity.sm_count},
                                 {"said_first", scheduler.config().sm_total.get()}});
  scheduler.set_sm_total(core::SmCount(identity.sm_count));
  if (stepper_.recorder() != nullptr) stepper_.recorder()->device(scheduler.config(), now, false);
}

void Devices::end() {
  for (auto& scheduler : schedulers_) scheduler.reset();
}

// ---- all schedulers -----------------------------------------------------------------------------

template <class Change>
void Devices::change_all(core::TimeNs now, Change&& change) {
  for (const auto& scheduler : schedulers()) {
    if (!scheduler) continue;
    const std::span<const core::Decision> decisions = change(*scheduler);
    if (stepper_.recorder() != nullptr) {
      stepper_.recorder()->device(scheduler->config(), now, false);
    }
    stepper_.apply(decisions);
  }
}

void Devices::set_mode(bool mps, core::TimeNs now) {
  mps_ = mps;
  log_.info(kSomeClient, "mode",
            {{"mode", mps_ ? "mps" : "timeslice"}, {"switch_us", switch_us()}});
  change_all(now, [&](core::Scheduler& s) { return s.set_mode(mps_, switch_us(), now); });
}

void Devices::update_alone(size_t clients, core::TimeNs now) {
  if (clients > 1 || shared_at_ == 0) shared_at_ = now;
  const bool alone = now - shared_at_ >= kAloneNs;
  if (alone == alone_) return;
  alone_ = alone;
  change_all(now, [&](core::Scheduler& s) { return s.set_alone(alone, now); });
}

void Devices::set_bypass(bool on, core::TimeNs now) {
  bypass_ = on;
  for (const auto& scheduler : schedulers()) {
    if (scheduler) set_bypass(*scheduler, on, now);
  }
}

void Devices::set_bypass(core::Scheduler& scheduler, bool on, core::TimeNs now) {
  if (stepper_.recorder() != nullptr) {
    stepper_.recorder()->bypass({scheduler.config().device, now, on});
  }
  stepper_.apply(scheduler.set_bypass(on, now));
}

// ---- time ---------------------------------------------------------------------------------------

void Devices::tick(core::TimeNs now) {
  for (const auto& scheduler : schedulers()) {
    if (!scheduler || scheduler->next_deadline() > now) continue;
    core::Event event(core::EventKind::kTick, now, 0);
    event.device = scheduler->config().device;
    stepper_.step(*scheduler, event);
  }
}

core::TimeNs Devices::next_deadline() const {
  core::TimeNs at = std::numeric_limits<core::TimeNs>::max();
  for (const auto& scheduler : schedulers()) {
    if (scheduler) at = std::min(at, scheduler->next_deadline());
  }
  return at;
}

// ---- queries ------------------------------------------------------------------------------------

bool Devices::active(const Client& client) const {
  bool active = false;
  for_each_of(client, [&](const core::Scheduler& scheduler, uint8_t) {
    active |= scheduler.view().active(client.identity().id);
  });
  return active;
}

core::TaskProfile Devices::profile(const Client& client) const {
  core::TaskProfile all;
  if (!client.managed()) return all;
  for_each_of(client, [&](const core::Scheduler& scheduler, uint8_t) {
    const core::TaskProfile task = scheduler.view().profile(client.identity().id);
    all.task = task.task;
    profiles::add_kernels(all, task);
  });
  return all;
}

core::RunTimes Devices::runs_above() const {
  core::RunTimes all;
  for (const auto& scheduler : schedulers()) {
    if (!scheduler) continue;
    const core::RunTimes of = scheduler->view().runs_above();
    all.count += of.count;
    all.took_us += of.took_us;
    all.alone_us += of.alone_us;
  }
  return all;
}

}  // namespace heddle::server
