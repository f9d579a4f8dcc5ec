// Pauses: waiting launches that are too early are hidden from the policy's queues (Head::early).
// There are three kinds:
// - A launch of a client that is stopped (stops.h).
// - A long unit at a gate, as soon as the clients above pause: the pause must have lasted first.
// - A launch whose thread waits, far ahead of the GPU, while no client above works: once it went it
//   cannot be held, and one may come. Not if a policy gated its client.
#pragma once

#include "daemon/core/sight.h"

namespace heddle::core {

class Pauses {
 public:
  explicit Pauses(const Scene& scene)
      : now_(scene.now), roster_(scene.roster), heads_(scene.heads), busy_time_(scene.busy_time) {}

  // Decides for each waiting launch whether it is early. Returns the µs until the first of them is
  // not any more; kUnlimitedUs: none is, or none will be by time alone.
  double keep_back();
  // The number of early launches, without those that a ceiling withholds.
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
