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

QueueId Queues::create(std::string_view name) {
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].name() == name) return static_cast<QueueId>(i);
  }
  queues_.emplace_back(name);
  return static_cast<QueueId>(queues_.size() - 1);
}

bool Queues::insert(QueueId queue, int32_t& place, LaunchId launch, double key, double turn_us,
                    uint64_t arrival, double predicted_us) {
  if (queue >= queues_.size()) return false;
  remove(launch, place);
  place = static_cast<int32_t>(queue);
  queues_[queue].insert(launch, key, turn_us, arrival, predicted_us);
  return true;
}

void Queues::remove(LaunchId launch, int32_t& place) {
  if (place >= 0 && static_cast<size_t>(place) < queues_.size()) {
    queues_[static_cast<size_t>(place)].remove(launch);
  }
  place = -1;
}

}  // namespace heddle::core
