// The sizes and launch priorities that the policy gives the kernels of clients: a kernel is asked
// about as it is first seen, as it is known better, and once under each policy.
#pragma once

#include "daemon/core/seat.h"

namespace heddle::core {

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

}  // namespace heddle::core
