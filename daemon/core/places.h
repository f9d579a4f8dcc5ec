// Places: the SMs on which launches run. Each client's SM sets, and the set that a granted launch
// gets (KRISP section 4.3). client/outstanding.h has the pure functions.
#pragma once

#include "daemon/core/heads.h"
#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Places {
 public:
  Places(Situation& now, const Roster& roster) : now_(now), roster_(roster) {}

  // The client attaches under a policy that wants such sets. It keeps sets that it has made before.
  void give_family(Client& client, const SmFamily& family, MadeSets made) const;
  // The set of launches without a set of their own: the client's room, or what the policy keeps it
  // to within that. Empty: all SMs that its rule gives it.
  SmSet standing_set(const Client& client) const;
  // The set of a launch for which the policy wants `sm` SMs. Empty: the policy named no size (0),
  // or one that the client cannot have.
  SmSet place(const Client& client, const Head& ask, SmCount sm);
  // With live placement: the SMs of the set that the launch would get, if not more of its groups
  // have work of other clients than the family's overlap allows; else 0.
  SmCount free(const Client& client, const Head& ask, SmCount sm) const;
  // A set of the size that the launch would get, without live placement.
  SmSet peek(const Client& client, const Head& ask, SmCount sm) const;

 private:
  // The groups of an isolated client: up to the next active client's anchor. Empty: not isolated.
  SmSet isolated_set(const Client& client) const;
  GroupCount even_share(GroupCount of) const;
  GroupLoad load(const Client* but) const;
  SmSet live_set(const Client& client, const GroupLoad& load, GroupCount size) const;

  Situation& now_;
  const Roster& roster_;
};

}  // namespace heddle::core
