#include "daemon/core/telling.h"

#include <algorithm>
#include <cmath>

namespace heddle::core {
namespace {

// A prediction is told to the client when it moves by this much.
constexpr double kHintChange = 0.05;

}  // namespace

Decision Telling::make(DecisionKind kind, const Client& c) const {
  Decision d;
  d.kind = kind;
  d.device = now_.config.device;
  d.at = now_.clock;
  d.client = c.id;
  return d;
}

void Telling::grant(const Decision& d) {
  decisions_.push_back(d);
  recent_[recent_count_++ % recent_.size()] = d;
}

void Telling::allowance(Client& c, bool bypass) {
  c.standing.opening.graph &= !c.standing.gated();
  Decision d = make(DecisionKind::kAllowance, c);
  const bool by_policy = c.standing.choice.any(now_.clock);
  d.decider = bypass ? Decider::kBypass : by_policy ? Decider::kPolicy : Decider::kBuiltin;
  d.allowed = c.standing.allowed;
  d.gates_soon = c.standing.gates_soon;
  d.gates_inside = c.standing.gates_inside;
  d.kernels_ask = c.standing.kernels_ask;
  d.managed = c.standing.choice.refused ? 0 : 1;
  d.launch_priority = c.launch_priority(now_.config);
  d.sm_set = c.place.cut_set;
  d.ring = c.place.ring;
  d.sizes = c.place.family.sizes;
  decisions_.push_back(d);
}

void Telling::hint(Client& c, uint32_t kernel, uint8_t measure) {
  Kernel& k = c.known.kernels[kernel];
  const double us = k.stats->duration.longest_us();
  if (std::abs(us - k.hinted_us) <= kHintChange * k.hinted_us && measure == k.hinted_measure &&
      k.size == k.hinted_size && k.launch_priority == k.hinted_priority) {
    return;
  }
  k.hinted_size = k.size;
  k.hinted_priority = k.launch_priority;
  k.hinted_us = static_cast<float>(us);
  k.hinted_measure = measure;
  Decision d = make(DecisionKind::kHint, c);
  d.kernel = kernel;
  d.predicted_us = k.hinted_us;
  d.measure = measure;
  d.size = k.size;
  d.raised = k.launch_priority != kBuiltinPriority;
  if (d.raised) d.launch_priority = static_cast<int8_t>(k.launch_priority);
  decisions_.push_back(d);
}

std::vector<Decision> Telling::last_grants() const {
  std::vector<Decision> all;
  for (uint64_t i = recent_count_ - std::min<uint64_t>(recent_count_, recent_.size());
       i < recent_count_; ++i) {
    all.push_back(recent_[i % recent_.size()]);
  }
  return all;
}

}  // namespace heddle::core
