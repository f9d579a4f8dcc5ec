// What is too early no policy sees in a queue (Head::early): a launch of a client that stands
// (stops.h). What stands at a gate and is long does not go as soon as those above pause: the pause
// must have lasted. And what waits in its thread, and cannot be held once it went, does not go far
// ahead of time while nobody above works: somebody may come. Unless a policy gated its client: that
// knows what it lets go.
#pragma once

#include "daemon/core/sight.h"

namespace heddle::core {

class Pauses {
 public:
  explicit Pauses(const Scene& scene)
      : now_(scene.now), roster_(scene.roster), heads_(scene.heads), busy_time_(scene.busy_time) {}

  // Says of each launch that waits whether it is early. In so many µs the first is so no more;
  // kUnlimitedUs: none is.
  double keep_back();
  // Of those that no ceiling withholds, so many are.
  size_t kept_back() const { return kept_back_; }

 private:
  double early_us(const Head& unit) const;  // 0: it may go now
  bool is_far_ahead(const Head& unit) const;

  const Situation& now_;
  const Roster& roster_;
  Heads& heads_;
  const BusyTime& busy_time_;
  size_t kept_back_ = 0;
};

}  // namespace heddle::core
