#include "daemon/core/queues.h"

#include <algorithm>

namespace heddle::core {

void Queue::insert(LaunchId launch, double key, uint64_t arrival, double predicted_us) {
  const auto before = [&](const Entry& e) {
    return e.key < key || (e.key == key && e.arrival < arrival);
  };
  const auto at = std::partition_point(entries_.begin(), entries_.end(), before);
  entries_.insert(at, {key, arrival, launch, predicted_us});
}

bool Queue::remove(LaunchId launch) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& e) { return e.launch == launch; });
  if (it == entries_.end()) return false;
  entries_.erase(it);
  return true;
}

LaunchId Queue::best_fit(double us) const {
  const Entry* best = nullptr;
  for (const Entry& e : entries_) {
    if (best != nullptr && e.key != best->key) break;
    if (e.predicted_us <= us && (best == nullptr || e.predicted_us > best->predicted_us)) best = &e;
  }
  return best != nullptr ? best->launch : 0;
}

}  // namespace heddle::core
