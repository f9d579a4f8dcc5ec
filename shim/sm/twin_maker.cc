// The helper thread's part: it makes the twins that launches want, and gives up others for them.
#include <optional>

#include "shim/driver/driver.h"
#include "shim/sm/contexts.h"
#include "shim/sm/graph_gates.h"
#include "shim/sm/twin_table.h"

namespace heddle::shim {
namespace {

// For the process: some hundred graphs of a server. A twin takes about its executable's memory.
constexpr uint32_t kTwinsMost = 512;
constexpr uint32_t kNodesMost = 1 << 17;  // kernel nodes of all of them
// A twin that was launched within this time is not given up for another executable's twin. A
// program that cycles through more graphs than there is room for would have each made anew in every
// round.
constexpr int64_t kIdleNs = 5'000'000'000;
// The same for another twin of the same executable. A policy that searches tries more SM set sizes
// than an executable has twins, for some 50 ms each.
constexpr int64_t kOwnIdleNs = 100'000'000;

// Moves a kernel node of a clone to that context, and gives it that priority.
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

// A twin that the helper is making, with a copy of its entry's data when it began.
struct Order {
  Twinned* entry = nullptr;
  TwinSlot* slot = nullptr;  // stays free until the twin is made: only the helper fills slots
  uint64_t key = 0;
  float span_us = 0;
  CUgraph clone = nullptr;
  CUcontext context = nullptr;
  int device = 0;
  uint64_t flags = 0;
  uint32_t nodes = 0;
  bool has_tail = false;
};

struct Made {
  Twin twin;
  CUevent tail = nullptr;
  GraphFate fate = GraphFate::kTwin;  // anything else: why there is no twin
};

CUresult move(const Order& order, CUgraph graph, ipc::SmSet set, int priority) {
  if (set.empty() && priority == 0) return CUDA_SUCCESS;
  const CUcontext context = set.empty() ? order.context : context_of(order.device, set);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return for_each_kernel(graph, [&](CUgraphNode node) { return put(node, context, priority); });
}

// Makes a twin from a clone of the entry's clone, because each twin changes its nodes. If the twin
// was to have nothing but gates, and the graph has no place for one, there is no twin and no error.
CUresult make_twin(const Order& order, Twin& twin) {
  CUgraph graph = nullptr;
  CUresult result = HEDDLE_REAL(cuGraphClone)(&graph, order.clone);
  if (result != CUDA_SUCCESS) return result;
  const int priority = priority_of(order.key);
  const uint32_t page = page_of(order.key);
  result = move(order, graph, set_of(order.key), priority);
  if (result == CUDA_SUCCESS && page != 0) {
    const CUdeviceptr gate = gate_of(gate_books[page - 1], order.device);
    result = add_gates(graph, order.context, gate, order.span_us, twin.gates);
  }
  uint64_t flags = order.flags;
  if (priority != 0) flags |= CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  const bool own = set_of(order.key).empty() && priority == 0 && twin.gates == 0;
  if (result == CUDA_SUCCESS && !own) {
    result = HEDDLE_REAL(cuGraphInstantiateWithFlags)(&twin.exec, graph, flags);
  }
  HEDDLE_REAL(cuGraphDestroy)(graph);
  return result;
}

// Makes the twin, for which count_twin() has made room.
Made make(const Order& order) {
  Made made;
  CUcontext popped = nullptr;
  if (HEDDLE_REAL(cuCtxPushCurrent_v2)(order.context) != CUDA_SUCCESS) {
    made.fate = GraphFate::kRefused;
    return made;
  }
  const bool has_tail = order.has_tail || HEDDLE_REAL(cuEventCreate)(
                                              &made.tail, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  if (!has_tail || make_twin(order, made.twin) != CUDA_SUCCESS) made.fate = GraphFate::kRefused;
  HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  return made;
}

// ---- with the lock held -------------------------------------------------------------------------

// Ends a twin. False if a launch of the executable is under way, which may have taken this twin.
bool give_up(Twinned& entry, TwinSlot& slot, Leavings& left) {
  const CUgraphExec twin = slot.twin.exchange(nullptr, std::memory_order_seq_cst);
  if (entry.launching.load(std::memory_order_seq_cst) != 0) {
    slot.twin.store(twin, std::memory_order_release);
    return false;
  }
  end_twin(entry, slot, twin, left);
  return true;
}

// The slot for a new twin with that key: the slot of an older twin with the same key, a free one,
// or that of the twin which was launched least recently.
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

// Gives up the process's least recently launched twin. False: all were launched within kIdleNs, or
// that one is being launched.
bool give_up_oldest(Leavings& left) {
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
  return oldest != nullptr && give_up(*owner, *oldest, left);
}

// Clears the slot for the twin that the entry's launches want. nullptr: there is none now.
TwinSlot* clear_place(const Inside& in, Twinned& entry, uint64_t key, float span_us,
                      Leavings& left) {
  for (TwinSlot& slot : entry.twins) {  // twins of earlier sessions' pages are never launched again
    const uint32_t page = page_of(slot.key.load(std::memory_order_relaxed));
    if (page != 0 && page != page_of(key) && !give_up(entry, slot, left)) return nullptr;
  }
  TwinSlot& slot = place_of(entry, key);
  const bool stale = slot.is(key);
  if (stale && !slot.is_stale(span_us)) return nullptr;
  if (slot.key.load(std::memory_order_relaxed) == 0) return &slot;
  if (!stale && now_ns() - slot.used_ns <= kOwnIdleNs) {
    put_off(in, entry, GraphFate::kFull);
    return nullptr;
  }
  return give_up(entry, slot, left) ? &slot : nullptr;  // nullptr: the next launch asks again
}

// ---- which takes the lock -----------------------------------------------------------------------

// Takes up what the entry's launches want. False: there is nothing to make for it now.
bool take_order(const Inside& in, Twinned& entry, Order& order) {
  Leavings left;
  const Held held(twins_lock);
  entry.wanted.store(false, std::memory_order_relaxed);
  const bool movable = entry.fate.load(std::memory_order_relaxed) == GraphFate::kTwin;
  if (entry.exec.load(std::memory_order_relaxed) == nullptr ||
      !holds(movable == (entry.clone != nullptr)) || !movable) {
    return false;
  }
  order.entry = &entry;
  order.key = entry.wanted_key.load(std::memory_order_acquire);
  order.span_us = entry.wanted_us.load(std::memory_order_relaxed);
  order.slot = clear_place(in, entry, order.key, order.span_us, left);
  if (order.slot == nullptr) return false;
  order.clone = clone_in_use = entry.clone;
  clone_left = false;
  order.context = entry.context;
  order.device = entry.device;
  order.flags = entry.flags;
  order.nodes = entry.nodes;
  order.has_tail = entry.tail.load(std::memory_order_relaxed) != nullptr;
  return true;
}

// Counts a twin of so many nodes among the process's, and gives up old ones for it. False: no room.
bool count_twin(uint32_t nodes) {
  for (;;) {
    Leavings left;
    const Held held(twins_lock);
    if (twins_made < kTwinsMost && twin_nodes + nodes <= kNodesMost) {
      ++twins_made;
      twin_nodes += nodes;
      return true;
    }
    if (!give_up_oldest(left)) return false;
  }
}

// Puts the twin into its slot, if the clone it was made of is still its entry's. Otherwise takes
// back what count_twin() counted.
void deliver(const Inside& in, const Order& order, Made made) {
  Leavings left;
  const Held held(twins_lock);
  clone_in_use = nullptr;
  Twinned& entry = *order.entry;
  TwinSlot& slot = *order.slot;
  const bool wanted = !clone_left && made.fate == GraphFate::kTwin;
  const bool counted = made.fate != GraphFate::kFull;
  if (counted && (!wanted || made.twin.exec == nullptr)) uncount_twin(order.nodes);
  if (clone_left) left.add(order.clone);
  if (!wanted) {
    left.add(made.twin.exec);
    left.add(made.tail);
    if (!clone_left) put_off(in, entry, made.fate);
    return;
  }
  if (made.twin.exec != nullptr) count(in, GraphFate::kTwin);
  if (!order.has_tail) entry.tail.store(made.tail, std::memory_order_release);
  entry.rest_ns = 0;
  slot.used_ns.store(now_ns(), std::memory_order_relaxed);
  slot.span_us.store(order.span_us, std::memory_order_relaxed);
  slot.gates.store(made.twin.gates, std::memory_order_relaxed);
  slot.twin.store(made.twin.exec, std::memory_order_relaxed);
  slot.key.store(order.key, std::memory_order_release);
}

}  // namespace

void make_twins() {
  if (!twins_wanted.exchange(false, std::memory_order_acquire)) return;
  const Inside in;
  for (Twinned& entry : twinned) {
    if (!entry.wanted.load(std::memory_order_acquire)) continue;
    // While a stream captures, no twin is made: the helper tries again at its next look.
    std::optional<EventPermit> permit;
    if (in) permit.emplace(in);
    if (!permit || !*permit) return twins_wanted.store(true, std::memory_order_relaxed);
    const RelaxedCapture relaxed;
    Order order;
    if (!take_order(in, entry, order)) continue;
    const bool has_room = count_twin(order.nodes);
    deliver(in, order, has_room ? make(order) : Made{{}, nullptr, GraphFate::kFull});
  }
}

}  // namespace heddle::shim
