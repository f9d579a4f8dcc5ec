// Allowances: how each client may launch, as the policy chose, or the built-in.
#pragma once

#include "daemon/core/kernel_sizes.h"
#include "daemon/core/progress.h"

namespace heddle::core {

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
