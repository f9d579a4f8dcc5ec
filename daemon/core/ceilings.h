// The ceilings of all clients (ceiling.h has the account of one): what rules let them use of a
// channel beside others.
//
// A client with a ceiling asks for each launch while another is active. Its launches meet the
// policy once it owes nothing; until then they wait here (Head::withheld).
#pragma once

#include "daemon/core/promises.h"

namespace heddle::core {

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
