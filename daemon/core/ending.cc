// A policy's end by its faults.
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

void Scheduler::State::end_policy() {
  last_words = {clock, policy->dump(*this), {}, {}};
  for (const Queue& queue : queues) {
    last_words.queues.push_back({std::string(queue.name()), queue.size()});
  }
  last_words.decisions = telling.last_grants();
  policy->exit(*this, Ending::kFaulted);
  policy = nullptr;
}

}  // namespace heddle::core
