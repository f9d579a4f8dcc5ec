// What a graph's nodes are, those of its children included, while it is instantiated.
#pragma once

#include "shim/admission/node_counts.h"
#include "shim/driver/driver_api.h"

namespace heddle::shim {

// Whether a kernel of that name must never be held back: collectives spin for their peers.
bool is_exempt(const char* name);

class GraphSight {
 public:
  bool look_at(CUgraph graph, int depth = 0);  // false: the driver refused

  uint64_t hash() const { return hash_; }  // of types, kernels and shapes
  uint64_t nodes() const { return nodes_; }
  bool exempt() const { return exempt_; }
  NodeCounts& kernels() { return kernels_; }

 private:
  // The rest counts by number only, and so do graphs that are deeper down.
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
