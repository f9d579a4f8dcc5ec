// What stands where the live policy stood while a candidate is beside it (shadow.h): the scheduler
// asks it as it asks any policy, it asks both, and answers what the live one said.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/core/admitting.h"
#include "daemon/core/shadow.h"

namespace heddle::core {

class Shadow final : public Policy, public Sight {
 public:
  // `live`: nullptr for the built-in.
  Shadow(const Scene& scene, const Windows& windows, const Admitting& admission, Policy* live,
         Policy& candidate, const ShadowLimits& limits);

  Policy* live() const { return live_; }
  bool over() const { return !ended_.empty(); }
  void end(const std::string& why, bool faulted);
  ShadowReport report() const;

  // ---- of launches, for the scheduler ----
  // It waits in the candidate's world too; where it is in one of its queues, or -1.
  bool holds(uint32_t slot) const;
  int32_t queue_of(uint32_t slot) const { return launches_[slot].queue; }
  uint32_t window_of(const Client& c) const;
  bool at_work(const Client& c) const;  // it let something of the client go that waits, or runs
  void granted(uint32_t slot, Decider decider);
  void forget(uint32_t slot);

  // ---- Policy ----
  std::string_view name() const override { return live_ != nullptr ? live_->name() : "builtin"; }
  std::string dump(Gpu& gpu) override { return live_ != nullptr ? live_->dump(gpu) : ""; }
  void exit(Gpu& gpu, Ending ending) override;
  WindowVerdict client_init(Gpu&, ClientId) override;
  WindowVerdict client_active(Gpu&, ClientId) override;
  WindowVerdict client_idle(Gpu&, ClientId) override;
  HookResult client_exit(Gpu&, ClientId) override;
  WindowVerdict client_update(Gpu&, ClientId) override;
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

  // ---- Gpu, as the candidate sees it ----
  GpuView gpu() const override;
  bool client(ClientId, ClientView&) const override;
  QueueId queue_create(std::string_view name) override { return queues_.create(name); }
  bool queue_insert(QueueId, LaunchId, double key) override;
  LaunchId queue_peek(QueueId queue, size_t place) const override {
    return queues_.peek(queue, place);
  }
  LaunchId queue_best_fit(QueueId, double us) const override;
  size_t queue_len(QueueId queue) const override { return queues_.size(queue); }
  bool set_window(ClientId, uint32_t window_us, double for_us) override;
  bool set_launch_priority(ClientId id, int) override { return roster_.find(id) != nullptr; }
  bool resize(ClientId id) override { return roster_.find(id) != nullptr; }

 private:
  static constexpr int kInARow = 8;           // launches that the candidate lets go at one event
  static constexpr size_t kCountedMax = 256;  // clients that are counted apart

  struct Launch {  // by the slot that it waits in
    LaunchId id = 0;
    TimeNs let_go = -1;       // by the candidate
    double predicted_us = 0;  // as it did
    int32_t queue = -1;       // of the candidate
    bool unseen = false;
  };

  bool hears(bool (Policy::*what)() const) const {
    return (live_ != nullptr && (live_->*what)()) || (!over() && (candidate_.*what)());
  }
  // The candidate's hook, timed; what it returned. Nothing once it is over, or if it `may_skip` and
  // has had its time.
  template <class Verdict, class Hook>
  Verdict ask(bool may_skip, Hook&& hook);
  bool affords();
  WindowVerdict window_hook(WindowVerdict (Policy::*hook)(Gpu&, ClientId), ClientId id,
                            WindowVerdict live);
  void meet(ClientId id);
  void watch(uint32_t slot);
  void decide();
  bool decide_once();
  void let_go(uint32_t slot);
  double in_flight_us(const Client* of) const;
  ShadowCounts& counts_of(const Client& c);

  const Windows& windows_;
  const Admitting& admission_;
  Policy* const live_;
  Policy& candidate_;
  const ShadowLimits limits_;
  std::vector<Launch> launches_;
  Queues queues_;
  std::map<ClientId, WindowChoice> choices_;
  std::vector<ShadowOfClient> counted_;
  ShadowReport so_far_;
  std::string ended_;
  TimeNs budget_ns_ = 0, refilled_at_ = 0, skipped_at_ = -1;
};

}  // namespace heddle::core
