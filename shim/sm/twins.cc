#include "shim/sm/twins.h"

#include <algorithm>

#include "shim/driver/driver.h"
#include "shim/evidence/watch.h"
#include "shim/gate/opener.h"
#include "shim/sm/contexts.h"
#include "shim/sm/twin_table.h"

namespace heddle::shim {
namespace {

// An executable that is updated as a whole gets a clone for 16 updates at once, then for one a
// second. A program that updates its graph before every launch would pay for clones of which no
// launch ever takes a twin.
constexpr uint32_t kClonesMost = 16;
constexpr int64_t kCloneNs = 1'000'000'000;

constexpr uint64_t kNoStream = ~uint64_t{0};

uint64_t id_of(StreamRef stream) {
  const auto ask = stream.per_thread ? HEDDLE_REAL(cuStreamGetId_ptsz) : HEDDLE_REAL(cuStreamGetId);
  unsigned long long id = 0;
  return ask(stream.handle, &id) == CUDA_SUCCESS ? id : kNoStream;
}

// Whether an attribute is set whose value begins with an int.
bool has(CUgraphNode node, CUlaunchAttributeID attribute) {
  CUlaunchAttributeValue value = {};
  return HEDDLE_REAL(cuGraphKernelNodeGetAttribute)(node, attribute, &value) == CUDA_SUCCESS &&
         value.cooperative != 0;
}

// kTwin: the node can be moved. Otherwise the reason why its graph has no twin. A node of another
// context belongs to another device, or has SMs that the application chose.
GraphFate fate_of(CUgraphNode node, CUcontext context) {
  if (has(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)) return GraphFate::kCooperative;
  if (has(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)) {
    keep_whole_device();
    return GraphFate::kDevice;
  }
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  const bool known = HEDDLE_REAL(cuGraphKernelNodeGetParams_v2)(node, &params) == CUDA_SUCCESS;
  const bool here = params.ctx == nullptr || params.ctx == context;
  return known && here ? GraphFate::kTwin : GraphFate::kNoClone;
}

// The clone of a graph from which twins are made.
struct Cloned {
  GraphFate fate = GraphFate::kTwin;  // anything else: there is no clone
  CUgraph graph = nullptr;
  uint32_t nodes = 0;
  bool own_priorities = false;
};

// Clones a graph. Looks at the nodes of the graph itself, because a clone's nodes do not say that
// the device may update them.
Cloned clone_of(CUgraph graph, uint64_t flags, CUcontext context) {
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return {GraphFate::kDevice};
  Cloned made;
  const RelaxedCapture relaxed;
  // A library may instantiate with the flag although no node has a priority: PyTorch does.
  const bool by_node = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  const CUresult visited = for_each_kernel(graph, [&](CUgraphNode node) {
    ++made.nodes;
    made.own_priorities |= by_node && has(node, CU_LAUNCH_ATTRIBUTE_PRIORITY);
    made.fate = fate_of(node, context);
    return made.fate == GraphFate::kTwin ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  });
  if (made.fate != GraphFate::kTwin) return {made.fate};
  if (visited == CUDA_SUCCESS && HEDDLE_REAL(cuGraphClone)(&made.graph, graph) == CUDA_SUCCESS) {
    return made;
  }
  return {GraphFate::kNoClone};
}

// With the lock held.
void take_clone(Twinned& entry, const Cloned& cloned) {
  entry.clone = cloned.graph;
  entry.nodes = cloned.nodes;
  entry.own_priorities = cloned.own_priorities;
  entry.rest_ns = 0;
  entry.again_ns.store(0, std::memory_order_relaxed);
  entry.wanted.store(false, std::memory_order_relaxed);
  entry.fate.store(cloned.fate, std::memory_order_relaxed);
}

// With the lock held.
void end_entry(Twinned& entry, Leavings& left) {
  end_clone(entry, left);
  left.add(entry.tail.exchange(nullptr));
  entry.has_tail = false;
  entry.exec.store(nullptr, std::memory_order_release);
}

bool may_clone(Twinned& entry) {
  const int64_t now = now_ns();
  const int64_t more = (now - entry.clones_ns) / kCloneNs;
  entry.clones_ns += more * kCloneNs;
  entry.clones_left =
      static_cast<uint32_t>(std::min<int64_t>(entry.clones_left + more, kClonesMost));
  if (entry.clones_left == 0) return false;
  --entry.clones_left;
  return true;
}

// The slot of the executable's twin for `at`; nullptr: there is none. Calls the helper if it is to
// make the twin, or a better one. Writes to `at` what the twin will have of it.
TwinSlot* find_twin(Twinned*& entry, CUgraphExec exec, int device, TwinPlace& at) {
  entry = find_twinned(exec);
  if (entry == nullptr || entry->device != device ||
      entry->fate.load(std::memory_order_relaxed) != GraphFate::kTwin) {
    return nullptr;
  }
  if (entry->own_priorities) at.priority = 0;
  at.set = member_for(device, at.set);
  if (at.is_own()) return nullptr;
  const uint64_t key = key_of(at);
  const int64_t now = now_ns();
  const auto found = std::find_if(std::begin(entry->twins), std::end(entry->twins),
                                  [&](const TwinSlot& slot) { return slot.is(key); });
  TwinSlot* const slot = found != std::end(entry->twins) ? found : nullptr;
  if (slot != nullptr) slot->used_ns.store(now, std::memory_order_relaxed);
  if (slot != nullptr && !slot->is_stale(at.span_us)) return slot;
  if (now < entry->again_ns.load(std::memory_order_relaxed)) return slot;
  entry->wanted_us.store(at.span_us, std::memory_order_relaxed);
  entry->wanted_key.store(key, std::memory_order_release);
  if (!entry->wanted.exchange(true, std::memory_order_acq_rel)) {
    twins_wanted.store(true, std::memory_order_release);
    call_helper();
  }
  return slot;
}

// Waits until the helper has finished the twin that it is making; it may not begin another one
// (EventsRest). Returns whether there are twins.
bool await_helper() {
  for (;; sched_yield()) {
    const Held held(twins_lock);
    if (clone_in_use == nullptr) return twins_made != 0;
  }
}

// Ends a launch of a twin: the helper may give up the entry's twins again.
void let_loose(Twinned& entry) {
  if (!holds(entry.launching.load(std::memory_order_relaxed) > 0)) return;
  entry.launching.fetch_sub(1, std::memory_order_release);
}

// Takes the slot's twin for a launch. The helper does not give it up before let_loose(). An empty
// Twin: the executable itself is launched. nullopt: the helper is giving the twin up, or the slot
// has another one by now.
std::optional<Twin> take(Twinned& entry, const TwinSlot& slot, uint64_t key) {
  entry.launching.fetch_add(1, std::memory_order_seq_cst);
  const Twin twin{slot.twin.load(std::memory_order_seq_cst),
                  slot.gates.load(std::memory_order_relaxed)};
  const bool is_there = slot.is(key);
  if (is_there && twin.exec != nullptr) return twin;
  let_loose(entry);
  return is_there && twin.gates == 0 ? std::optional(Twin{}) : std::nullopt;
}

}  // namespace

void graph_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags) {
  const CUcontext context = current_context();
  const CUdevice device = current_device();
  if (device < 0) return;
  // Before the first answer of a daemon the shim does not know whether there will be gates.
  const bool gates = any_gates() || guard().tried.load(std::memory_order_relaxed) == 0;
  if (!has_family(device, context) && !(gates && context == primary_of(device))) return;
  const Cloned cloned = clone_of(graph, flags, context);
  if (cloned.fate != GraphFate::kTwin) return count(cloned.fate);
  Leavings left;
  const Held held(twins_lock);
  Twinned* entry = find_twinned(exec);
  if (entry != nullptr) end_entry(*entry, left);  // the end of an older one was not seen
  if (entry == nullptr) entry = free_twinned(exec);
  if (entry == nullptr) {
    left.add(cloned.graph);
    return count(GraphFate::kFull);
  }
  take_clone(*entry, cloned);
  entry->flags = flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  entry->device = device;
  entry->context = context;
  entry->clones_left = kClonesMost;
  entry->clones_ns = now_ns();
  entry->used.store(true, std::memory_order_relaxed);
  entry->exec.store(exec, std::memory_order_release);
}

