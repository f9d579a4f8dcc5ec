#include "daemon/core/queues.h"

#include <algorithm>
#include <tuple>

namespace heddle::core {

void Queue::insert(LaunchId launch, double key, double turn_us, uint64_t arrival,
                   double predicted_us) {
  const auto before = [&](const Entry& e) {
    return std::tie(e.key, e.turn_us, e.arrival) < std::tie(key, turn_us, arrival);
  };
  const auto at = std::partition_point(entries_.begin(), entries_.end(), before);
  entries_.insert(at, {key, turn_us, arrival, launch, predicted_us});
}

bool Queue::remove(LaunchId launch) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& e) { return e.launch == launch; });
  if (it == entries_.end()) return false;
  entries_.erase(it);
  return true;
}

}  // namespace heddle::core
