#include "daemon/server/metrics.h"

#include <algorithm>

namespace heddle::server {

static_assert(sizeof(core::Stats) == std::size(kDeviceMetrics) * sizeof(uint64_t),
              "a counter of the core has no row in kDeviceMetrics");
static_assert(sizeof(DaemonCounts) == std::size(kDaemonMetrics) * sizeof(uint64_t),
              "a counter of the daemon has no row in kDaemonMetrics");
static_assert(sizeof(PolicyCounts) == std::size(kPolicyMetrics) * sizeof(uint64_t),
              "a counter of policies has no row in kPolicyMetrics");

// Reads the counters in the client's memory. That is hostile, so each is read once, as a copy.
ClientCounts counts_of(const Client& client) {
  const ipc::ClientMemory& memory = client.memory();
  const auto read = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  const auto self = [&](wire::Admission admission) {
    return read(memory.counters.self[static_cast<size_t>(admission)]);
  };
  ClientCounts counts;
  counts.launches = read(memory.counters.launches);
  counts.starved = self(wire::Admission::SELF_STARVED);
  counts.stale = self(wire::Admission::SELF_STALE);
  counts.pool = self(wire::Admission::SELF_POOL);
  counts.capturing = self(wire::Admission::SELF_CAPTURING);
  counts.exempt = self(wire::Admission::SELF_EXEMPT);
  counts.bypass = self(wire::Admission::BYPASS);
  counts.unmanaged = self(wire::Admission::UNMANAGED);
  counts.forced = client.gates_forced();
  counts.threads = std::min(read(memory.counters.threads_used), ipc::kThreads);
  for (uint32_t t = 0; t < counts.threads; ++t) counts.dropped += read(memory.threads[t].dropped);
  counts.marker_errors = read(memory.counters.marker_errors);
  counts.on_sm_set = read(memory.counters.on_sm_set);
  counts.off_sm_set = read(memory.counters.off_sm_set);
  counts.green_streams = read(memory.counters.green_streams);
  counts.twin_launches = read(memory.counters.twin_launches);
  // In the order of shim/sm/twins.h.
  const uint64_t graphs = read(memory.counters.graphs);
  uint64_t* const fates[] = {&counts.graph_twins,    &counts.graphs_not_cloned,
                             &counts.graphs_device,  &counts.graphs_cooperative,
                             &counts.graphs_updated, &counts.graphs_refused,
                             &counts.graphs_full,    &counts.broken_checks};
  for (size_t i = 0; i < std::size(fates); ++i) *fates[i] = graphs >> (8 * i) & 0xff;
  counts.malformed = client.intake().malformed();
  return counts;
}

}  // namespace heddle::server
