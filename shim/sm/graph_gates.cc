#include "shim/sm/graph_gates.h"

#include <algorithm>

#include "ipc/gate_sizes.h"
#include "shim/driver/driver.h"
#include "shim/gate/page.h"
#include "shim/sm/cuts.h"
#include "shim/sm/pages.h"
#include "shim/sm/twin_table.h"

namespace heddle::shim {
namespace {

// Each gate costs 2.6 µs on an H100, and a node. A longer graph has longer pieces instead.
constexpr size_t kGatesMost = 1024;

// A graph's nodes and edges as the driver tells them, and room for its cuts.
struct Topology {
  CUgraph graph = nullptr;
  size_t nodes = 0, edges = 0;

  CUresult size_up() {
    const CUresult result = HEDDLE_REAL(cuGraphGetNodes)(graph, nullptr, &nodes);
    if (result != CUDA_SUCCESS) return result;
    return HEDDLE_REAL(cuGraphGetEdges_v2)(graph, nullptr, nullptr, nullptr, &edges);
  }
  size_t bytes() const {
    return nodes * (sizeof(CUgraphNode) + sizeof(uint32_t)) +  // NOLINT(bugprone-sizeof-expression)
           edges * (2 * sizeof(CUgraphNode) +                  // NOLINT(bugprone-sizeof-expression)
                    sizeof(CUgraphEdgeData) + sizeof(GraphEdge)) +
           kGatesMost * sizeof(uint32_t);
  }
};

uint32_t kernels_in(CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (HEDDLE_REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return 0;
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) return 1;
  CUgraph child = nullptr;
  uint32_t kernels = 0;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
      HEDDLE_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS) {
    for_each_kernel(child, [&](CUgraphNode) { return ++kernels, CUDA_SUCCESS; });
  }
  return kernels;
}

bool is_plain(const CUgraphEdgeData& edge) {
  return edge.from_port == 0 && edge.to_port == 0 && edge.type == 0;
}

// Adds a gate between `cut` and each node to which it has an edge, by `froms` and `tos`. The gate
// replaces these edges: with both, a kernel would wait for two nodes, and be launched like one
// where branches join.
CUresult add_gate(CUgraph graph, const CUDA_BATCH_MEM_OP_NODE_PARAMS& wait, CUgraphNode cut,
                  std::span<const CUgraphNode> froms, std::span<const CUgraphNode> tos) {
  CUgraphNode gate = nullptr;
  CUresult result = HEDDLE_REAL(cuGraphAddBatchMemOpNode)(&gate, graph, &cut, 1, &wait);
  for (size_t i = 0; result == CUDA_SUCCESS && i < froms.size(); ++i) {
    if (froms[i] != cut) continue;
    result = HEDDLE_REAL(cuGraphAddDependencies)(graph, &gate, &tos[i], 1);
    if (result == CUDA_SUCCESS) {
      result = HEDDLE_REAL(cuGraphRemoveDependencies)(graph, &cut, &tos[i], 1);
    }
  }
  return result;
}

}  // namespace

CUdeviceptr gate_of(GateBook& book, int device) {
  const CUdeviceptr at = page_at(book, device);
  const size_t word =
      offsetof(ipc::GatePage, running) + sizeof(uint32_t) * static_cast<size_t>(device);
  return at != 0 ? at + word : 0;
}

CUresult add_gates(CUgraph graph, CUcontext context, CUdeviceptr word, float span_us,
                   uint16_t& gates) {
  if (word == 0 || !driver_has(kEntry_cuGraphGetEdges_v2)) return CUDA_ERROR_NOT_SUPPORTED;
  Topology all{graph};
  CUresult result = all.size_up();
  if (result != CUDA_SUCCESS || all.edges == 0) return result;
  Pages pages(all.bytes());
  if (!pages) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto nodes = pages.take<CUgraphNode>(all.nodes);
  const auto froms = pages.take<CUgraphNode>(all.edges);
  const auto tos = pages.take<CUgraphNode>(all.edges);
  const auto data = pages.take<CUgraphEdgeData>(all.edges);
  const auto edges = pages.take<GraphEdge>(all.edges);
  const auto kernels = pages.take<uint32_t>(all.nodes);
  auto cuts = pages.take<uint32_t>(kGatesMost);
  result = HEDDLE_REAL(cuGraphGetNodes)(graph, nodes.data(), &all.nodes);
  if (result != CUDA_SUCCESS) return result;
  result =
      HEDDLE_REAL(cuGraphGetEdges_v2)(graph, froms.data(), tos.data(), data.data(), &all.edges);
  if (result != CUDA_SUCCESS) return result;
  std::sort(nodes.begin(), nodes.end());
  const auto index_of = [&](CUgraphNode node) {
    return static_cast<uint32_t>(std::lower_bound(nodes.begin(), nodes.end(), node) -
                                 nodes.begin());
  };
  for (size_t i = 0; i < edges.size(); ++i) {
    edges[i] = {index_of(froms[i]), index_of(tos[i]), !is_plain(data[i])};
  }
  double sum = 0;
  for (size_t i = 0; i < nodes.size(); ++i) sum += kernels[i] = kernels_in(nodes[i]);
  const double pieces = std::min<double>(span_us / ipc::kGatePieceUs, kGatesMost);
  cuts = cuts.first(find_cuts(kernels, edges, sum / pieces, cuts));

  CUstreamBatchMemOpParams runs{};
  runs.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  runs.waitValue.address = word;
  runs.waitValue.value = 1;
  runs.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS wait{context, 1, &runs, 0};
  for (const uint32_t cut : cuts) {
    result = add_gate(graph, wait, nodes[cut], froms, tos);
    if (result != CUDA_SUCCESS) return result;
  }
  gates = static_cast<uint16_t>(cuts.size());
  return CUDA_SUCCESS;
}

}  // namespace heddle::shim
