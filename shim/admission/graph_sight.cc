#include "shim/admission/graph_sight.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "shim/driver/driver.h"

namespace heddle::shim {
namespace {

ipc::LaunchShape shape_of(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  ipc::LaunchShape shape{{p.gridDimX, p.gridDimY, p.gridDimZ},
                         {p.blockDimX, p.blockDimY, p.blockDimZ},
                         p.sharedMemBytes};
  CUlaunchAttributeValue value{};
  if (HEDDLE_REAL(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                                 &value) == CUDA_SUCCESS) {
    const auto& cluster = value.clusterDim;
    shape.cluster_blocks = std::max(1u, cluster.x * cluster.y * cluster.z);
  }
  return shape;
}

}  // namespace

bool is_exempt(const char* name) {
  for (const char* part : {"ncclDevKernel", "ncclKernel", "ncclSym", "nvshmem", "allreduce",
                           "all_reduce", "cross_device_reduce"}) {
    if (strcasestr(name, part) != nullptr) return true;
  }
  return false;
}

bool GraphSight::look_at(CUgraph graph, int depth) {
  size_t count = 0;
  if (HEDDLE_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS) return false;
  nodes_ += count;
  hash_ = depth == 0 ? count : XXH3_64bits_withSeed(&count, sizeof count, hash_);
  size_t seen = std::min(count, kNodesMax);
  const size_t bytes = seen * sizeof(CUgraphNode);  // NOLINT(bugprone-sizeof-expression)
  if (seen == 0) return true;
  // The array is mapped: the thread's stack may be small, and the heap is the application's.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    kernels_.add_unseen(count);
    return true;
  }
  const auto nodes = static_cast<CUgraphNode*>(memory);
  if (HEDDLE_REAL(cuGraphGetNodes)(graph, nodes, &seen) != CUDA_SUCCESS) seen = 0;
  // A handle is a pointer.
  seen = std::min(seen, bytes / sizeof(CUgraphNode));  // NOLINT(bugprone-sizeof-expression)
  for (size_t i = 0; i < seen; ++i) look_at(nodes[i], depth);
  kernels_.add_unseen(count - seen);
  munmap(memory, bytes);
  return true;
}

void GraphSight::look_at(CUgraphNode node, int depth) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
  if (HEDDLE_REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) {
    return kernels_.add_unseen(1);
  }
  hash_ = XXH3_64bits_withSeed(&type, sizeof type, hash_);
  exempt_ |= type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  CUgraph child = nullptr;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    const bool seen = depth < kDepthMax &&
                      HEDDLE_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS;
    if (!seen || !look_at(child, depth + 1)) kernels_.add_unseen(1);
  }
  // The driver shows the bodies of a conditional node only to the code that made the node.
  if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) kernels_.add_unseen(1);
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) look_at_kernel_of(node);
}

void GraphSight::look_at_kernel_of(CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  if (HEDDLE_REAL(cuGraphKernelNodeGetParams_v2)(node, &params) != CUDA_SUCCESS) {
    return kernels_.add_unseen(1);
  }
  hash_ = XXH3_64bits_withSeed(&params.gridDimX, 7 * sizeof(unsigned), hash_);
  void* const handle = params.func != nullptr ? static_cast<void*>(params.func) : params.kern;
  kernels_.add(handle, params.func != nullptr ? nullptr : params.ctx, shape_of(node, params));
  const char* name = nullptr;
  const bool named = params.func != nullptr
                         ? HEDDLE_REAL(cuFuncGetName)(&name, params.func) == CUDA_SUCCESS
                         : HEDDLE_REAL(cuKernelGetName)(&name, params.kern) == CUDA_SUCCESS;
  if (!named || name == nullptr) return;
  hash_ = XXH3_64bits_withSeed(name, strlen(name), hash_);
  exempt_ |= is_exempt(name);
}

}  // namespace heddle::shim
