// Entry points of executable graphs: a graph is named and cloned when it is instantiated, and
// launched through a Turn. When the application changes it, its twins are made anew, or end.
#include "shim/admission/gate.h"
#include "shim/admission/unobserved.h"
#include "shim/driver/driver.h"
#include "shim/memory/reserved.h"
#include "shim/sm/twins.h"

namespace heddle::shim {
namespace {

template <bool kPerThread>
CUresult launch_graph(CUgraphExec exec, CUstream stream) {
  const auto real = kPerThread ? HEDDLE_REAL(cuGraphLaunch_ptsz) : HEDDLE_REAL(cuGraphLaunch);
  const StreamRef ref{stream, kPerThread};
  if (!graph_fits(exec)) return CUDA_ERROR_OUT_OF_MEMORY;
  InOrder order(exec, ref);
  const auto launch = [&](CUgraphExec chosen) {
    order.before();
    return order.behind(real(chosen, stream), chosen);
  };
  if (goes_unobserved(exec)) return launch(exec);
  Launch wanted{ref, exec, {}};
  wanted.graph = true;
  Turn turn(wanted);
  const CUgraphExec twin = turn.twin();
  CUresult result = launch(twin != nullptr ? twin : exec);
  if (result != CUDA_SUCCESS && twin != nullptr) {
    result = launch(exec);
    if (result == CUDA_SUCCESS) turn.twin_refused(exec);
  }
  return turn.launched(result);
}

CUresult instantiated(CUresult result, const CUgraphExec* exec, CUgraph graph, uint64_t flags) {
  if (result != CUDA_SUCCESS || exec == nullptr || !is_initialized()) return result;
  note_graph(*exec, graph);
  name_graph(*exec, graph);
  graph_instantiated(*exec, graph, flags);
  return result;
}

// CUDA_GRAPH_INSTANTIATE_PARAMS begins with its flags.
uint64_t flags_of(const void* params) {
  return params != nullptr ? *static_cast<const uint64_t*>(params) : 0;
}

template <class Real, class... Arguments>
CUresult update(Real real, CUgraphExec exec, Arguments... arguments) {
  const CUresult result = real(exec, arguments...);
  if (result == CUDA_SUCCESS && is_initialized()) graph_changed(exec);
  return result;
}

template <class Real, class... Arguments>
CUresult update_all(Real real, CUgraphExec exec, CUgraph graph, Arguments... arguments) {
  const CUresult result = real(exec, graph, arguments...);
  if (result == CUDA_SUCCESS && is_initialized()) graph_updated(exec, graph);
  return result;
}

}  // namespace
}  // namespace heddle::shim

using namespace heddle::shim;

extern "C" {

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) noexcept {
  return launch_graph<false>(exec, stream);
}
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) noexcept {
  return launch_graph<true>(exec, stream);
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log,
                            size_t size) noexcept {
  return instantiated(HEDDLE_REAL(cuGraphInstantiate)(exec, graph, node, log, size), exec, graph,
                      0);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log,
                               size_t size) noexcept {
  return instantiated(HEDDLE_REAL(cuGraphInstantiate_v2)(exec, graph, node, log, size), exec, graph,
                      0);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long flags) noexcept {
  return instantiated(HEDDLE_REAL(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph,
                      flags);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, void* params) noexcept {
  return instantiated(HEDDLE_REAL(cuGraphInstantiateWithParams)(exec, graph, params), exec, graph,
                      flags_of(params));
}
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                           void* params) noexcept {
  return instantiated(HEDDLE_REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, params), exec,
                      graph, flags_of(params));
}
CUresult cuGraphExecDestroy(CUgraphExec exec) noexcept {
  if (is_initialized()) {
    drop_graph(exec);
    graph_ends(exec);
    purge_handle(exec);
  }
  return HEDDLE_REAL(cuGraphExecDestroy)(exec);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* node,
                           int* result) noexcept {
  return update_all(HEDDLE_REAL(cuGraphExecUpdate), exec, graph, node, result);
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void* result) noexcept {
  return update_all(HEDDLE_REAL(cuGraphExecUpdate_v2), exec, graph, result);
}
// `What` is the type of the argument beside the executable and the node.
#define HEDDLE_NODE_UPDATE(name, What)                                    \
  CUresult name(CUgraphExec exec, CUgraphNode node, What what) noexcept { \
    return update(HEDDLE_REAL(name), exec, node, what);                   \
  }
HEDDLE_NODE_UPDATE(cuGraphExecKernelNodeSetParams, const void*)
HEDDLE_NODE_UPDATE(cuGraphExecKernelNodeSetParams_v2, const void*)
HEDDLE_NODE_UPDATE(cuGraphExecHostNodeSetParams, const void*)
HEDDLE_NODE_UPDATE(cuGraphExecChildGraphNodeSetParams, CUgraph)
HEDDLE_NODE_UPDATE(cuGraphExecEventRecordNodeSetEvent, CUevent)
HEDDLE_NODE_UPDATE(cuGraphExecEventWaitNodeSetEvent, CUevent)
HEDDLE_NODE_UPDATE(cuGraphExecExternalSemaphoresSignalNodeSetParams, const void*)
HEDDLE_NODE_UPDATE(cuGraphExecExternalSemaphoresWaitNodeSetParams, const void*)
HEDDLE_NODE_UPDATE(cuGraphExecBatchMemOpNodeSetParams, const void*)
HEDDLE_NODE_UPDATE(cuGraphExecNodeSetParams, void*)
HEDDLE_NODE_UPDATE(cuGraphNodeSetEnabled, unsigned)

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params,
                                        CUcontext context) noexcept {
  return update(HEDDLE_REAL(cuGraphExecMemcpyNodeSetParams), exec, node, params, context);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params,
                                        CUcontext context) noexcept {
  return update(HEDDLE_REAL(cuGraphExecMemsetNodeSetParams), exec, node, params, context);
}

}  // extern "C"
