// Queues of waiting launches, by ascending key, ties by turn. Policies make and fill them.
//
// A queue is a sorted vector. It holds one entry per waiting client, so a few dozen, and moving
// 40-byte entries is faster than any tree there. A queue allocates only when it is longer than ever
// before.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/policy.h"

namespace heddle::core {

class Queue {
 public:
  explicit Queue(std::string_view name) : name_(name) { entries_.reserve(64); }

  std::string_view name() const { return name_; }
  size_t size() const { return entries_.size(); }
  void insert(LaunchId launch, double key, double turn_us, uint64_t arrival, double predicted_us);
  bool remove(LaunchId launch);
  // The launch at that place, from 0, among those for which ready(LaunchId) is true; 0: none.
  template <class Ready>
  LaunchId peek(size_t place, Ready&& ready) const {
    for (const Entry& e : entries_) {
      if (ready(e.launch) && place-- == 0) return e.launch;
    }
    return 0;
  }

  // FIKIT's BestPrioFit (Algorithm 2): of the launches that fit and are ready(LaunchId), the
  // longest predicted time among those of the lowest key.
  template <class Ready>
  LaunchId best_fit(double us, Ready&& ready) const {
    const Entry* best = nullptr;
    for (const Entry& e : entries_) {
      if (best != nullptr && e.key != best->key) break;
      const bool longer = best == nullptr || e.predicted_us > best->predicted_us;
      if (e.predicted_us <= us && longer && ready(e.launch)) best = &e;
    }
    return best != nullptr ? best->launch : 0;
  }

 private:
  struct Entry {
    double key, turn_us;
    uint64_t arrival;
    LaunchId launch;
    double predicted_us;
  };
  std::string name_;
  std::vector<Entry> entries_;
};

// All queues of one policy. `place`: the caller's variable with the number of the launch's queue;
// -1: it is in none.
class Queues {
 public:
  QueueId create(std::string_view name);  // the same name gives the same queue
  // False: there is no such queue. A launch that is in another is moved.
  bool insert(QueueId queue, int32_t& place, LaunchId launch, double key, double turn_us,
              uint64_t arrival, double predicted_us);
  void remove(LaunchId launch, int32_t& place);
  void clear() { queues_.clear(); }

  template <class Ready>
  LaunchId peek(QueueId queue, size_t place, Ready&& ready) const {
    return queue < queues_.size() ? queues_[queue].peek(place, ready) : 0;
  }
  template <class Ready>
  LaunchId best_fit(QueueId queue, double us, Ready&& ready) const {
    return queue < queues_.size() ? queues_[queue].best_fit(us, ready) : 0;
  }
  size_t size(QueueId queue) const { return queue < queues_.size() ? queues_[queue].size() : 0; }
  std::span<const Queue> all() const { return queues_; }

 private:
  std::vector<Queue> queues_;
};

}  // namespace heddle::core
