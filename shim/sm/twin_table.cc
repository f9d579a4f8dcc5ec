#include "shim/sm/twin_table.h"

#include <algorithm>
#include <utility>

#include "shim/driver/driver.h"
#include "shim/sm/pages.h"

namespace heddle::shim {
namespace {

constexpr uint32_t kProbes = 32;
static_assert(kTwinned == 1 << 10);

uint32_t home_of(CUgraphExec exec) {
  return static_cast<uint32_t>((reinterpret_cast<uint64_t>(exec) * 0x9e3779b97f4a7c15u) >> 54);
}

constexpr int64_t kRestMinNs = 1'000'000'000, kRestMaxNs = 60'000'000'000;

}  // namespace

constinit Twinned twinned[kTwinned] = {};
constinit Spin twins_lock;
constinit uint32_t twins_made = 0, twin_nodes = 0;
constinit CUgraph clone_in_use = nullptr;
constinit bool clone_left = false;
constinit std::atomic<bool> twins_wanted{false};

Twinned* find_twinned(CUgraphExec exec) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    Twinned& entry = twinned[(home_of(exec) + i) % kTwinned];
    if (entry.exec.load(std::memory_order_acquire) == exec) return &entry;
    if (!entry.used.load(std::memory_order_acquire)) return nullptr;
  }
  return nullptr;
}

Twinned* free_twinned(CUgraphExec exec) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    Twinned& entry = twinned[(home_of(exec) + i) % kTwinned];
    if (entry.exec.load(std::memory_order_relaxed) == nullptr) return &entry;
  }
  return nullptr;
}

void count(const Inside& in, GraphFate fate) {
  if (in) in.count_graph(static_cast<unsigned>(fate));
}

Leavings::~Leavings() {
  for (const CUgraphExec twin : twins_) {
    if (twin != nullptr) HEDDLE_REAL(cuGraphExecDestroy)(twin);
  }
  if (clone_ != nullptr) HEDDLE_REAL(cuGraphDestroy)(clone_);
  if (tail_ != nullptr) HEDDLE_REAL(cuEventDestroy_v2)(tail_);
}

void end_twin(const Twinned& entry, TwinSlot& slot, Leavings& left) {
  end_twin(entry, slot, slot.twin.exchange(nullptr), left);
}

void end_twin(const Twinned& entry, TwinSlot& slot, CUgraphExec twin, Leavings& left) {
  slot.key.store(0, std::memory_order_relaxed);
  if (twin == nullptr) return;
  left.add(twin);
  uncount_twin(entry.nodes);
}

void uncount_twin(uint32_t nodes) {
  if (!holds(twins_made > 0 && twin_nodes >= nodes)) return;
  --twins_made;
  twin_nodes -= nodes;
}

void end_clone(Twinned& entry, Leavings& left) {
  for (TwinSlot& slot : entry.twins) end_twin(entry, slot, left);
  const CUgraph clone = std::exchange(entry.clone, nullptr);
  if (clone != nullptr && clone == clone_in_use) {
    clone_left = true;
  } else {
    left.add(clone);
  }
}

void put_off(const Inside& in, Twinned& entry, GraphFate why) {
  if (entry.rest_ns == 0) count(in, why);
  entry.rest_ns = std::clamp(2 * entry.rest_ns, kRestMinNs, kRestMaxNs);
  entry.again_ns.store(now_ns() + entry.rest_ns, std::memory_order_relaxed);
}

CUresult visit_kernels(CUgraph graph, CUresult (*visit)(CUgraphNode, void*), void* data,
                       int depth) {
  size_t count = 0;
  CUresult result = HEDDLE_REAL(cuGraphGetNodes)(graph, nullptr, &count);
  if (result != CUDA_SUCCESS || count == 0) return result;
  Pages pages(count * sizeof(CUgraphNode));  // NOLINT(bugprone-sizeof-expression)
  if (!pages) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto nodes = pages.take<CUgraphNode>(count);
  result = HEDDLE_REAL(cuGraphGetNodes)(graph, nodes.data(), &count);
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    result = HEDDLE_REAL(cuGraphNodeGetType)(nodes[i], &type);
    CUgraph child = nullptr;
    if (result != CUDA_SUCCESS) break;
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL || type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      result = CUDA_ERROR_NOT_SUPPORTED;
    } else if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      result = visit(nodes[i], data);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      result = depth < kGraphDepthMost
                   ? HEDDLE_REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child)
                   : CUDA_ERROR_NOT_SUPPORTED;
      if (result == CUDA_SUCCESS) result = visit_kernels(child, visit, data, depth + 1);
    }
  }
  return result;
}

}  // namespace heddle::shim
