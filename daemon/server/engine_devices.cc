// The GPUs of the host, each with its scheduler, and what is known of tasks on them.
#include <algorithm>
#include <utility>

#include "daemon/server/engine.h"
#include "daemon/server/gpu_models.h"

namespace heddle::server {
namespace {

constexpr uint32_t kSmsUnknown = 132;
constexpr uint32_t kSmsMost = 1'024;

bool is_plausible(uint32_t sm_count) { return sm_count != 0 && sm_count <= kSmsMost; }

}  // namespace

DeviceMap Engine::number_gpus(std::span<const GpuId> devices, uid_t uid, bool privileged) {
  GpuNumbers::Numbers held = 0, own = 0;
  for (const auto& [id, client] : clients_) {
    held |= client->visible();
    if (client->identity().uid == uid) own |= client->visible();
  }
  return gpus_.map(devices, held, own, privileged);
}

void Engine::set_mode(bool mps, core::TimeNs now) {
  if (config_.gpu_mode != GpuMode::kAuto || mps == mps_) return;
  observe_each(now);
  mps_ = mps;
  log_.info(kSomeClient, "mode",
            {{"mode", mps_ ? "mps" : "timeslice"}, {"switch_us", switch_us()}});
  for (Device& device : devices_) {
    if (!device.scheduler) continue;
    const std::span<const core::Decision> decisions =
        device.scheduler->set_mode(mps_, switch_us(), now);
    if (recorder_ != nullptr) recorder_->device(device.scheduler->config(), now, false);
    apply(decisions);
  }
}

double Engine::switch_us() const { return config_.switch_us.value_or(mps_ ? 10 : 70); }

void Engine::introduce(Client& client, uint8_t index, core::TimeNs now) {
  const Identity& identity = client.identity();
  core::Scheduler& scheduler = device(index, identity, now);
  client.put_on_gpu(index);
  std::optional<core::TaskProfile> profile;
  if (profiles_.is_of(identity.gpu_name)) {
    profile = profiles_.find(identity.uid, client.task());
    if (!profile) profile = profiles_.find(identity.uid, client.unlabelled_task());
  }
  for (const core::Event& event : client.introduction(index, now, profile ? &*profile : nullptr)) {
    step(scheduler, event);
  }
}

// A client says how many SMs its device 0 has; its others are taken for the same.
core::Scheduler& Engine::device(uint8_t index, const Identity& identity, core::TimeNs now) {
  Device& device = devices_[index];
  const GpuId& id = gpus_.id(index);
  const bool same = device.gpu == id || device.gpu == GpuId{};
  device.gpu = id;
  if (device.scheduler && same) {
    learn_sm_total(device, identity, now);
    return *device.scheduler;
  }
  device.scheduler.reset();  // of another GPU, whose number this was
  device.policy.reset();
  device.candidate.reset();
  device.before = {};
  devices_used_ = std::max<uint8_t>(devices_used_, index + 1);
  core::Config config = config_.core;
  config.device = index;
  config.sm_total =
      core::SmCount(is_plausible(identity.sm_count) ? identity.sm_count : kSmsUnknown);
  device.sm_total_known = is_plausible(identity.sm_count) && identity.privileged;
  config.mps = mps_;
  config.switch_us = switch_us();
  config.alone = alone_;
  device.scheduler = std::make_unique<core::Scheduler>(config);
  use_gpu_model(*device.scheduler, installed_gpu_models(), profiles_.gpu(), log_);
  device.scheduler->set_on_broken([this](const core::Broken& broken) { note_broken(broken); });
  log_.info(kSomeClient, "gpu_learned",
            {{"device", index}, {"uuid", gpus_.text(index)}, {"sm_total", config.sm_total.get()}});
  if (recorder_ != nullptr) recorder_->device(config, now, true);
  start_policy(device, now);
  start_shadow(device, now);
  if (bypass_) set_bypass(*device.scheduler, true, now);
  return *device.scheduler;
}

// Who came first is believed until somebody privileged comes.
void Engine::learn_sm_total(Device& device, const Identity& identity, core::TimeNs now) {
  if (device.sm_total_known || !identity.privileged || !is_plausible(identity.sm_count)) return;
  device.sm_total_known = true;
  core::Scheduler& scheduler = *device.scheduler;
  if (scheduler.config().sm_total.get() == identity.sm_count) return;
  log_.warning("gpu_corrected", {{"device", scheduler.config().device},
                                 {"sm_total", identity.sm_count},
                                 {"said_first", scheduler.config().sm_total.get()}});
  scheduler.set_sm_total(core::SmCount(identity.sm_count));
  if (recorder_ != nullptr) recorder_->device(scheduler.config(), now, false);
}

void Engine::collect_profile(const Client& client) {
  const Identity& identity = client.identity();
  if (!profiles_.is_of(identity.gpu_name)) return;
  for (uint8_t index = 0; index < ipc::kDevices; ++index) {
    if (!client.on_gpu(index)) continue;
    core::TaskProfile task = devices_[index].scheduler->take_profile(client.identity().id);
    if (task.kernels.empty()) continue;
    profiles_.add(std::move(task), identity.uid, identity.label, identity.command);
  }
}

core::TaskProfile Engine::profile(const Client& client) const {
  core::TaskProfile all;
  for (uint8_t index = 0; index < ipc::kDevices; ++index) {
    if (!client.managed() || !client.on_gpu(index)) continue;
    const core::TaskProfile task = devices_[index].scheduler->profile(client.identity().id);
    all.task = task.task;
    profiles::add_kernels(all, task);
  }
  return all;
}

void Engine::collect_profiles() {
  for (const Client* client : polled_) collect_profile(*client);
}

}  // namespace heddle::server
