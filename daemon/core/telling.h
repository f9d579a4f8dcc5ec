// The decisions of one step, in order, and the last grants of all.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "daemon/core/client/client.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Telling {
 public:
  explicit Telling(const Situation& now) : now_(now) { decisions_.reserve(256); }

  void begin() { decisions_.clear(); }
  std::span<const Decision> decisions() const { return decisions_; }

  // Of the client, now; whoever decides fills in the rest.
  Decision make(DecisionKind kind, const Client& client) const;
  void add(const Decision& decision) { decisions_.push_back(decision); }
  void grant(const Decision& decision);
  // What a grant let go on under the one before ends.
  void allowance(Client& client, bool bypass);
  // What the client does not know yet of its kernel; one in `measure` launches is to be timed.
  void hint(Client& client, uint32_t kernel, uint8_t measure);

  std::vector<Decision> last_grants() const;  // the oldest first

 private:
  const Situation& now_;
  std::vector<Decision> decisions_;
  std::array<Decision, kLastDecisions> recent_{};  // a ring of grants
  uint64_t recent_count_ = 0;
};

}  // namespace heddle::core