void graph_updated(CUgraphExec exec, CUgraph graph) {
  Twinned* entry = find_twinned(exec);
  if (entry == nullptr) return;
  const Cloned cloned = may_clone(*entry) ? clone_of(graph, entry->flags, entry->context)
                                          : Cloned{GraphFate::kUpdated};
  if (cloned.fate != GraphFate::kTwin && entry->fate != cloned.fate) count(cloned.fate);
  Leavings left;
  const Held held(twins_lock);
  end_clone(*entry, left);
  take_clone(*entry, cloned);
}

void graph_changed(CUgraphExec exec) {
  Twinned* entry = find_twinned(exec);
  if (entry == nullptr || entry->fate == GraphFate::kUpdated) return;
  count(GraphFate::kUpdated);
  Leavings left;
  const Held held(twins_lock);
  end_clone(*entry, left);
  entry->fate.store(GraphFate::kUpdated, std::memory_order_relaxed);
}

void graph_ends(CUgraphExec exec) {
  Twinned* entry = find_twinned(exec);
  if (entry == nullptr) return;
  Leavings left;
  const Held held(twins_lock);
  end_entry(*entry, left);
}

bool may_have_twin(CUgraphExec exec) {
  const Twinned* entry = find_twinned(exec);
  return entry != nullptr && entry->fate.load(std::memory_order_relaxed) == GraphFate::kTwin;
}

Twin twin_of(CUgraphExec exec, int device, TwinPlace at) {
  Twinned* entry = nullptr;
  const TwinSlot* const slot = find_twin(entry, exec, device, at);
  if (slot == nullptr || !entry->has_tail) return {};
  return take(*entry, *slot, key_of(at)).value_or(Twin{});
}

