// The bound: an upper limit for how much later a client runs because less important work was let
// into its gap.
//
// When the gap ends, only less important work in flight can delay the client. Under MPS, where the
// client's blocks are placed first, that is one wave of blocks; else it is all predicted time that
// is left. The cost of the switch is added, and the time until a client reports that work is done.
// A gap is exceeded if work that was in flight is seen to outlast the bound: a kernel that ran
// longer than predicted, or a launch of a client that was not gated. daemon/core/MEASURING.md, "The
// bound".
#pragma once

#include "daemon/core/roster.h"
#include "daemon/core/situation.h"

namespace heddle::core {

class Bounds {
 public:
  Bounds(Situation& now, const Roster& roster) : now_(now), roster_(roster) {}

  // The bound of a gap of the client that ends now; 0: no less important work is in flight.
  double bound_us(const Client& client) const;
  // The part of the client's work in flight that delays no other client: work on SM sets under MPS.
  double on_sets_us(const Client& client) const;
  void gap_ended(Client& client, TimeNs at);
  // Work of the client is seen to be done at `at`; the last before it was seen at `done_before`.
  void work_done(const Client& client, const Work& work, TimeNs at, float measured_us,
                 TimeNs done_before);

 private:
  bool goes_first(const Client& above, const Client& below) const;
  bool still_in_the_way(const Client& client) const;

  Situation& now_;
  const Roster& roster_;
};

}  // namespace heddle::core
