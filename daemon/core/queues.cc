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

}  // namespace heddle::core
