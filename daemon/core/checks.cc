// The thorough checks: that what the Scheduler keeps twice agrees.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

void abort_on_broken(const Broken& broken) {
  std::fprintf(stderr, "%s:%d: this does not hold: %s\n", broken.file, broken.line,
               broken.invariant);
  std::abort();
}

void Scheduler::State::check() const {
  HEDDLE_CHECK(roster.all().size() == roster.ids().size());
  HEDDLE_CHECK(std::is_sorted(roster.ids().begin(), roster.ids().end()));
  const auto more_important = [](const Client* a, const Client* b) {
    return a->rule.priority < b->rule.priority;
  };
  HEDDLE_CHECK(std::is_sorted(roster.active().begin(), roster.active().end(), more_important));
  size_t asking = 0, at_work = 0, resident = 0;
  for (const auto& [id, client] : roster.all()) {
    const Client& c = *client;
    HEDDLE_CHECK(c.id == id);
    HEDDLE_CHECK(std::count(roster.active().begin(), roster.active().end(), &c) ==
                 (c.active ? 1 : 0));
    HEDDLE_CHECK(c.work.outstanding.empty() || c.active);
    HEDDLE_CHECK(c.gpu_time.had_us <= c.gpu_time.worked_us + 1);
    asking += c.asking.queued;
    at_work += c.active ? 1 : 0;
    resident += c.gpu_time.resident ? 1 : 0;
  }
  HEDDLE_CHECK(at_work == roster.active().size());
  HEDDLE_CHECK(resident == gpu_time.residents());
  HEDDLE_CHECK(asking == asks.count());
  check_waiting();
}

void Scheduler::State::check_waiting() const {
  size_t used = 0, placed = 0, queued = 0;
  for (const Waiting& w : asks.all()) {
    if (w.client == nullptr) continue;
    ++used;
    const auto found = roster.all().find(w.client->id);
    HEDDLE_CHECK(found != roster.all().end() && found->second.get() == w.client);
    HEDDLE_CHECK(w.thread < w.client->asking.by_thread.size() &&
                 &asks[w.client->asking.by_thread[w.thread]] == &w);
    HEDDLE_CHECK(w.queue < static_cast<int32_t>(seat.orders().queues().all().size()));
    placed += w.queue >= 0 ? 1 : 0;
  }
  for (const Queue& queue : seat.orders().queues().all()) queued += queue.size();
  HEDDLE_CHECK(used == asks.count());
  HEDDLE_CHECK(queued == placed);
}

}  // namespace heddle::core
