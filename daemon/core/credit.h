// Credit: predicted time beyond a granted unit that may follow it through its client's gates.
//
// What stands at gates on the GPU can be stopped, so that no gap's length matters: credit may be
// without end. That ends once somebody as important waits; any ends when somebody more important
// has work, unless it was given beside such work and has an end, when the promises above cannot
// afford a unit, and with every new allowance. So does the way of a graph with gates inside. A
// client with a ceiling has none while another is active.
#pragma once

#include "daemon/core/asks.h"
#include "daemon/core/ceilings.h"
#include "daemon/core/telling.h"

namespace heddle::core {

class Credit {
 public:
  Credit(Situation& now, const Roster& roster, const Asks& asks, Promises& promises,
         const Ceilings& ceilings, Telling& telling)
      : now_(now),
        roster_(roster),
        asks_(asks),
        promises_(promises),
        ceilings_(ceilings),
        telling_(telling) {}

  // To a unit that stood at a gate; says how much, as Decision::credit_us. A graph that goes
  // `whole` is not stopped inside any more.
  uint32_t give_at_gate(Client& client, const Waiting& unit, double us, bool whole);
  // It stood at a gate that stands open, or was of the unit that was granted.
  void use_at_gate(Client& client, uint32_t unit, Work& work);
  // What may not go on.
  void revoke();
  // When a graph that was let go for a piece may have to stop.
  TimeNs deadline() const;

 private:
  bool fits_gates(const Client& client, double us);
  bool may_go_on(const Client& client);  // what goes by its gates

  Situation& now_;
  const Roster& roster_;
  const Asks& asks_;
  Promises& promises_;
  const Ceilings& ceilings_;
  Telling& telling_;
  bool out_ = false;  // somebody may have some
};

}  // namespace heddle::core
