// The bound: how much later a client may be served because others' work was let into its gap.
//
// What can be in the way when a gap ends is known then: it is less important and in flight. Under
// MPS, where the client's blocks go first, that is one wave of blocks; else all that is predicted
// to be left of it. To this come the cost of the switch and the time until anybody sees that work
// is done. A gap is exceeded if work that was in flight is seen to outlast that: a kernel that ran
// for longer than predicted, or one that nobody gated. daemon/core/MEASURING.md, "The bound".
#pragma once

#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Bounds {
 public:
  Bounds(Situation& now, const Roster& roster) : now_(now), roster_(roster) {}

  // Of a gap that ended now; 0: nothing is in the way.
  double bound_us(const Client& client) const;
  // Of what the client has in flight, what is in nobody's way.
  double on_sets_us(const Client& client) const;
  void gap_ended(Client& client, TimeNs at);
  // Work of the client is seen to be done at `at`, and the last before it at `done_before`.
  void work_done(const Client& client, const Work& work, TimeNs at, float measured_us,
                 TimeNs done_before);

 private:
  bool goes_first(const Client& above, const Client& below) const;
  bool still_in_the_way(const Client& client) const;

  Situation& now_;
  const Roster& roster_;
};

}  // namespace heddle::core
