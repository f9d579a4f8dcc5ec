// Allowances: how each client may launch, by the policy's choice or the built-in's.
#pragma once

#include "daemon/core/client/client.h"
#include "daemon/core/progress.h"
#include "daemon/core/scheduler.h"
#include "daemon/core/seat.h"

namespace heddle::core {

// The built-in default: a client's allowance if no policy chooses one.
//
// The most important active clients launch freely, all equals at the top (FIKIT case C). Clients
// below are granted one unit at a time while no client above has work outstanding.
// `active`, `attached`: the highest priority of an active, and of an attached client. Below Q4 even
// the most important client has tickets beside others, so that its submitted work can be held once
// a client above comes. If its streams cannot wait (`recalled` is false), its launches can be held
// only in its threads, and little of them goes ahead of time (Pauses).
inline Allowance builtin_allowance(const Client& client, int active, int attached, bool recalled,
                                   const Config& config) {
  constexpr int kLeasedLowest = 4;
  const int priority = client.rule.priority;
  if (active < priority) return Allowance::kGated;
  if (priority <= kLeasedLowest || config.alone) return Allowance::kLeased;
  return recalled || attached >= priority ? Allowance::kOpen : Allowance::kGated;
}

// The driver has six levels of launch priority for ten priorities: Q0..Q4 get -5..-1, and Q5..Q9
// get 0, the default of programs. Only under MPS do kernels of two processes compete for SMs.
inline int8_t builtin_launch_priority(int priority, const Config& config) {
  constexpr int kHighest = -5;
  if (!config.mps || !config.launch_priorities || priority >= -kHighest) return 0;
  return static_cast<int8_t>(kHighest + priority);
}

// The SM set sizes and launch priorities that the policy gives single kernels. The policy is asked
// about a kernel when it is first seen, when more is known of it, and once under each policy.
class KernelSizes {
 public:
  KernelSizes(Situation& now, const Roster& roster, Learning& learning, Promises& promises,
              Seat& seat)
      : now_(now), roster_(roster), learning_(learning), promises_(promises), seat_(seat) {}

  void ask_anew(Client& client, uint32_t kernel);
  // Asks unless the present policy was asked already with all that is known of the kernel.
  void ask_about(Client& client, uint32_t kernel);
  // The same for the kernels of all clients, after a change of the policy.
  void ask_about_all();

 private:
  void ask(Client& client, uint32_t kernel);

  Situation& now_;
  const Roster& roster_;
  Learning& learning_;
  Promises& promises_;
  Seat& seat_;
};

class Allowances {
 public:
  Allowances(Situation& now, const Roster& roster, const Places& places, const Ceilings& ceilings,
             Telling& telling, const Seat& seat, KernelSizes& sizes, Progress& progress)
      : now_(now),
        roster_(roster),
        places_(places),
        ceilings_(ceilings),
        telling_(telling),
        seat_(seat),
        sizes_(sizes),
        progress_(progress) {}

  bool due() const { return now_.allowances_dirty || now_.clock >= lent_until_; }
  TimeNs deadline() const { return lent_until_; }
  // Asks about kernels anew if that is due, and sends each allowance that has changed.
  void refresh();
  void refresh(Client& client);  // of one client
  // The client's allowance if the policy's choice were `choice`.
  Allowance of(const Client& client, const AllowanceChoice& choice) const;

 private:
  void send(Client& client, Allowance allowed);
  bool kernels_ask(const Client& client) const;

  Situation& now_;
  const Roster& roster_;
  const Places& places_;
  const Ceilings& ceilings_;
  Telling& telling_;
  const Seat& seat_;
  KernelSizes& sizes_;
  Progress& progress_;
  TimeNs lent_until_ = kNever;             // when the first lent allowance or kept_to ends
  int highest_attached_ = kPriorityCount;  // at the last refresh
};

}  // namespace heddle::core
