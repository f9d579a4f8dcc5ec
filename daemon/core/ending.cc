// A policy's end by its faults.
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

void Scheduler::State::end_policy() {
  last_words = {clock, policy->dump(*this), {}, {}};
  for (const Queue& queue : queues) {
    last_words.queues.push_back({std::string(queue.name()), queue.size()});
  }
  for (uint64_t i = recent_count - std::min<uint64_t>(recent_count, recent.size());
       i < recent_count; ++i) {
    last_words.decisions.push_back(recent[i % recent.size()]);
  }
  policy->exit(*this, Ending::kFaulted);
  policy = nullptr;
}

}  // namespace heddle::core
