// Where a graph may stand still: at nodes that every other node precedes or follows. All before
// such a node is done when it is, and nothing behind it has begun. So a gate there holds one branch
// only, whatever branches the graph has elsewhere.
//
// Any thread. Nothing here calls the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::shim {

struct GraphEdge {
  uint32_t from = 0, to = 0;  // nodes, by index
  bool programmatic = false;  // `to` may begin before `from` is done: no cut goes across it
};

// Writes the nodes behind which a gate is to stand, in the graph's order, and returns how many:
// behind each cut with at least `piece` kernels since the one before, unless less than half a piece
// is left. `kernels`: of each node. 0 also where the edges make no order.
size_t find_cuts(std::span<const uint32_t> kernels, std::span<const GraphEdge> edges, double piece,
                 std::span<uint32_t> cuts);

}  // namespace heddle::shim
