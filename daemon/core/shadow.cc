#include "daemon/core/shadow_state.h"

namespace heddle::core {

void Shadow::exit(Gpu& gpu, Ending ending) {
  trial_.end(ending == Ending::kFaulted ? "the live policy was quarantined"
                                        : "another policy became the live one",
             false);
  if (live_ != nullptr) live_->exit(gpu, ending);
}

AllowanceVerdict Shadow::client_init(Gpu& gpu, ClientId id) {
  const AllowanceVerdict verdict =
      live_ != nullptr ? live_->client_init(gpu, id) : AllowanceVerdict{};
  trial_.meet(id);
  return verdict;
}

AllowanceVerdict Shadow::client_active(Gpu& gpu, ClientId id) {
  const AllowanceVerdict verdict =
      live_ != nullptr ? live_->client_active(gpu, id) : AllowanceVerdict{};
  trial_.allowance(&Policy::client_active, id);
  return verdict;
}

AllowanceVerdict Shadow::client_idle(Gpu& gpu, ClientId id) {
  const AllowanceVerdict verdict =
      live_ != nullptr ? live_->client_idle(gpu, id) : AllowanceVerdict{};
  trial_.allowance(&Policy::client_idle, id);
  return verdict;
}

HookResult Shadow::client_exit(Gpu& gpu, ClientId id) {
  const HookResult result = live_ != nullptr ? live_->client_exit(gpu, id) : HookResult::kDefault;
  trial_.leave(id);
  return result;
}

// Called only if the live policy has this hook; else the client leaves and comes back for both.
AllowanceVerdict Shadow::client_update(Gpu& gpu, ClientId id) {
  const AllowanceVerdict verdict = live_->client_update(gpu, id);
  if (trial_.hears(&Policy::hears_updates)) {
    trial_.allowance(&Policy::client_update, id);
  } else {
    trial_.leave(id);
    trial_.meet(id);
  }
  return verdict;
}

KernelVerdict Shadow::kernel_init(Gpu& gpu, const LaunchView& kernel) {
  KernelVerdict verdict;
  if (live_ != nullptr && live_->hears_kernels()) verdict = live_->kernel_init(gpu, kernel);
  if (trial_.hears(&Policy::hears_kernels)) {
    trial_.ask<KernelVerdict>(true, [&](Policy& p, Gpu& g) { return p.kernel_init(g, kernel); });
  }
  return verdict;
}

EnqueueVerdict Shadow::enqueue(Gpu& gpu, LaunchId id) {
  EnqueueVerdict verdict;
  if (live_ != nullptr) verdict = live_->enqueue(gpu, id);
  trial_.asked(id);
  if (verdict.result == HookResult::kDecided && verdict.run)
    trial_.decide();  // the launch runs at once, without a dispatch
  return verdict;
}

DispatchVerdict Shadow::dispatch(Gpu& gpu) {
  DispatchVerdict verdict;
  if (live_ != nullptr) verdict = live_->dispatch(gpu);
  trial_.decide();
  return verdict;
}

HookResult Shadow::running(Gpu& gpu, const LaunchView& launch) {
  HookResult result = HookResult::kDefault;
  if (live_ != nullptr && live_->hears_running()) result = live_->running(gpu, launch);
  if (trial_.hears(&Policy::hears_running)) {
    trial_.ask<HookResult>(true, [&](Policy& p, Gpu& g) { return p.running(g, launch); });
  }
  return result;
}

HookResult Shadow::stopping(Gpu& gpu, const LaunchView& launch) {
  HookResult result = HookResult::kDefault;
  if (live_ != nullptr && live_->hears_stopping()) result = live_->stopping(gpu, launch);
  if (trial_.hears(&Policy::hears_stopping)) {
    trial_.ask<HookResult>(true, [&](Policy& p, Gpu& g) { return p.stopping(g, launch); });
  }
  return result;
}

HookResult Shadow::tick(Gpu& gpu) {
  HookResult result = HookResult::kDefault;
  if (live_ != nullptr && live_->hears_tick()) result = live_->tick(gpu);
  if (trial_.hears(&Policy::hears_tick)) {
    trial_.ask<HookResult>(true, [](Policy& p, Gpu& g) { return p.tick(g); });
  }
  return result;
}

}  // namespace heddle::core
