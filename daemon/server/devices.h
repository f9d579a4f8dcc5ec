// The GPUs of the host, each with its scheduler once a client is on it; and the state of all of
// them: how they are shared, whether a client is alone on them, the bypass. Loop thread only.
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

  // By the GPU's number; null: no client has been on it. Later GPUs have none.
  std::span<const std::unique_ptr<core::Scheduler>> schedulers() const {
    return {schedulers_.data(), used_};
  }
  core::Scheduler& on(uint8_t gpu) const { return *schedulers_[gpu]; }
  // Calls `visit(scheduler, gpu)` for each GPU that the client is on.
  template <class Visit>
  void for_each_of(const Client& client, Visit&& visit) const {
    for (uint8_t gpu = 0; gpu < used_; ++gpu) {
      if (client.on_gpu(gpu)) visit(*schedulers_[gpu], gpu);
    }
  }
  GpuNumbers& gpus() { return gpus_; }
  const GpuNumbers& gpus() const { return gpus_; }

  // A client comes to the GPU. It says how many SMs its device 0 has, and its other devices count
  // as the same. True: a new scheduler was made, which has no policy yet.
  bool open(uint8_t gpu, const Identity& identity, core::TimeNs now);
  // Ends all schedulers, which must end before their policies.
  void end();

  // Whether the GPUs are shared through MPS: all of them, or none.
  bool mps() const { return mps_; }
  bool finds_mode(bool mps) const { return config_.gpu_mode == GpuMode::kAuto && mps != mps_; }
  void set_mode(bool mps, core::TimeNs now);
  void update_alone(size_t clients, core::TimeNs now);
  bool bypass() const { return bypass_; }
  void set_bypass(bool on, core::TimeNs now);
  // Brings a new scheduler into the state of the others.
  void join_others(uint8_t gpu, core::TimeNs now) {
    if (bypass_) set_bypass(on(gpu), true, now);
  }

  void tick(core::TimeNs now);  // steps every device whose deadline has passed
  core::TimeNs next_deadline() const;

  // The client has work on some GPU, also if it only waits for an old launch.
  bool active(const Client& client) const;
  // The measurements of the client's task so far.
  core::TaskProfile profile(const Client& client) const;
  core::RunTimes runs_above() const;  // the sum of View::runs_above

 private:
  struct Known {
    GpuId gpu{};
    bool sm_total = false;  // a privileged client told it, not just the first one
  };

  double switch_us() const { return core::switch_us_of(mps_); }
  void make(uint8_t gpu, const Identity& identity, core::TimeNs now);
  void learn_sm_total(uint8_t gpu, const Identity& identity, core::TimeNs now);
  void set_bypass(core::Scheduler& scheduler, bool on, core::TimeNs now);
  // Changes all schedulers by `change(scheduler)`, and carries out the decisions that it returns.
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
  bool alone_ = false;          // there has been one client at most for a while
  core::TimeNs shared_at_ = 0;  // when there were last more, or the daemon began
};

}  // namespace heddle::server
