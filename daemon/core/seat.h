// The policy's seat: the policy in force, its hooks, and how a failing one is dropped.
//
// A caller of a hook need not know whether there is a policy, or whether it failed: then the result
// means the built-in. Verdicts on allowances are kept with the client (Standing::choice).
#pragma once

#include <deque>
#include <utility>

#include "daemon/core/decision.h"
#include "daemon/core/sight.h"

namespace heddle::core {

// What the live policy sees, and its orders, which are carried out at once.
class Orders final : public Sight {
 public:
  using Sight::Sight;

  Queues& queues() { return queues_; }
  const Queues& queues() const { return queues_; }
  // The values that its hooks read of the device since the last call.
  Saw take_saw() { return std::exchange(saw_, {}); }

  bool queue_insert(QueueId, LaunchId, double key) override;
  bool set_allowance(ClientId, Allowance allowed, double for_us) override;
  bool set_launch_priority(ClientId, int launch_priority) override;
  bool keep_to(ClientId, SmCount sm, double for_us) override;
  bool set_stop(ClientId, StopWhen) override;
  bool set_slice(ClientId, uint32_t slice_us) override;
  bool set_parked(ClientId, bool parked) override;
  bool resize(ClientId) override;
};

class Seat {
 public:
  Seat(const Scene& scene, const Telling& telling)
      : now_(scene.now),
        roster_(scene.roster),
        heads_(scene.heads),
        telling_(telling),
        orders_(scene) {}

  Policy* policy() const { return policy_; }  // nullptr: the built-in
  // A number that changes with the policy.
  uint32_t number() const { return number_; }
  bool hears(bool (Policy::*what)() const) const {
    return policy_ != nullptr && (policy_->*what)();
  }
  SmFamily family() const { return policy_ != nullptr ? policy_->family() : SmFamily{}; }
  Orders& orders() { return orders_; }
  const Orders& orders() const { return orders_; }

  // Puts a Shadow before the policy, or the policy back in its place.
  void put(Policy* policy) { policy_ = policy; }
  // Starts `next`, the successor of `live`. False: it cannot take over that one's state, or
  // faulted.
  bool start(Policy& next, Policy* live);
  // Adopts the policy that was started last, or nullptr. Nothing is left of the one before.
  void adopt(Policy* next);
  bool take_quarantined() { return std::exchange(quarantined_, false); }
  const LastWords& last_words() const { return last_words_; }

  // Hooks that return an allowance.
  void allowance(Client& client, AllowanceVerdict (Policy::*hook)(Gpu&, ClientId));
  void exit(const Client& client);
  KernelVerdict kernel(const Client& client, uint32_t kernel);
  void started(const Client& client, const Work& work);
  void stopped(const Client& client, const Work& work, float measured_us);
  bool enqueue(uint32_t slot);  // true: it is to run at once
  DispatchVerdict dispatch() {
    return policy_ != nullptr ? policy_->dispatch(orders_) : DispatchVerdict{};
  }
  void tick();
  TimeNs tick_deadline() const;

  // True for a fault, which it counts: past fault_max within fault_span_us the policy is dropped
  // for the built-in, which then owns every waiting launch.
  bool faulted(HookResult result);

 private:
  void drop();

  Situation& now_;
  const Roster& roster_;
  Heads& heads_;
  const Telling& telling_;
  Orders orders_;
  Policy* policy_ = nullptr;
  uint32_t number_ = 1;
  Queues started_queues_;  // of a policy that was started, and not yet adopted
  std::deque<TimeNs> faults_;
  bool quarantined_ = false;
  LastWords last_words_;
  TimeNs tick_at_ = 0;  // when the next tick is due
};

}  // namespace heddle::core
