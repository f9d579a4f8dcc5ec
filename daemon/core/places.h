// Which SMs launches run on: each client's SM sets, and where a launch that asks is placed (KRISP
// section 4.3). client/outstanding.h has the pure functions.
#pragma once

#include "daemon/core/heads.h"
#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Places {
 public:
  Places(Situation& now, const Roster& roster) : now_(now), roster_(roster) {}

  // The client attaches under a policy that wants such sets. What it made before it keeps.
  void give_family(Client& client, const SmFamily& family, MadeSets made) const;
  // Of launches that have no place of their own: what its policy keeps it to, within its room;
  // empty: all that its rule gives it.
  SmSet standing_set(const Client& client) const;
  // The set of a launch that asks for `sm` SMs; empty if the policy named no size (0), or none that
  // it can have.
  SmSet place(const Client& client, const Head& ask, SmCount sm);
  // Of a family of live placement: the SMs of the set that it would get, if no more groups of it
  // have work of other clients than the family allows; else 0.
  SmCount free(const Client& client, const Head& ask, SmCount sm) const;
  // The set, wherever it would be placed.
  SmSet peek(const Client& client, const Head& ask, SmCount sm) const;

 private:
  // Isolated clients keep to the groups up to the next one that is at work; empty: it is none.
  SmSet isolated_set(const Client& client) const;
  GroupCount even_share(GroupCount of) const;
  GroupLoad load(const Client* but) const;
  SmSet live_set(const Client& client, const GroupLoad& load, GroupCount size) const;

  Situation& now_;
  const Roster& roster_;
};

}  // namespace heddle::core
