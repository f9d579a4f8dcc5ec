// Memory that pools and graphs reserve. The driver grows it by itself, so the account takes over
// the sizes that the driver reports.
//
// The launch of a graph that allocates is refused if the limit has no room for the least memory
// that the graph needs. That is noted when the graph is instantiated, and a launch finds it without
// a lock.
#pragma once

#include <atomic>

#include "shim/driver/driver_api.h"

namespace heddle::shim {

// The process has made graph nodes that allocate. Until then the shim asks for no graph memory.
extern constinit std::atomic<bool> graphs_allocate;

// Updates the account with the driver's size of the graphs' memory. A negative device: nothing.
void settle_graphs(int device);

// Pools. A null pool means the device's current one.
//
// While a PoolsHeld exists, no other thread of the shim calls the driver for a pool: none may be
// asked about once it is destroyed.
class PoolsHeld {
 public:
  PoolsHeld();
  ~PoolsHeld();
  PoolsHeld(const PoolsHeld&) = delete;
  PoolsHeld& operator=(const PoolsHeld&) = delete;
};
// Updates the account with the pool's reserved size, and returns the pool; null: the driver does
// not tell the size.
CUmemoryPool settle_pool(CUmemoryPool pool, int device);
// Has the device's pools give back unused memory, before an allocation is refused. The driver does
// the same before it reports that it is out of memory. Waits for no kernel. False: no pools.
bool trim_pools(int device);
// Whether the pool has so many unused bytes, so that an allocation reserves nothing new.
bool pool_has_room(CUmemoryPool pool, int device, uint64_t bytes);

void note_graph(CUgraphExec exec, CUgraph graph);  // `exec` was instantiated from `graph`
void drop_graph(CUgraphExec exec);
void forget_reserved();  // in a forked child

bool noted_graph_fits(CUgraphExec exec);
// False: the graph's launch would exceed the limit. Costs one load while no graph allocates.
inline bool graph_fits(CUgraphExec exec) {
  return !graphs_allocate.load(std::memory_order_relaxed) || noted_graph_fits(exec);
}

}  // namespace heddle::shim
