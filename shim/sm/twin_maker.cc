// The helper thread's part: twins are made of what launches want, and given up for one another.
#include <optional>

#include "shim/driver/driver.h"
#include "shim/sm/contexts.h"
#include "shim/sm/graph_gates.h"
#include "shim/sm/twin_table.h"

namespace heddle::shim {
namespace {

// Of the process: some hundred graphs of a server. A twin takes about what its executable takes.
constexpr uint32_t kTwinsMost = 512;
constexpr uint32_t kNodesMost = 1 << 17;  // kernel nodes of all of them
// A twin that was launched within this time is not given up for another executable's: a program
// that goes through more graphs than there is room for would have each made anew in every round.
constexpr int64_t kIdleNs = 5'000'000'000;
// The same for one of the executable's own. A search tries more sizes than it has twins, some
// 50 ms each.
constexpr int64_t kOwnIdleNs = 100'000'000;

// The clone's kernels go to that context, and have that priority.
CUresult put(CUgraphNode node, CUcontext context, int priority) {
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  CUresult result = HEDDLE_REAL(cuGraphKernelNodeGetParams_v2)(node, &params);
  if (result != CUDA_SUCCESS) return result;
  if (params.kern == nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // a function is of one context
  params.func = nullptr;
  params.ctx = context;
  result = HEDDLE_REAL(cuGraphKernelNodeSetParams_v2)(node, &params);
  if (result != CUDA_SUCCESS || priority == 0) return result;
  CUlaunchAttributeValue value = {};
  value.priority = priority;
  return HEDDLE_REAL(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
}

CUresult move(const Twinned& entry, CUgraph graph, ipc::SmSet set, int priority) {
  if (set.empty() && priority == 0) return CUDA_SUCCESS;
  const CUcontext context = set.empty() ? entry.context : context_of(entry.device, set);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return for_each_kernel(graph, [&](CUgraphNode node) { return put(node, context, priority); });
}

// Of a clone of the clone: what one twin is given is no other's. No twin without an error: the
// graph has no place for the gates that were all it was to have.
CUresult make(const Twinned& entry, uint64_t key, float span_us, Twin& twin) {
  CUgraph graph = nullptr;
  CUresult result = HEDDLE_REAL(cuGraphClone)(&graph, entry.clone);
  if (result != CUDA_SUCCESS) return result;
  const int priority = priority_of(key);
  result = move(entry, graph, set_of(key), priority);
  if (result == CUDA_SUCCESS && page_of(key) != 0) {
    GateBook& book = gate_books[page_of(key) - 1];
    result = add_gates(graph, entry.context, gate_of(book, entry.device), span_us, twin.gates);
  }
  uint64_t flags = entry.flags;
  if (priority != 0) flags |= CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  const bool own = set_of(key).empty() && priority == 0 && twin.gates == 0;
  if (result == CUDA_SUCCESS && !own) {
    result = HEDDLE_REAL(cuGraphInstantiateWithFlags)(&twin.exec, graph, flags);
  }
  HEDDLE_REAL(cuGraphDestroy)(graph);
  return result;
}

bool has_tail_event(Twinned& entry) {
  CUevent event = entry.tail.load(std::memory_order_relaxed);
  if (event != nullptr) return true;
  if (HEDDLE_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  entry.tail.store(event, std::memory_order_release);
  return true;
}

// False if a launch of the executable is under way, which may be taking this very twin.
bool give_up(Twinned& entry, TwinSlot& slot) {
  const CUgraphExec twin = slot.twin.exchange(nullptr, std::memory_order_seq_cst);
  if (entry.launching.load(std::memory_order_seq_cst) != 0) {
    slot.twin.store(twin, std::memory_order_release);
    return false;
  }
  end_twin(entry, slot, twin);
  return true;
}

// Where that twin is to be: where an older one stands for the same, a free place, or that of the
// twin which was launched least recently.
TwinSlot& place_of(Twinned& entry, uint64_t key) {
  TwinSlot* oldest = entry.twins;
  for (TwinSlot& slot : entry.twins) {
    if (slot.is(key)) return slot;
  }
  for (TwinSlot& slot : entry.twins) {
    if (slot.key.load(std::memory_order_relaxed) == 0) return slot;
    if (slot.used_ns < oldest->used_ns) oldest = &slot;
  }
  return *oldest;
}

// Room for so many nodes more in the process; false: all that is there is in use.
bool make_room(uint32_t nodes) {
  while (twins_made == kTwinsMost || twin_nodes + nodes > kNodesMost) {
    int64_t oldest_ns = now_ns() - kIdleNs;
    Twinned* owner = nullptr;
    TwinSlot* oldest = nullptr;
    for (Twinned& entry : twinned) {
      for (TwinSlot& slot : entry.twins) {
        if (slot.twin.load(std::memory_order_relaxed) == nullptr || slot.used_ns >= oldest_ns) {
          continue;
        }
        oldest_ns = slot.used_ns;
        owner = &entry;
        oldest = &slot;
      }
    }
    if (oldest == nullptr || !give_up(*owner, *oldest)) return false;
  }
  return true;
}

void make_wanted(const Inside& in, Twinned& entry) {
  const uint64_t key = entry.wanted_key.load(std::memory_order_acquire);
  const float span_us = entry.wanted_us.load(std::memory_order_relaxed);
  for (TwinSlot& slot : entry.twins) {  // no launch wants those of an earlier session again
    const uint32_t page = page_of(slot.key.load(std::memory_order_relaxed));
    if (page != 0 && page != page_of(key) && !give_up(entry, slot)) return;
  }
  TwinSlot& slot = place_of(entry, key);
  const bool stale = slot.is(key);
  if (stale && !slot.is_stale(span_us)) return;
  if (slot.key.load(std::memory_order_relaxed) != 0) {
    if (!stale && now_ns() - slot.used_ns <= kOwnIdleNs) {
      return put_off(in, entry, GraphFate::kFull);
    }
    if (!give_up(entry, slot)) return;  // the next launch wants it again
  }
  if (!make_room(entry.nodes)) return put_off(in, entry, GraphFate::kFull);
  Twin twin;
  if (!has_tail_event(entry) || make(entry, key, span_us, twin) != CUDA_SUCCESS) {
    return put_off(in, entry, GraphFate::kRefused);
  }
  if (twin.exec != nullptr) {
    ++twins_made;
    twin_nodes += entry.nodes;
    count(in, GraphFate::kTwin);
  }
  entry.rest_ns = 0;
  slot.used_ns.store(now_ns(), std::memory_order_relaxed);
  slot.span_us.store(span_us, std::memory_order_relaxed);
  slot.gates.store(twin.gates, std::memory_order_relaxed);
  slot.twin.store(twin.exec, std::memory_order_relaxed);
  slot.key.store(key, std::memory_order_release);
}

}  // namespace

void make_twins() {
  if (!twins_wanted.exchange(false, std::memory_order_acquire)) return;
  const Inside in;
  for (Twinned& entry : twinned) {
    if (!entry.wanted.load(std::memory_order_acquire)) continue;
    // While something captures it is tried again at the next look.
    std::optional<EventPermit> permit;
    if (in) permit.emplace(in);
    if (!permit || !*permit) return twins_wanted.store(true, std::memory_order_relaxed);
    const RelaxedCapture relaxed;
    const Held held(twins_lock);
    entry.wanted.store(false, std::memory_order_relaxed);
    const bool movable = entry.fate.load(std::memory_order_relaxed) == GraphFate::kTwin;
    if (entry.exec.load(std::memory_order_relaxed) == nullptr ||
        !holds(movable == (entry.clone != nullptr)) || !movable ||
        HEDDLE_REAL(cuCtxPushCurrent_v2)(entry.context) != CUDA_SUCCESS) {
      continue;
    }
    make_wanted(in, entry);
    CUcontext popped = nullptr;
    HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  }
}

}  // namespace heddle::shim
