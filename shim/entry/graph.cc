// Entry points of executable graphs: they are named and cloned as they are instantiated, launched
// in turn, and go on without twins once the application changes them.
#include "shim/admission/gate.h"
#include "shim/admission/unobserved.h"
#include "shim/driver/driver.h"
#include "shim/sm/twins.h"

namespace heddle::shim {
namespace {

template <bool kPerThread>
CUresult launch_graph(CUgraphExec exec, CUstream stream) {
  const auto real = kPerThread ? HEDDLE_REAL(cuGraphLaunch_ptsz) : HEDDLE_REAL(cuGraphLaunch);
  const StreamRef ref{stream, kPerThread};
  if (goes_unobserved(exec)) return real(in_order(exec, ref, nullptr), stream);
  Launch launch{ref, exec, {}};
  launch.graph = true;
  Turn turn(launch);
  const CUgraphExec chosen = in_order(exec, ref, turn.twin());
  CUresult result = real(chosen, stream);
  if (result != CUDA_SUCCESS && chosen != exec) {
    result = real(exec, stream);
    if (result == CUDA_SUCCESS) turn.twin_refused(exec);
  }
  return turn.launched(result);
}

CUresult instantiated(CUresult result, const CUgraphExec* exec, CUgraph graph, uint64_t flags) {
  if (result != CUDA_SUCCESS || exec == nullptr || !is_initialized()) return result;
  name_graph(*exec, graph);
  clone_graph(*exec, graph, flags);
  return result;
}

// CUDA_GRAPH_INSTANTIATE_PARAMS begins with its flags.
uint64_t flags_of(const void* params) {
  return params != nullptr ? *static_cast<const uint64_t*>(params) : 0;
}

template <class Real, class... Arguments>
CUresult update(Real real, CUgraphExec exec, Arguments... arguments) {
  if (is_initialized()) graph_updated(exec);
  return real(exec, arguments...);
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
    graph_ends(exec);
    purge_handle(exec);
  }
  return HEDDLE_REAL(cuGraphExecDestroy)(exec);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* node,
                           int* result) noexcept {
  return update(HEDDLE_REAL(cuGraphExecUpdate), exec, graph, node, result);
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void* result) noexcept {
  return update(HEDDLE_REAL(cuGraphExecUpdate_v2), exec, graph, result);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const void* params) noexcept {
  return update(HEDDLE_REAL(cuGraphExecKernelNodeSetParams), exec, node, params);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const void* params) noexcept {
  return update(HEDDLE_REAL(cuGraphExecKernelNodeSetParams_v2), exec, node, params);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params,
                                        CUcontext context) noexcept {
  return update(HEDDLE_REAL(cuGraphExecMemcpyNodeSetParams), exec, node, params, context);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params,
                                        CUcontext context) noexcept {
  return update(HEDDLE_REAL(cuGraphExecMemsetNodeSetParams), exec, node, params, context);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const void* params) noexcept {
  return update(HEDDLE_REAL(cuGraphExecHostNodeSetParams), exec, node, params);
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            CUgraph child) noexcept {
  return update(HEDDLE_REAL(cuGraphExecChildGraphNodeSetParams), exec, node, child);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                            CUevent event) noexcept {
  return update(HEDDLE_REAL(cuGraphExecEventRecordNodeSetEvent), exec, node, event);
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                          CUevent event) noexcept {
  return update(HEDDLE_REAL(cuGraphExecEventWaitNodeSetEvent), exec, node, event);
}
CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                          const void* params) noexcept {
  return update(HEDDLE_REAL(cuGraphExecExternalSemaphoresSignalNodeSetParams), exec, node, params);
}
CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                        const void* params) noexcept {
  return update(HEDDLE_REAL(cuGraphExecExternalSemaphoresWaitNodeSetParams), exec, node, params);
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const void* params) noexcept {
  return update(HEDDLE_REAL(cuGraphExecBatchMemOpNodeSetParams), exec, node, params);
}
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, void* params) noexcept {
  return update(HEDDLE_REAL(cuGraphExecNodeSetParams), exec, node, params);
}
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) noexcept {
  return update(HEDDLE_REAL(cuGraphNodeSetEnabled), exec, node, enabled);
}

}  // extern "C"
