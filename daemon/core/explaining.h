// Records why launches wait, and answers `heddle explain` (explain.h).
#pragma once

#include <span>
#include <string>

#include "daemon/core/heads.h"
#include "daemon/core/queues.h"
#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Explaining {
 public:
  Explaining(const Situation& now, const Roster& roster, const Heads& heads)
      : now_(now), roster_(roster), heads_(heads) {}

  // The number, which outlives the policy, of its verdict's reason `own`. nullptr: the built-in.
  uint16_t reason(const Policy* policy, uint16_t own);
  void forget_policy() { reasons_.forget_policy(); }
  // No waiting launch may go: the policy said IDLE for that reason, or the built-in found none.
  void held(const Saw& saw, uint32_t generation, uint16_t reason, bool by_policy);
  // A launch that waited is let go.
  void granted(Client& client, const Head& ask, Decider decider, uint16_t reason) const;

  // `queues`, `generation`: of the present policy.
  Explanation of(const Client& client, std::span<const Queue> queues, uint32_t generation) const;

 private:
  std::string why_builtin(const Head& ask) const;
  HeldTold tell(const Held& what) const;

  const Situation& now_;
  const Roster& roster_;
  const Heads& heads_;
  Reasons reasons_;
  Held held_;
};

}  // namespace heddle::core
