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
  CUcontext context;  // where the CUkernel will be loaded; nullptr: it is loaded, or unknown
  ipc::LaunchShape shape;
  uint32_t count;  // 0: a free place
};

// The table is a mapping of its own: stacks may be small, and the heap is the application's.
class NodeCounts {
 public:
  NodeCounts() = default;
  ~NodeCounts();
  NodeCounts(const NodeCounts&) = delete;
  NodeCounts& operator=(const NodeCounts&) = delete;

  void add(void* handle, CUcontext context, const ipc::LaunchShape& shape);
  // Counts nodes that the shim could not look at: they may be kernels.
  void add_unseen(uint64_t nodes) { total_ += nodes; }
  uint64_t total() const { return total_; }
  // Sorts the table, the most frequent kernels first. No more nodes can be added afterwards.
  std::span<const NodeCount> most_frequent(size_t most);

 private:
  static constexpr size_t kPlaces = 1024;  // kernels beyond them count in the total alone
  static constexpr size_t kProbes = 16;

  NodeCount* places_ = nullptr;
  uint64_t total_ = 0;
};

}  // namespace heddle::shim
