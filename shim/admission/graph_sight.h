// Looks at a graph's nodes, and at those of its child graphs, when the graph is instantiated.
#pragma once

#include "shim/admission/node_counts.h"
#include "shim/driver/driver_api.h"

namespace heddle::shim {

// Whether a kernel of that name is a collective. It spins for its peers, so it is never held back.
bool is_exempt(const char* name);

class GraphSight {
 public:
  bool look_at(CUgraph graph, int depth = 0);  // false: the driver refused

  uint64_t hash() const { return hash_; }  // of the nodes' types, kernels and shapes
  uint64_t nodes() const { return nodes_; }
  bool exempt() const { return exempt_; }
  NodeCounts& kernels() { return kernels_; }

 private:
  // Nodes beyond these limits are only counted, as kernels that could not be inspected.
  static constexpr size_t kNodesMax = size_t{1} << 20;
  static constexpr int kDepthMax = 8;

  void look_at(CUgraphNode node, int depth);
  void look_at_kernel_of(CUgraphNode node);

  uint64_t hash_ = 0;
  uint64_t nodes_ = 0;
  bool exempt_ = false;
  NodeCounts kernels_;
};

}  // namespace heddle::shim
