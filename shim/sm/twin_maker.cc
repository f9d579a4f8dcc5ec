// The helper thread's part: twins are made of what launches want, and given up for one another.
#include <algorithm>
#include <optional>

#include "shim/driver/driver.h"
#include "shim/sm/contexts.h"
#include "shim/sm/twin_table.h"

namespace heddle::shim {
namespace {

constexpr uint32_t kTwinsMost =
    256;  // of the process; a twin takes about what its executable takes
constexpr uint32_t kNodesMost = 1 << 16;  // kernel nodes of all of them
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

CUgraphExec make(const Twinned& entry, uint64_t key) {
  const CUcontext context = context_of(entry.device, set_of(key));
  if (context == nullptr) return nullptr;
  CUgraphExec twin = nullptr;
  const int priority = priority_of(key);
  const CUresult result =
      for_each_kernel(entry.clone, [&](CUgraphNode node) { return put(node, context, priority); });
  uint64_t flags = entry.flags;
  if (priority != 0) flags |= CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (result != CUDA_SUCCESS ||
      HEDDLE_REAL(cuGraphInstantiateWithFlags)(&twin, entry.clone, flags) != CUDA_SUCCESS) {
    return nullptr;
  }
  return twin;
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
  const bool free = entry.launching.load(std::memory_order_seq_cst) == 0;
  slot.twin.store(twin, std::memory_order_release);
  if (free) end_twin(entry, slot);
  return free;
}

// A free one, else that which was launched least recently.
TwinSlot& oldest_of(Twinned& entry) {
  TwinSlot* oldest = entry.twins;
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
  for (const TwinSlot& slot : entry.twins) {
    if (slot.is(key)) return;
  }
  TwinSlot& slot = oldest_of(entry);
  if (slot.key.load(std::memory_order_relaxed) != 0) {
    if (now_ns() - slot.used_ns <= kOwnIdleNs) return put_off(in, entry, GraphFate::kFull);
    if (!give_up(entry, slot)) return;  // the next launch wants it again
  }
  if (!make_room(entry.nodes)) return put_off(in, entry, GraphFate::kFull);
  const CUgraphExec twin = has_tail_event(entry) ? make(entry, key) : nullptr;
  if (twin == nullptr) return put_off(in, entry, GraphFate::kRefused);
  ++twins_made;
  twin_nodes += entry.nodes;
  entry.rest_ns = 0;
  count(in, GraphFate::kTwin);
  slot.used_ns.store(now_ns(), std::memory_order_relaxed);
  slot.twin.store(twin, std::memory_order_relaxed);
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
    const CUcontext primary = context_of(entry.device, {});
    const bool movable = entry.fate.load(std::memory_order_relaxed) == GraphFate::kTwin;
    if (entry.exec.load(std::memory_order_relaxed) == nullptr ||
        !holds(movable == (entry.clone != nullptr)) || !movable || primary == nullptr ||
        HEDDLE_REAL(cuCtxPushCurrent_v2)(primary) != CUDA_SUCCESS) {
      continue;
    }
    make_wanted(in, entry);
    CUcontext popped = nullptr;
    HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  }
}

}  // namespace heddle::shim
