// Counts the nodes of a graph by kernel and launch shape, while the graph is instantiated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/kernel_id.h"
#include "shim/driver/driver_api.h"

namespace heddle::shim {

struct NodeCount {
  void* handle;       // a CUfunction or a CUkernel
  CUcontext context;  // into which the CUkernel is loaded; nullptr: it is loaded, or nobody knows
  ipc::LaunchShape shape;
  uint32_t count;  // 0: a free place
};

// Its memory is its own mapping: stacks may be small, and the heap is the application's.
class NodeCounts {
 public:
  NodeCounts() = default;
  ~NodeCounts();
  NodeCounts(const NodeCounts&) = delete;
  NodeCounts& operator=(const NodeCounts&) = delete;

  void add(void* handle, CUcontext context, const ipc::LaunchShape& shape);
  // Nodes that nobody could look at: they may be kernels.
  void add_unseen(uint64_t nodes) { total_ += nodes; }
  uint64_t total() const { return total_; }
  // The most frequent first. Then no more can be added.
  std::span<const NodeCount> most_frequent(size_t most);

 private:
  static constexpr size_t kPlaces = 1024;  // the kernels beyond them are in the total alone
  static constexpr size_t kProbes = 16;

  NodeCount* places_ = nullptr;
  uint64_t total_ = 0;
};

}  // namespace heddle::shim
