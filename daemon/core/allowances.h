// Allowances: how each client may launch, as the policy chose, or the built-in.
#pragma once

#include "daemon/core/client/client.h"
#include "daemon/core/progress.h"
#include "daemon/core/scheduler.h"
#include "daemon/core/seat.h"

namespace heddle::core {

// The built-in default: what happens where no policy speaks.
//
// Of the active clients the most important goes as it likes, equals at the top all do (FIKIT case
// C), everyone below is let go one unit at a time while nobody above has work outstanding.
// The standing allowance of a client, given the highest priority that is active, and that is
// attached. Below Q4 even the most important has tickets beside others: what it submitted is held
// once somebody above comes. Where it cannot be, since no stream of it waits (`recalled` is false),
// little of it goes ahead of time (Pauses).
inline Allowance builtin_allowance(const Client& client, int active, int attached, bool recalled,
                                   const Config& config) {
  constexpr int kLeasedLowest = 4;
  const int priority = client.rule.priority;
  if (active < priority) return Allowance::kGated;
  if (priority <= kLeasedLowest || config.alone) return Allowance::kLeased;
  return recalled || attached >= priority ? Allowance::kOpen : Allowance::kGated;
}

// Six levels of launch priority for ten queues: Q0..Q4 are -5..-1, Q5..Q9 are 0, which is what
// programs that set none have. Only under MPS do kernels of two processes compete for SMs.
inline int8_t builtin_launch_priority(int priority, const Config& config) {
  constexpr int kHighest = -5;
  if (!config.mps || !config.launch_priorities || priority >= -kHighest) return 0;
  return static_cast<int8_t>(kHighest + priority);
}

// The sizes and launch priorities that the policy gives the kernels of clients: a kernel is asked
// about as it is first seen, as it is known better, and once under each policy.
class KernelSizes {
 public:
  KernelSizes(Situation& now, const Roster& roster, Learning& learning, Promises& promises,
              Seat& seat)
      : now_(now), roster_(roster), learning_(learning), promises_(promises), seat_(seat) {}

  void ask_anew(Client& client, uint32_t kernel);
  // Unless the policy that there is now was asked already, by all that is known.
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
  // Asks about kernels anew where that is due, and sends each allowance that is another now.
  void refresh();
  void refresh(Client& client);  // its own alone
  // The client's, if the policy's choice were that.
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
  TimeNs lent_until_ = kNever;             // nothing lent ends before
  int highest_attached_ = kPriorityCount;  // as they were last refreshed
};

}  // namespace heddle::core
