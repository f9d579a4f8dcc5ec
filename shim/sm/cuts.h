// Cuts: nodes that every other node of a graph precedes or follows. When a cut is done, all nodes
// before it are done, and none behind it has begun. So a gate behind a cut holds up a single
// branch, whatever branches the graph has elsewhere.
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

// Writes the nodes behind which a gate is to stand, in the graph's order, and returns how many. A
// gate stands behind each cut with at least `piece` kernels since the last gate, unless less than
// half a piece is left. `kernels`: the number of each node. 0 also if the edges have a cycle.
size_t find_cuts(std::span<const uint32_t> kernels, std::span<const GraphEdge> edges, double piece,
                 std::span<uint32_t> cuts);

}  // namespace heddle::shim
