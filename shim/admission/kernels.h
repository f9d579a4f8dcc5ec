// Kernel identity: (handle, launch shape) -> the client's kernel index.
//
// A look-up takes no lock. The first sight of a kernel is the slow path, with a short lock: the
// shim asks the driver for name and attributes, makes the kernel ID and tells the daemon. The
// driver reuses handles after a module is unloaded, so the module's entries are purged then.
// Indices are never reused: a kernel that is loaded again gets the index that it had.
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

// A set of the client's kernels, by index.
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

// The same for a kernel that was seen before; kNoKernel at first sight. The shape comes as words of
// two fields each, as it lies in memory, so that all of it stays in registers.
KernelRef known_kernel(void* handle, uint64_t grid_xy, uint64_t grid_z_block_x, uint64_t block_yz,
                       uint64_t smem_cluster);
inline KernelRef known_kernel(void* handle, const ipc::LaunchShape& shape) {
  const auto two = [](uint32_t a, uint32_t b) { return uint64_t{b} << 32 | a; };
  return known_kernel(handle, two(shape.grid[0], shape.grid[1]), two(shape.grid[2], shape.block[0]),
                      two(shape.block[1], shape.block[2]),
                      two(shape.dynamic_smem_bytes, shape.cluster_blocks));
}

// Whether a launch is exempt, without a session: by an earlier look, or by the kernel's name.
bool is_collective(void* handle, const ipc::LaunchShape& shape, bool graph);

// False: no launch with such blocks can succeed. Asked after the driver refused a launch that the
// shim changed: the shim launches it once more only if the change may have been the reason. Each
// refusal is an entry in the application's error log.
bool is_possible(void* handle, const ipc::LaunchShape& shape);

// Gives an instantiated graph its identity: a hash of its nodes' types, kernels and shapes, with
// those of its child graphs.
void name_graph(CUgraphExec exec, CUgraph graph);

void purge_module(CUmodule module);
void purge_handle(void* handle);
void purge_kernels();   // a library or a context is gone
void forget_kernels();  // in a forked child

// Whether the session's daemon has yet to be told of some kernels.
bool kernels_untold(const Session& session);

// Tells the daemon of the next kernel. 0, or the error: -EAGAIN while the socket is full. Called by
// the helper thread.
int tell_kernel(Session& session);

}  // namespace heddle::shim
