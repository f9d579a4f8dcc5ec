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
// False where the driver does not say what the pool reserves.
bool settle_pool(CUmemoryPool pool, int device);
// Pools shrink when the driver likes: looked at before anything is refused. False: there are none.
bool settle_pools(int device);

void note_graph(CUgraphExec exec, CUgraph graph);  // it was made of that
void drop_graph(CUgraphExec exec);
void forget_graphs();  // in a forked child

bool noted_graph_fits(CUgraphExec exec);
// False: its launch would pass the limit. Costs one load where no graph allocates.
inline bool graph_fits(CUgraphExec exec) {
  return !graphs_allocate.load(std::memory_order_relaxed) || noted_graph_fits(exec);
}

}  // namespace heddle::shim
