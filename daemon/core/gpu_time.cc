// GPU time by client. A launch takes from its start to its end, whoever else is on the GPU in
// between: time-sliced in slices of its own, under MPS on other SMs. Added up over clients that is
// more time than there was. So time is divided first, among all clients that are resident, and what
// a client's launches took is counted as far as its part goes.
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

// Who is resident is known too late, and for too long, so that parts are left over: others may have
// used that time. Not long ago, though; so long a client is taken to be at work without evidence.
constexpr double kUnusedMaxUs = static_cast<double>(kEvidencePatienceNs) / 1e3;

}  // namespace

void Scheduler::State::collect_part(Client& c) {
  if (c.resident) c.part_us += part_us - c.part_at;
  c.part_at = part_us;
}

void Scheduler::State::set_resident(Client& c, bool resident) {
  if (c.resident == resident) return;
  collect_part(c);
  c.resident = resident;
  HEDDLE_CHECK(resident || residents > 0);
  residents += resident ? 1 : -1;
}

// Work of the client is done, and took so long. What is left of its part is for what it has on the
// GPU still, and what that will not need, for others.
void Scheduler::State::charge(Client& c, double us) {
  c.worked_us += us;
  collect_part(c);
  const double own = std::min(us, c.part_us);
  const double others = std::min(us - own, unused_us);
  c.gpu_us += own + others;
  c.part_us -= own;
  const double left = std::max(0.0, c.part_us - c.outstanding.predicted_us());
  c.part_us -= left;
  unused_us = std::min(unused_us - others + left, kUnusedMaxUs);
}

}  // namespace heddle::core
