// The GPUs of the host, each with its scheduler once a client is on it; and what holds for all of
// them: how they are shared, whether somebody is alone on them, the bypass. Loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "daemon/core/scheduler.h"
#include "daemon/profile/store.h"
#include "daemon/server/config.h"
#include "daemon/server/gpus.h"
#include "daemon/server/log.h"
#include "daemon/server/stepper.h"

namespace heddle::server {

using profiles::ProfileStore;

class Devices {
 public:
  Devices(const Config& config, const profiles::ProfileStore& profiles, Log& log,
          Mistakes& mistakes, Stepper& stepper);
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // By the GPU's number; null: no client has been on it. None has behind these.
  std::span<const std::unique_ptr<core::Scheduler>> schedulers() const {
    return {schedulers_.data(), used_};
  }
  core::Scheduler& on(uint8_t gpu) const { return *schedulers_[gpu]; }
  // Calls `visit(scheduler, gpu)` of each GPU that the client is on.
  template <class Visit>
  void for_each_of(const Client& client, Visit&& visit) const {
    for (uint8_t gpu = 0; gpu < used_; ++gpu) {
      if (client.on_gpu(gpu)) visit(*schedulers_[gpu], gpu);
    }
  }
  GpuNumbers& gpus() { return gpus_; }
  const GpuNumbers& gpus() const { return gpus_; }

  // A client comes, who says how many SMs its device 0 has; its others are taken for the same.
  // True: the scheduler is a new one, which has no policy yet.
  bool open(uint8_t gpu, const Identity& identity, core::TimeNs now);
  // All schedulers end: before their policies do.
  void end();

  // Every GPU is shared through MPS, or is not.
  bool mps() const { return mps_; }
  bool finds_mode(bool mps) const { return config_.gpu_mode == GpuMode::kAuto && mps != mps_; }
  void set_mode(bool mps, core::TimeNs now);
  void update_alone(size_t clients, core::TimeNs now);
  bool bypass() const { return bypass_; }
  void set_bypass(bool on, core::TimeNs now);
  // What holds for all, as far as a scheduler is not made with it.
  void join_others(uint8_t gpu, core::TimeNs now) {
    if (bypass_) set_bypass(on(gpu), true, now);
  }

  void tick(core::TimeNs now);  // steps every device whose deadline has passed
  core::TimeNs next_deadline() const;

  // The client has work on some GPU, also if it only waits for what it launched long ago.
  bool active(const Client& client) const;
  // What was measured of the client's task so far.
  core::TaskProfile profile(const Client& client) const;
  core::RunTimes runs_above() const;  // Scheduler's

 private:
  struct Known {
    GpuId gpu{};
    bool sm_total = false;  // a privileged client said it, not just who came first
  };

  double switch_us() const { return core::switch_us_of(mps_); }
  void make(uint8_t gpu, const Identity& identity, core::TimeNs now);
  void learn_sm_total(uint8_t gpu, const Identity& identity, core::TimeNs now);
  void set_bypass(core::Scheduler& scheduler, bool on, core::TimeNs now);
  // All have changed so: `change(scheduler)` gives what they decide of it.
  template <class Change>
  void change_all(core::TimeNs now, Change&& change);

  const Config& config_;
  const profiles::ProfileStore& profiles_;
  Log& log_;
  Mistakes& mistakes_;
  Stepper& stepper_;
  std::array<std::unique_ptr<core::Scheduler>, ipc::kDevices> schedulers_;
  std::array<Known, ipc::kDevices> known_;
  uint8_t used_ = 0;
  GpuNumbers gpus_;
  bool mps_;
  bool bypass_ = false;
  bool alone_ = false;          // there is one client at most, and has been for a while
  core::TimeNs shared_at_ = 0;  // when there last were more, or the daemon began
};

}  // namespace heddle::server
