// Kernel identity: (handle, launch shape) -> the client's kernel index.
//
// A look-up takes no lock. First sight is the slow path: name and attributes from the driver, the
// kernel ID, one message to the daemon. Handles are reused after a module is unloaded, so its
// entries are purged there; indices are never reused, and a kernel that comes back gets its own.
#pragma once

#include <atomic>

#include "ipc/kernel_id.h"
#include "shim/driver/calls.h"
#include "shim/link/inside.h"

namespace heddle::shim {

struct KernelRef {
  uint32_t index = ipc::kNoKernel;
  bool exempt = false;  // must never be held back: a rank of a collective
};

// Kernels of the client, by index.
class KernelSet {
 public:
  bool has(uint32_t kernel) const {
    return kernel < ipc::kKernels &&
           (words_[kernel / 64].load(std::memory_order_relaxed) >> (kernel % 64) & 1) != 0;
  }
  void add(uint32_t kernel) {
    if (kernel >= ipc::kKernels || has(kernel)) return;
    words_[kernel / 64].fetch_or(uint64_t{1} << (kernel % 64), std::memory_order_relaxed);
  }
  void remove(uint32_t kernel) {
    if (!has(kernel)) return;
    words_[kernel / 64].fetch_and(~(uint64_t{1} << (kernel % 64)), std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> words_[ipc::kKernels / 64] = {};
};

// `handle` is a CUfunction, a CUkernel or, with `graph`, a CUgraphExec.
KernelRef kernel_of(const Inside& in, void* handle, const ipc::LaunchShape& shape, bool graph);

// The same of what was launched before; no index at first sight. The shape in words of two fields,
// as it lies, so that all of it stays in registers.
KernelRef known_kernel(void* handle, uint64_t grid_xy, uint64_t grid_z_block_x, uint64_t block_yz,
                       uint64_t smem_cluster);
inline KernelRef known_kernel(void* handle, const ipc::LaunchShape& shape) {
  const auto two = [](uint32_t a, uint32_t b) { return uint64_t{b} << 32 | a; };
  return known_kernel(handle, two(shape.grid[0], shape.grid[1]), two(shape.grid[2], shape.block[0]),
                      two(shape.block[1], shape.block[2]),
                      two(shape.dynamic_smem_bytes, shape.cluster_blocks));
}

// The same question without a session: by what was seen before, or by the kernel's name.
bool is_collective(void* handle, const ipc::LaunchShape& shape, bool graph);

// False: no launch of it with such blocks can succeed. For what the driver refused, which goes once
// more if that may have been for the shim's sake: each refusal stands in the application's log.
bool is_possible(void* handle, const ipc::LaunchShape& shape);

// Gives an instantiated graph its identity: its nodes' types, kernels and shapes, its
// children's too, hashed.
void name_graph(CUgraphExec exec, CUgraph graph);

void purge_module(CUmodule module);
void purge_handle(void* handle);
void purge_kernels();   // a library or a context is gone
void forget_kernels();  // in a forked child

// Whether the session's daemon was not told of all kernels.
bool kernels_untold(const Session& session);

// Tells it of the next one; 0, or the error: -EAGAIN while the socket is full. Helper thread.
int tell_kernel(Session& session);

}  // namespace heddle::shim
