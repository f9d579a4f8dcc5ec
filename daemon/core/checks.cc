#include "daemon/core/checks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace heddle::core {
namespace {

void check_waiting(const Situation& now, const Roster& roster, const Heads& heads,
                   std::span<const Queue> queues) {
  size_t used = 0, placed = 0, queued = 0;
  for (const Head& w : heads.all()) {
    if (w.client == nullptr) continue;
    ++used;
    const auto found = roster.all().find(w.client->id);
    HEDDLE_CHECK_IN(now, found != roster.all().end() && found->second.get() == w.client);
    HEDDLE_CHECK_IN(now, w.client->head.any() && &heads[w.client->head.slot] == &w);
    HEDDLE_CHECK_IN(now, w.queue < static_cast<int32_t>(queues.size()));
    placed += w.queue >= 0 ? 1 : 0;
  }
  for (const Queue& queue : queues) queued += queue.size();
  HEDDLE_CHECK_IN(now, used == heads.count());
  HEDDLE_CHECK_IN(now, queued == placed);
}

}  // namespace

void abort_on_broken(const Broken& broken) {
  std::fprintf(stderr, "%s:%d: this does not hold: %s\n", broken.file, broken.line,
               broken.invariant);
  std::abort();
}

void check(const Situation& now, const Roster& roster, const GpuTime& gpu_time, const Heads& heads,
           std::span<const Queue> queues) {
  HEDDLE_CHECK_IN(now, roster.all().size() == roster.ids().size());
  HEDDLE_CHECK_IN(now, std::is_sorted(roster.ids().begin(), roster.ids().end()));
  const auto more_important = [](const Client* a, const Client* b) {
    return a->rule.priority < b->rule.priority;
  };
  HEDDLE_CHECK_IN(now,
                  std::is_sorted(roster.active().begin(), roster.active().end(), more_important));
  size_t head = 0, wanting = 0, at_work = 0, resident = 0;
  for (const auto& [id, client] : roster.all()) {
    const Client& c = *client;
    HEDDLE_CHECK_OF(now, id, c.id == id);
    HEDDLE_CHECK_OF(
        now, id,
        std::count(roster.active().begin(), roster.active().end(), &c) == (c.active ? 1 : 0));
    HEDDLE_CHECK_OF(now, id, c.work.outstanding.empty() || c.active);
    HEDDLE_CHECK_OF(now, id, c.gpu_time.had_us <= c.gpu_time.worked_us + 1);
    head += c.head.any() ? 1 : 0;
    wanting += c.wants() ? 1 : 0;
    at_work += c.active ? 1 : 0;
    resident += c.gpu_time.resident ? 1 : 0;
  }
  HEDDLE_CHECK_IN(now, at_work == roster.active().size());
  HEDDLE_CHECK_IN(now, resident == gpu_time.residents());
  HEDDLE_CHECK_IN(now, head == heads.count());
  HEDDLE_CHECK_IN(now, wanting == heads.wanting());
  check_waiting(now, roster, heads, queues);
}

}  // namespace heddle::core
