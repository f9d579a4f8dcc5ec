// The promises of all clients: what launches cost those above them, and who can afford them
// (budget.h has the account of one client).
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
  // The client is slowed by others by no more than that.
  void promise(Client& client, const SlowdownMax& slowdown_max);
  void forget(const Client& client);  // it leaves
  bool any() const { return promised_ > 0; }

  void pass(double us);  // accounts refill
  // Work of the client goes to the GPU.
  void charge(Client& client, const Work& work);
  // Whether all promises above the client can afford a launch of it that is predicted to take `us`.
  BudgetVerdict afford(const Client& by, uint32_t kernel, double us, SmSet set);

  // Predicted, beside all that are at work; infinite: the estimator cannot say.
  double slowdown(const Client& victim) const;
  // What those leave of the channel, of its nominal peak.
  double channel_left(Channel channel) const;

  // What was measured of a kernel, and so what it uses of each channel; or that itself.
  void learn_use(KernelStats& stats, const ipc::KernelMetrics& metrics);
  void set_use(KernelStats& stats, const Use& use);
  // Another one as soon as more is known of what any kernel uses.
  uint64_t uses() const { return uses_; }
  // A graph uses what its kernels use, as far as somebody measured them. True: its metrics are
  // others than before.
  bool learn_nodes(Kernel& graph, std::span<const GraphPart> parts);
  // What the kernel uses, taking `us` here; nullptr: nobody measured it.
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
  uint32_t promised_ = 0;  // clients that were promised something
};

// The ceilings of all clients (ceiling.h has the account of one): what rules let them use of a
// channel beside others.
//
// A client with a ceiling asks for each launch while another is active. Its launches meet the
// policy once it owes nothing; until then they wait here (Head::withheld).
class Ceilings {
 public:
  Ceilings(const Situation& now, const Roster& roster, Promises& promises)
      : now_(now), roster_(roster), promises_(promises) {}

  void limit(Client& client, const ChannelMax& max);
  void forget(const Client& client);  // it leaves
  bool any() const { return limited_ > 0; }
  // It has a ceiling, and another client is active.
  bool limits(const Client& client) const {
    return client.ceiling.any() && !now_.bypass && beside(client);
  }
  bool holds(const Client& client) const { return limits(client) && client.ceiling.owes_us() > 0; }

  void pass(double us);  // accounts refill
  // Work of the client goes to the GPU; or what it does not do after all comes back.
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
