// The promises to all clients: what a launch costs the clients above it, and whether their accounts
// can pay (budget.h has the account of one client).
#pragma once

#include "daemon/core/budget.h"
#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Promises {
 public:
  Promises(const Situation& now, const Roster& roster, const GpuTime& gpu_time)
      : now_(now), roster_(roster), gpu_time_(gpu_time) {}

  void set_model(const DeviceModel& model) {
    model_ = model;
    prices_ = {};
    ++uses_;
  }
  // Promises that others slow the client by no more than that.
  void promise(Client& client, const SlowdownMax& slowdown_max);
  void forget(const Client& client);  // the client leaves
  bool any() const { return promised_ > 0; }

  void pass(double us);  // time passes, and accounts refill
  // Work of the client goes to the GPU: charges the accounts above it.
  void charge(Client& client, const Work& work);
  // Whether all promises above the client can afford its launch, which is predicted to take `us`.
  BudgetVerdict afford(const Client& by, uint32_t kernel, double us, SmSet set);

  // The predicted slowdown beside all clients at work; infinite: the estimator cannot tell.
  double slowdown(const Client& victim) const;
  // The part of the channel's nominal peak that the clients at work leave.
  double channel_left(Channel channel) const;

  // Sets a kernel's use of each channel: computed from its measured metrics, or as given.
  void learn_use(KernelStats& stats, const ipc::KernelMetrics& metrics);
  void set_use(KernelStats& stats, const Use& use);
  // A number that changes whenever more is known of any kernel's use.
  uint64_t uses() const { return uses_; }
  // Computes a graph's use from its kernels, as far as those were measured. True: its metrics
  // changed.
  bool learn_nodes(Kernel& graph, std::span<const GraphPart> parts);
  // The kernel's use if it takes `us` here; nullptr: it was never measured.
  const Use* use_here(const Kernel& kernel, double us);

 private:
  double gap_for(const Client& victim, double own_us) const;
  Price price(const Client& victim, const Client& by, uint32_t kernel, double us, SmSet set,
              double gap_us);

  const Situation& now_;
  const Roster& roster_;
  const GpuTime& gpu_time_;
  DeviceModel model_;
  PriceCache prices_;
  uint64_t uses_ = 1;
  uint32_t promised_ = 0;  // clients with a promise
};

// The ceilings of all clients: how much of a channel rules let them use beside others (ceiling.h
// has the account of one client).
//
// A client with a ceiling is gated while another client is active. While it owes, its waiting
// launch is withheld from the policy (Head::withheld).
class Ceilings {
 public:
  Ceilings(const Situation& now, const Roster& roster, Promises& promises)
      : now_(now), roster_(roster), promises_(promises) {}

  void limit(Client& client, const ChannelMax& max);
  void forget(const Client& client);  // the client leaves
  bool any() const { return limited_ > 0; }
  // Whether the client has a ceiling, and another client is active.
  bool limits(const Client& client) const {
    return client.ceiling.any() && !now_.bypass && beside(client);
  }
  bool holds(const Client& client) const { return limits(client) && client.ceiling.owes_us() > 0; }

  void pass(double us);  // time passes, and accounts refill
  // Work of the client goes to the GPU; give_back() returns the part that it did not do after all.
  void spend(Client& client, const Work& work);
  void give_back(Client& client, const Work& work, double ran_us);

 private:
  bool beside(const Client& client) const;
  void spend(Client& client, uint32_t kernel, double us);

  const Situation& now_;
  const Roster& roster_;
  Promises& promises_;
  uint32_t limited_ = 0;  // clients that have a ceiling
};

}  // namespace heddle::core
