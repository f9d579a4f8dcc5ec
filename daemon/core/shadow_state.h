// The stand-in for the live policy while there is a candidate (shadow.h). The scheduler asks it
// like any policy. It asks both, and returns the live policy's answer.
#pragma once

#include <string>

#include "daemon/core/trial.h"

namespace heddle::core {

class Shadow final : public Policy {
 public:
  // `live`: nullptr for the built-in.
  Shadow(const Scene& scene, const Allowances& allowances, const Admitting& admission, Policy* live,
         Policy& candidate, const ShadowLimits& limits)
      : live_(live), trial_(scene, allowances, admission, candidate, limits) {
    chooses_per_launch = live != nullptr && live->chooses_per_launch;
  }

  Policy* live() const { return live_; }
  Trial& trial() { return trial_; }

  std::string_view name() const override { return live_ != nullptr ? live_->name() : "builtin"; }
  std::string dump(Gpu& gpu) override { return live_ != nullptr ? live_->dump(gpu) : ""; }
  void exit(Gpu& gpu, Ending ending) override;
  AllowanceVerdict client_init(Gpu&, ClientId) override;
  AllowanceVerdict client_active(Gpu&, ClientId) override;
  AllowanceVerdict client_idle(Gpu&, ClientId) override;
  HookResult client_exit(Gpu&, ClientId) override;
  AllowanceVerdict client_update(Gpu&, ClientId) override;
  bool hears_updates() const override { return live_ != nullptr && live_->hears_updates(); }
  KernelVerdict kernel_init(Gpu&, const LaunchView&) override;
  bool hears_kernels() const override { return hears(&Policy::hears_kernels); }
  SmFamily family() const override { return live_ != nullptr ? live_->family() : SmFamily{}; }
  EnqueueVerdict enqueue(Gpu&, LaunchId) override;
  DispatchVerdict dispatch(Gpu&) override;
  HookResult running(Gpu&, const LaunchView&) override;
  bool hears_running() const override { return hears(&Policy::hears_running); }
  HookResult stopping(Gpu&, const LaunchView&) override;
  bool hears_stopping() const override { return hears(&Policy::hears_stopping); }
  HookResult tick(Gpu&) override;
  bool hears_tick() const override { return hears(&Policy::hears_tick); }
  std::string_view reason(uint16_t number) const override {
    return live_ != nullptr ? live_->reason(number) : "";
  }
  uint32_t fault_weight() const override { return live_ != nullptr ? live_->fault_weight() : 1; }

 private:
  bool hears(bool (Policy::*what)() const) const {
    return (live_ != nullptr && (live_->*what)()) || trial_.hears(what);
  }

  Policy* const live_;
  Trial trial_;
};

}  // namespace heddle::core