// A twin's launch must be followed by the executable's tail event, so its stream must be one of the
// event's context. nullopt also if the launch before this one has no tail behind it.
std::optional<Twin> twin_at_gate(CUgraphExec exec, const StreamSlot& stream, TwinPlace at) {
  Twinned* entry = nullptr;
  const TwinSlot* const slot = find_twin(entry, exec, stream.device, at);
  if (slot == nullptr || stream.context != entry->context || stream.green ||
      !stream.markable.load(std::memory_order_relaxed)) {
    return std::nullopt;
  }
  const std::optional<Twin> twin = take(*entry, *slot, key_of(at));
  if (!twin || twin->exec == nullptr || entry->has_tail) return twin;
  let_loose(*entry);
  return std::nullopt;
}

void twin_unused(CUgraphExec exec) {
  if (Twinned* entry = find_twinned(exec); entry != nullptr) let_loose(*entry);
}

void want_twin(CUgraphExec exec, int device, TwinPlace at) {
  Twinned* entry = nullptr;
  find_twin(entry, exec, device, at);
}

void twin_refused(const Inside& in, CUgraphExec exec, CUgraphExec twin) {
  Twinned* entry = find_twinned(exec);
  if (entry == nullptr) return;
  Leavings left;
  const Held held(twins_lock);
  for (TwinSlot& slot : entry->twins) {
    if (slot.twin.load(std::memory_order_relaxed) == twin) end_twin(*entry, slot, left);
  }
  put_off(in, *entry, GraphFate::kRefused);
}

// ---- order --------------------------------------------------------------------------------------

InOrder::InOrder(CUgraphExec exec, StreamRef stream)
    : entry_(find_twinned(exec)), exec_(exec), stream_(stream) {}

// Whether this launch waits for the tail, and has it recorded behind. Not in a stream that
// captures.
bool InOrder::follows() const {
  return entry_ != nullptr && entry_->tail.load(std::memory_order_acquire) != nullptr &&
         !(anything_captures() && stream_captures(stream_));
}

void InOrder::before() {
  if (!follows() || !entry_->has_tail) return;
  if (const uint64_t id = id_of(stream_); id != kNoStream && id == entry_->tail_stream) return;
  const RelaxedCapture relaxed;
  const CUevent tail = entry_->tail.load(std::memory_order_relaxed);
  if (await(stream_, tail)) return;
  look_until([&] { return HEDDLE_REAL(cuEventQuery)(tail) != CUDA_ERROR_NOT_READY; });
}

// If the driver refuses the event behind a twin, the calling thread polls until the twin is done:
// nothing else would order the next launch behind it.
CUresult InOrder::behind(CUresult result, CUgraphExec chosen) {
  if (chosen != exec_) let_loose(*entry_);
  if (result != CUDA_SUCCESS || !follows()) return result;
  const RelaxedCapture relaxed;
  entry_->has_tail = record(entry_->tail.load(std::memory_order_relaxed), stream_);
  if (entry_->has_tail) {
    entry_->tail_stream = id_of(stream_);
  } else if (chosen != exec_) {
    const auto query =
        stream_.per_thread ? HEDDLE_REAL(cuStreamQuery_ptsz) : HEDDLE_REAL(cuStreamQuery);
    look_until([&] { return query(stream_.handle) != CUDA_ERROR_NOT_READY; });
  }
  return result;
}

// ---- ends ---------------------------------------------------------------------------------------

void end_twins(int device) {
  const auto is_of = [device](const Twinned& entry) {
    return entry.exec.load(std::memory_order_relaxed) != nullptr && entry.device == device;
  };
  const Twinned* const any = std::find_if(std::begin(twinned), std::end(twinned), is_of);
  if (any == std::end(twinned)) return;
  // Twins may run on SM sets, which end before the primary context does: so wait for them here.
  CUcontext popped = nullptr;
  if (await_helper() && HEDDLE_REAL(cuCtxPushCurrent_v2)(any->context) == CUDA_SUCCESS) {
    HEDDLE_REAL(cuCtxSynchronize)();
    HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  }
  for (Twinned& entry : twinned) {
    Leavings left;
    const Held held(twins_lock);
    if (is_of(entry)) end_entry(entry, left);
  }
}

void forget_twins() {
  twins_lock.forget();
  twins_made = twin_nodes = 0;
  clone_in_use = nullptr;
  for (Twinned& entry : twinned) {
    entry.exec.store(nullptr, std::memory_order_relaxed);
    entry.clone = nullptr;
    entry.has_tail = false;
    entry.tail.store(nullptr, std::memory_order_relaxed);
    entry.launching.store(0, std::memory_order_relaxed);
    for (TwinSlot& slot : entry.twins) {
      slot.key.store(0, std::memory_order_relaxed);
      slot.twin.store(nullptr, std::memory_order_relaxed);
    }
  }
}

}  // namespace heddle::shim
