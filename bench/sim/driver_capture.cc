// Stream capture and graphs.
#include <algorithm>
#include <utility>

#include "bench/sim/driver.h"

namespace heddle::sim {

CUresult check_unsafe() {
  const Thread& thread = this_thread();
  if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool forbidden = false;
  for (Capture* capture : driver().captures) {
    const bool mine = capture->thread == thread.id;
    const bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    const bool hit = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                          : global && thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!hit) continue;
    capture->invalidated = true;
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult check_not_capturing(Stream* stream) {
  if (stream->capture == nullptr)
    return stream->legacy ? check_legacy(stream->context) : CUDA_SUCCESS;
  stream->capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_legacy(Context* context) {
  for (Stream* stream : context->streams) {
    if (stream->capture == nullptr || !stream->blocking) continue;
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

CUresult capture_node(Stream* stream, const Command& command) {
  Capture* capture = stream->capture;
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Node& node = capture->nodes.emplace_back();
  node.id = driver().next_id++;
  node.after = std::exchange(stream->captured, {node.id});
  node.command = command;
  auto& unjoined = capture->unjoined;
  const bool fork = stream != capture->origin;
  if (fork && std::find(unjoined.begin(), unjoined.end(), stream) == unjoined.end()) {
    unjoined.push_back(stream);
  }
  return CUDA_SUCCESS;
}

CUresult capture_record(Stream* stream, Event* event) {
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture_id = stream->capture->id;
  event->captured_on = stream;
  event->captured = stream->captured;
  return CUDA_SUCCESS;
}

// Waiting for an event of a capture draws the stream into it; waiting, inside a capture, for an
// event recorded outside is an error.
CUresult capture_wait(Stream* stream, Event* event) {
  const auto& captures = driver().captures;
  const auto of_event = std::find_if(captures.begin(), captures.end(), [&](const Capture* c) {
    return event->capture_id != 0 && c->id == event->capture_id;
  });
  if (of_event == captures.end()) {
    if (stream->capture == nullptr) return kCapturedEvent;
    stream->capture->invalidated = true;
    return static_cast<CUresult>(905);  // CUDA_ERROR_STREAM_CAPTURE_ISOLATION
  }
  Capture* capture = *of_event;
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr && stream->capture != capture) {
    stream->capture->invalidated = capture->invalidated = true;
    return kCaptureMerge;
  }
  if (stream->capture == nullptr) {
    stream->capture = capture;
    stream->captured.clear();
    capture->streams.push_back(stream);
    capture->unjoined.push_back(stream);
  }
  for (const uint64_t node : event->captured) {
    std::erase(stream->captured, node);
    stream->captured.push_back(node);
  }
  if (event->captured_on != stream) std::erase(capture->unjoined, event->captured_on);
  return CUDA_SUCCESS;
}

void end_capture(Capture* capture) {
  for (Stream* stream : capture->streams) stream->capture = nullptr;
  std::erase(driver().captures, capture);
  delete capture;
}

namespace {

CUresult begin(CUstream handle, CUstreamCaptureMode mode, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto* capture = new Capture;
  capture->id = driver().next_id++;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = this_thread().id;
  capture->streams.push_back(stream);
  stream->capture = capture;
  stream->captured.clear();
  driver().captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult end(CUstream handle, CUgraph* graph, NullStream null) {
  HEDDLE_SIM_CALL(call);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  *graph = nullptr;
  Capture* capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    capture->invalidated = true;
    return kCaptureUnmatched;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread().id) {
    return kCaptureWrongThread;
  }
  CUresult result = CUDA_SUCCESS;
  if (!capture->unjoined.empty()) result = kCaptureUnjoined;
  if (capture->invalidated) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (result == CUDA_SUCCESS) {
    auto* captured = new Graph;
    captured->nodes = std::move(capture->nodes);
    *graph = reinterpret_cast<CUgraph>(captured);
  }
  end_capture(capture);
  return result;
}

CUresult status(CUstream handle, CUstreamCaptureStatus* status, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream->legacy) return check_legacy(stream->context);
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  *status = stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* executable, CUgraph handle, unsigned long long flags = 0) {
  HEDDLE_SIM_CALL(call);
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if ((flags & ~kKnown) != 0) return unsupported("cuGraphInstantiateWithFlags");
  const Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable || executable == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* copy = new Graph(*graph);
  copy->executable = true;
  copy->node_priorities = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  *executable = reinterpret_cast<CUgraphExec>(copy);
  return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec handle, CUstream stream_handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  if (graph == nullptr || !graph->executable) return CUDA_ERROR_INVALID_VALUE;
  CUresult error;
  Stream* stream = find_stream(call, stream_handle, null, error);
  if (stream == nullptr) return error;
  error = reserve_for(*graph);
  const bool captured = stream->capture != nullptr;
  if (error == CUDA_SUCCESS && !captured && graph->last_slot != stream->slot &&
      driver().link.done(graph->last_slot) < graph->last_seq) {
    Command behind;
    behind.after_stream = graph->last_slot;
    behind.after_seq = graph->last_seq;
    error = issue(call, stream, behind);
  }
  if (error != CUDA_SUCCESS) return error;
  for (const Node& node : graph->nodes) {
    if (node.memory != 0) continue;
    if (!node.mem_ops.empty()) {
      error = issue_mem_ops(call, stream, node.mem_ops);
      if (error != CUDA_SUCCESS) return error;
      continue;
    }
    Command command = node.command;
    command.priority =
        graph->node_priorities && node.function != nullptr ? node.priority - stream->priority : 0;
    error = issue(call, stream, command);
    if (error != CUDA_SUCCESS) return error;
  }
  if (captured) return CUDA_SUCCESS;
  graph->last_slot = stream->slot;
  graph->last_seq = stream->issued;
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult destroy(Handle handle, bool executable) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable != executable) return CUDA_ERROR_INVALID_VALUE;
  graph->tag = 0;
  graph->nodes.clear();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, mode, NullStream::kLegacy);
}
HEDDLE_SIM_API CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, mode, NullStream::kPerThread);
}
HEDDLE_SIM_API CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return end(stream, graph, NullStream::kLegacy);
}
HEDDLE_SIM_API CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return end(stream, graph, NullStream::kPerThread);
}
HEDDLE_SIM_API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* out) {
  return status(stream, out, NullStream::kLegacy);
}
HEDDLE_SIM_API CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* out) {
  return status(stream, out, NullStream::kPerThread);
}

HEDDLE_SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  HEDDLE_SIM_CALL(call);
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                                    unsigned long long flags) {
  return instantiate(executable, graph, flags);
}
// The form before 12.0, still what a plain dlsym of this name finds.
HEDDLE_SIM_API CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, CUgraphNode*,
                                           char*, size_t) {
  return instantiate(executable, graph);
}
HEDDLE_SIM_API CUresult cuGraphInstantiate_v2(CUgraphExec* executable, CUgraph graph, CUgraphNode*,
                                              char*, size_t) {
  return instantiate(executable, graph);
}
HEDDLE_SIM_API CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return launch(graph, stream, NullStream::kLegacy);
}
HEDDLE_SIM_API CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  return launch(graph, stream, NullStream::kPerThread);
}
HEDDLE_SIM_API CUresult cuGraphExecDestroy(CUgraphExec graph) { return destroy(graph, true); }
HEDDLE_SIM_API CUresult cuGraphDestroy(CUgraph graph) { return destroy(graph, false); }
