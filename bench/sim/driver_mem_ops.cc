// Stream memory operations: waits for words and writes of them, alone, in batches and as nodes of
// graphs; host functions; and the registration of a program's own memory, which they may be in.
#include <algorithm>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

constexpr auto kAlreadyRegistered = static_cast<CUresult>(712);
constexpr auto kNotRegistered = static_cast<CUresult>(713);
constexpr unsigned kBatchMost = 256;

uint64_t number_of(const void* at) { return reinterpret_cast<uint64_t>(at); }

// That holds the whole range; else the end of the map.
auto find_registered(uint64_t at, uint64_t bytes) {
  auto& all = driver().registered;
  auto found = all.upper_bound(at);
  if (found == all.begin()) return all.end();
  --found;
  const uint64_t within = at - found->first;
  const bool inside = within <= found->second.bytes && bytes <= found->second.bytes - within;
  return inside ? found : all.end();
}

// Device memory, pinned memory, or registered memory; nullptr: none of them.
void* word_at(CUdeviceptr at, size_t bytes) {
  if (at % bytes != 0) return nullptr;
  if (find_registered(at, bytes) != driver().registered.end()) return reinterpret_cast<void*>(at);
  const uint64_t offset = locate(at, bytes);
  return offset != kNoHeap ? driver().link.heap() + offset : nullptr;
}

CUresult read_op(const CUstreamBatchMemOpParams& from, MemOp& op) {
  const auto type = from.operation;
  const bool waits =
      type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  op.wide = type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  if (!waits && type != CU_STREAM_MEM_OP_WRITE_VALUE_32 && !op.wide) {
    return unsupported("cuStreamBatchMemOp");
  }
  const auto& params = from.waitValue;  // a write's are alike
  if (params.flags > (waits ? CU_STREAM_WAIT_VALUE_NOR : 1U)) return CUDA_ERROR_INVALID_VALUE;
  op.kind = waits ? static_cast<MemOp::Kind>(params.flags) : MemOp::kWrite;
  op.value = op.wide ? params.value64 : params.value;
  op.word = word_at(params.address, op.wide ? 8 : 4);
  return op.word != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult read_ops(const CUstreamBatchMemOpParams* from, unsigned count, std::vector<MemOp>& ops) {
  if (from == nullptr || count == 0 || count > kBatchMost) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUresult error = read_op(from[i], ops.emplace_back());
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* from,
               unsigned flags, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<MemOp> ops;
  error = read_ops(from, count, ops);
  return error == CUDA_SUCCESS ? issue_mem_ops(call, stream, ops) : error;
}

CUresult one(CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags,
             CUstreamBatchMemOpType type, NullStream null) {
  CUstreamBatchMemOpParams params{};
  params.waitValue.operation = type;
  params.waitValue.address = at;
  params.waitValue.value64 = value;
  params.waitValue.flags = flags;
  return batch(stream, 1, &params, 0, null);
}

CUresult call_host(CUstream handle, void (*function)(void*), void* argument, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr) return unsupported("cuLaunchHostFunc");
  MemOp op;
  op.kind = MemOp::kCall;
  op.word = argument;
  op.call = function;
  return issue_mem_ops(call, stream, {op});
}

Lane* make_lane(uint16_t stream_slot) {
  if (Lane* const lane = driver().mem_ops.lane_for(stream_slot)) return lane;
  uint16_t slot;
  uint64_t issued;
  if (!open_slot(0, slot, issued)) return nullptr;
  return driver().mem_ops.make_lane(slot, issued, stream_slot);
}

