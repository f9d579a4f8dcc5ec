// Graphs that are looked at, cloned and changed before they are instantiated.
#include <algorithm>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

CUgraphNodeType type_of(const Node& node) {
  if (node.memory != 0) {
    return node.frees ? CU_GRAPH_NODE_TYPE_MEM_FREE : CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  }
  if (!node.mem_ops.empty()) return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  switch (node.command.kind) {
    case CommandKind::kKernel:
    case CommandKind::kMeet:
      return CU_GRAPH_NODE_TYPE_KERNEL;
    case CommandKind::kCopy:
      return CU_GRAPH_NODE_TYPE_MEMCPY;
    case CommandKind::kFill:
      return CU_GRAPH_NODE_TYPE_MEMSET;
    default:
      return CU_GRAPH_NODE_TYPE_EMPTY;
  }
}

Node* kernel_node(CUgraphNode handle) {
  Node* node = live<Node>(handle);
  return node != nullptr && node->function != nullptr ? node : nullptr;
}

// As the documentation has it: the same nodes in the same order, or the executable stays as it was.
CUresult update(CUgraphExec handle, CUgraph from_handle) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  const Graph* from = live<Graph>(from_handle);
  if (graph == nullptr || !graph->executable || from == nullptr || from->executable) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool alike = std::equal(graph->nodes.begin(), graph->nodes.end(), from->nodes.begin(),
                                from->nodes.end(), [](const Node& a, const Node& b) {
                                  return type_of(a) == type_of(b) && a.memory == b.memory;
                                });
  if (!alike) return kUpdateRefused;
  auto next = from->nodes.begin();
  for (Node& node : graph->nodes) {
    const uint64_t id = node.id;
    node = *next++;
    node.id = id;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuGraphClone(CUgraph* out, CUgraph handle) {
  HEDDLE_SIM_CALL(call);
  const Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(new Graph(*graph));
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes == nullptr) {
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  }
  std::fill_n(nodes, *count, nullptr);
  *count = std::min(*count, graph->nodes.size());
  auto node = graph->nodes.begin();
  for (size_t i = 0; i < *count; ++i) nodes[i] = reinterpret_cast<CUgraphNode>(&*node++);
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                                           CUgraphEdgeData* data, size_t* count) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable || count == nullptr ||
      (from == nullptr) != (to == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::map<uint64_t, CUgraphNode> handles;
  size_t found = 0;
  for (Node& node : graph->nodes) {
    handles[node.id] = reinterpret_cast<CUgraphNode>(&node);
    for (const uint64_t before : node.after) {
      if (from != nullptr && found < *count) {
        from[found] = handles[before];
        to[found] = handles[node.id];
        if (data != nullptr) data[found] = {};
      }
      ++found;
    }
  }
  return *count = from != nullptr ? std::min(*count, found) : found, CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode* from,
                                               const CUgraphNode* to, size_t count) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const auto is_either = [&](const Node& node) {
      return live<Node>(from[i]) == &node || live<Node>(to[i]) == &node;
    };
    // A row is run as it stands: only what leads on can be added.
    const auto first = std::find_if(graph->nodes.begin(), graph->nodes.end(), is_either);
    if (first == graph->nodes.end() || &*first != live<Node>(from[i])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    live<Node>(to[i])->after.push_back(first->id);
  }
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode* from,
                                                  const CUgraphNode* to, size_t count) {
  HEDDLE_SIM_CALL(call);
  const Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const Node* first = live<Node>(from[i]);
    Node* second = live<Node>(to[i]);
    if (first == nullptr || second == nullptr || std::erase(second->after, first->id) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  HEDDLE_SIM_CALL(call);
  const Node* node = live<Node>(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = type_of(*node);
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle,
                                                      CUDA_KERNEL_NODE_PARAMS_v2* out) {
  HEDDLE_SIM_CALL(call);
  Node* node = kernel_node(handle);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < std::size(node->values); ++i) node->parameters[i] = &node->values[i];
  auto* function = const_cast<Function*>(node->function);
  *out = {reinterpret_cast<CUfunction>(function),
          node->grid[0],
          node->grid[1],
          node->grid[2],
          node->block[0],
          node->block[1],
          node->block[2],
          node->command.kernel.shared_bytes,
          node->parameters,
          nullptr,
          reinterpret_cast<CUkernel>(function),
          node->context};
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle,
                                                      const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  HEDDLE_SIM_CALL(call);
  Node* node = kernel_node(handle);
  if (node == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_node(*node, *params);
}

HEDDLE_SIM_API CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                                      CUlaunchAttributeValue* out) {
  HEDDLE_SIM_CALL(call);
  const Node* node = kernel_node(handle);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = {};  // it is not cooperative, nor may the device update it
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) out->priority = node->priority;
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                                      const CUlaunchAttributeValue* value) {
  HEDDLE_SIM_CALL(call);
  Node* node = kernel_node(handle);
  if (node == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (id != CU_LAUNCH_ATTRIBUTE_PRIORITY) return unsupported("cuGraphKernelNodeSetAttribute");
  node->priority = value->priority;
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode*, int*) {
  return update(exec, graph);
}
HEDDLE_SIM_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void*) {
  return update(exec, graph);
}

HEDDLE_SIM_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node,
                                                          const void* params) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  const Node* wanted = kernel_node(node);  // of the graph that it was instantiated from
  if (graph == nullptr || !graph->executable || wanted == nullptr || params == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto found = std::find_if(graph->nodes.begin(), graph->nodes.end(),
                                  [&](const Node& own) { return own.id == wanted->id; });
  if (found == graph->nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  return change_node(*found, *static_cast<const CUDA_KERNEL_NODE_PARAMS_v2*>(params));
}
