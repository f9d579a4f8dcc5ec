// Credit: predicted time beyond a granted launch that its thread may launch without asking.
//
// It is for what is left of a gap while nobody else asks for it, as far as the promises above can
// afford a launch of that length. It ends with its client's epoch, which the shim compares before
// each launch: when anybody more important has work again, when what is left of the gap would not
// hold it any more, when anybody waits, and with every change of the window. What was launched by
// then is in flight, as any grant is.
//
// What stands at gates on the GPU can be stopped, so that no gap's length matters: its credit may
// be without end. That ends as well once somebody as important waits; any ends when somebody more
// important has work, and when the promises above cannot afford a unit. So does the way of a graph
// with gates inside. A client with a ceiling has none while another is active.
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

  // Gives at most what the gap holds behind what its client has in flight; says how much, in whole
  // µs.
  double give(Client& client, Granted& granted, double us);
  // To a unit that stood at a gate; says how much, as Decision::credit_us. A graph that goes
  // `whole` is not stopped inside any more.
  uint32_t give_at_gate(Client& client, const Waiting& unit, double us, bool whole);
  // The launch is one by credit.
  void use(Client& client, uint16_t thread, Work& work);
  // It stood at a gate that stands open, or was of the unit that was granted.
  void use_at_gate(Client& client, uint32_t unit, Work& work);
  // What no longer fits its gap, or any if somebody waits whom no ceiling withholds.
  void revoke();
  // When some will not fit any more if its client launches nothing.
  TimeNs deadline() const;

 private:
  bool fits_its_gap(const Client& client) const;
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
