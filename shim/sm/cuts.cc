#include "shim/sm/cuts.h"

#include <algorithm>

#include "shim/sm/pages.h"

namespace heddle::shim {
namespace {

// A graph in a topological order: the node at each place, and the place of each node.
struct Order {
  std::span<uint32_t> node, place;
  std::span<uint32_t> starts, targets;  // the edges of each node, by node
  std::span<uint32_t> waits_for;        // by node: edges from nodes without a place so far
};

// Kahn's algorithm. False: the edges have a cycle, or name nodes that are not there.
bool sort(Order& order, std::span<const GraphEdge> edges) {
  const auto count = static_cast<uint32_t>(order.node.size());
  for (const GraphEdge& edge : edges) {
    if (edge.from >= count || edge.to >= count) return false;
    ++order.starts[edge.from + 1];
    ++order.waits_for[edge.to];
  }
  for (uint32_t i = 0; i < count; ++i) order.starts[i + 1] += order.starts[i];
  std::span<uint32_t> filled = order.place;  // needed only later
  for (const GraphEdge& edge : edges) {
    order.targets[order.starts[edge.from] + filled[edge.from]++] = edge.to;
  }
  uint32_t known = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (order.waits_for[i] == 0) order.node[known++] = i;
  }
  for (uint32_t next = 0; next < known; ++next) {
    const uint32_t node = order.node[next];
    order.place[node] = next;
    for (uint32_t i = order.starts[node]; i < order.starts[node + 1]; ++i) {
      const uint32_t target = order.targets[i];
      if (--order.waits_for[target] == 0) order.node[known++] = target;
    }
  }
  return known == count;
}

}  // namespace

// A node is a cut if each node before it, in any topological order, has an edge to it or to one
// before it, and each node behind it has one from it or from one behind it. Then paths lead there.
size_t find_cuts(std::span<const uint32_t> kernels, std::span<const GraphEdge> edges, double piece,
                 std::span<uint32_t> cuts) {
  const size_t count = kernels.size();
  Pages pages((7 * count + 1 + edges.size()) * sizeof(uint32_t));
  if (count == 0 || !pages) return 0;
  Order order;
  order.node = pages.take<uint32_t>(count);
  order.place = pages.take<uint32_t>(count);
  order.starts = pages.take<uint32_t>(count + 1);
  order.targets = pages.take<uint32_t>(edges.size());
  order.waits_for = pages.take<uint32_t>(count);
  if (!sort(order, edges)) return 0;

  const auto first_after = pages.take<uint32_t>(count);  // nearest place that an edge leads to
  const auto last_before = pages.take<uint32_t>(count);  // nearest that an edge comes from, + 1
  const auto overlaps = pages.take<int32_t>(count);      // programmatic edges: begun less ended
  std::fill(first_after.begin(), first_after.end(), static_cast<uint32_t>(count));
  for (const GraphEdge& edge : edges) {
    const uint32_t from = order.place[edge.from], to = order.place[edge.to];
    first_after[from] = std::min(first_after[from], to);
    last_before[to] = std::max(last_before[to], from + 1);
    overlaps[from] += edge.programmatic;
    overlaps[to] -= edge.programmatic;
  }
  // From here on last_before[i] is the minimum over all nodes behind place i.
  uint32_t least = static_cast<uint32_t>(count);
  for (size_t i = count; i-- > 0;) {
    const uint32_t own = last_before[i];
    last_before[i] = least;
    least = std::min(least, own);
  }

  double left = 0, since = 0;
  for (const uint32_t of_node : kernels) left += of_node;
  uint32_t furthest = 0;  // the maximum of first_after over all nodes before
  int32_t across = 0;
  size_t found = 0;
  for (uint32_t i = 0; i < count && found < cuts.size(); ++i) {
    const uint32_t node = order.node[i];
    since += kernels[node];
    left -= kernels[node];
    across += overlaps[i];
    const bool cut = furthest <= i && last_before[i] > i && across == 0;
    if (cut && since >= piece && left > 0 && 2 * left >= piece) {
      cuts[found++] = node;
      since = 0;
    }
    furthest = std::max(furthest, first_after[i]);
  }
  return found;
}

}  // namespace heddle::shim