CUresult read_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS* from, std::vector<MemOp>& ops) {
  if (from == nullptr || from->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (live<Context>(from->ctx) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_ops(from->paramArray, from->count, ops);
}

// Our graphs are rows of nodes: behind the last of those that it depends on.
CUresult add_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  if (graph == nullptr || graph->executable || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node node;
  const CUresult error = read_node(params, node.mem_ops);
  if (error != CUDA_SUCCESS) return error;
  auto place = graph->nodes.begin();
  for (size_t found = 0; found < count; ++place) {
    if (place == graph->nodes.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto is_it = [&](CUgraphNode wanted) { return live<Node>(wanted) == &*place; };
    found += static_cast<size_t>(std::count_if(after, after + count, is_it));
  }
  node.id = driver().next_id++;
  for (size_t i = 0; i < count; ++i) node.after.push_back(live<Node>(after[i])->id);
  *out = reinterpret_cast<CUgraphNode>(&*graph->nodes.insert(place, std::move(node)));
  return CUDA_SUCCESS;
}

CUresult change_executable(CUgraphExec handle, CUgraphNode node,
                           const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  HEDDLE_SIM_CALL(call);
  Graph* graph = live<Graph>(handle);
  const Node* wanted = live<Node>(node);  // of the graph that it was instantiated from
  if (graph == nullptr || !graph->executable || wanted == nullptr || wanted->mem_ops.empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<MemOp> ops;
  const CUresult error = read_node(params, ops);
  if (error != CUDA_SUCCESS) return error;
  const auto found = std::find_if(graph->nodes.begin(), graph->nodes.end(),
                                  [&](const Node& own) { return own.id == wanted->id; });
  if (found == graph->nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  found->mem_ops = std::move(ops);
  return CUDA_SUCCESS;
}

CUresult register_memory(void* pointer, size_t bytes, unsigned flags) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (pointer == nullptr || bytes == 0 || flags > 0xf) return CUDA_ERROR_INVALID_VALUE;
  const CUresult error = check_unsafe();
  if (error != CUDA_SUCCESS) return error;
  auto& all = driver().registered;
  const uint64_t at = number_of(pointer);
  const auto next = all.lower_bound(at);
  const bool before =
      next != all.begin() && at < std::prev(next)->first + std::prev(next)->second.bytes;
  if (before || (next != all.end() && next->first < at + bytes)) return kAlreadyRegistered;
  all[at] = {bytes, call.context()};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult issue_mem_ops(Call& call, Stream* stream, const std::vector<MemOp>& ops) {
  if (stream->capture != nullptr) {
    const CUresult error = capture_node(stream, {});
    if (error == CUDA_SUCCESS) stream->capture->nodes.back().mem_ops = ops;
    return error;
  }
  Driver& d = driver();
  const CUresult error = make_room(call, stream);
  if (error != CUDA_SUCCESS) return error;
  if (d.stop == nullptr) d.stop = make_lane(stream->slot);
  if (stream->lane == nullptr) stream->lane = make_lane(stream->slot);
  if (d.stop == nullptr || stream->lane == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  order(stream);
  Command hold;
  hold.after_stream = stream->lane->slot;
  hold.after_seq = d.mem_ops.promise(*stream->lane, stream->issued + 1, ops);
  push(stream, hold);
  return CUDA_SUCCESS;
}

}  // namespace heddle::sim

using namespace heddle::sim;

#define HEDDLE_MEM_OP(suffix, null)                                                           \
  HEDDLE_SIM_API CUresult cuStreamWaitValue32##suffix(CUstream stream, CUdeviceptr at,        \
                                                      uint32_t value, unsigned flags) {       \
    return one(stream, at, value, flags, CU_STREAM_MEM_OP_WAIT_VALUE_32, null);               \
  }                                                                                           \
  HEDDLE_SIM_API CUresult cuStreamWaitValue64##suffix(CUstream stream, CUdeviceptr at,        \
                                                      uint64_t value, unsigned flags) {       \
    return one(stream, at, value, flags, CU_STREAM_MEM_OP_WAIT_VALUE_64, null);               \
  }                                                                                           \
  HEDDLE_SIM_API CUresult cuStreamWriteValue32##suffix(CUstream stream, CUdeviceptr at,       \
                                                       uint32_t value, unsigned flags) {      \
    return one(stream, at, value, flags, CU_STREAM_MEM_OP_WRITE_VALUE_32, null);              \
  }                                                                                           \
  HEDDLE_SIM_API CUresult cuStreamWriteValue64##suffix(CUstream stream, CUdeviceptr at,       \
                                                       uint64_t value, unsigned flags) {      \
    return one(stream, at, value, flags, CU_STREAM_MEM_OP_WRITE_VALUE_64, null);              \
  }                                                                                           \
  HEDDLE_SIM_API CUresult cuStreamBatchMemOp##suffix(                                         \
      CUstream stream, unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags) { \
    return batch(stream, count, ops, flags, null);                                            \
  }
HEDDLE_MEM_OP(, NullStream::kLegacy)
HEDDLE_MEM_OP(_ptsz, NullStream::kPerThread)
HEDDLE_MEM_OP(_v2, NullStream::kLegacy)
HEDDLE_MEM_OP(_v2_ptsz, NullStream::kPerThread)

HEDDLE_SIM_API CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* argument) {
  return call_host(stream, function, argument, NullStream::kLegacy);
}
HEDDLE_SIM_API CUresult cuLaunchHostFunc_ptsz(CUstream stream, void (*function)(void*),
                                              void* argument) {
  return call_host(stream, function, argument, NullStream::kPerThread);
}

HEDDLE_SIM_API CUresult cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph,
                                                 const CUgraphNode* after, size_t count,
                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return add_node(out, graph, after, count, params);
}
HEDDLE_SIM_API CUresult cuGraphExecBatchMemOpNodeSetParams(
    CUgraphExec executable, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return change_executable(executable, node, params);
}

HEDDLE_SIM_API CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return register_memory(pointer, bytes, flags);
}
HEDDLE_SIM_API CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  return register_memory(pointer, bytes, flags);
}
HEDDLE_SIM_API CUresult cuMemHostUnregister(void* pointer) {
  HEDDLE_SIM_CALL(call);
  Context* context = call.context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error = check_unsafe();
  if (error != CUDA_SUCCESS) return error;
  if (driver().registered.count(number_of(pointer)) == 0) return kNotRegistered;
  error = drain_holding_up(call, context);
  driver().registered.erase(number_of(pointer));
  return error;
}
// The same address, as with unified addressing on Linux.
HEDDLE_SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer,
                                                     unsigned flags) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || flags != 0 || word_at(number_of(pointer), 1) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = number_of(pointer);
  return CUDA_SUCCESS;
}
