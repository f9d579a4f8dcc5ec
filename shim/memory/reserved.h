// Device memory that is reserved and grows by itself: that of pools and of graphs. The account
// follows what the driver says of it.
//
// The launch of a graph that allocates is refused where not even the least that it needs has room.
// That least is noted when the graph is instantiated, and found by a launch without a lock.
#pragma once

#include <atomic>

#include "shim/driver/driver_api.h"

namespace heddle::shim {

// The process has made nodes that allocate: then its graphs' memory is looked at.
extern constinit std::atomic<bool> graphs_allocate;

void settle_graphs(int device);  // a negative one: nothing

// Pools. One that is null is the device's current one.
// While one stands no other thread asks a pool anything: so none is asked once it is destroyed.
class PoolsHeld {
 public:
  PoolsHeld();
  ~PoolsHeld();
  PoolsHeld(const PoolsHeld&) = delete;
  PoolsHeld& operator=(const PoolsHeld&) = delete;
};
// That pool; null where the driver does not say what it reserves.
CUmemoryPool settle_pool(CUmemoryPool pool, int device);
// Before anything is refused: what they keep and do not use is given back, as the driver does by
// itself before it says that memory is out. Waits for no kernel. False: there are none.
bool trim_pools(int device);
// What lies free in the pool costs nothing new.
bool pool_has_room(CUmemoryPool pool, int device, uint64_t bytes);

void note_graph(CUgraphExec exec, CUgraph graph);  // it was made of that
void drop_graph(CUgraphExec exec);
void forget_reserved();  // in a forked child

bool noted_graph_fits(CUgraphExec exec);
// False: its launch would pass the limit. Costs one load where no graph allocates.
inline bool graph_fits(CUgraphExec exec) {
  return !graphs_allocate.load(std::memory_order_relaxed) || noted_graph_fits(exec);
}

}  // namespace heddle::shim
