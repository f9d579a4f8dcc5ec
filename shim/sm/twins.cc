#include "shim/sm/twins.h"

#include <sys/mman.h>

#include <optional>

#include "ipc/sm_set.h"
#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/evidence/watch.h"
#include "shim/link/spin.h"
#include "shim/sm/contexts.h"

namespace heddle::shim {
namespace {

constexpr uint32_t kExecs = 256, kProbes = 32;
constexpr uint32_t kPlaces = 4;      // twins of one executable
constexpr uint32_t kTwinsMost = 64;  // of the process; a twin takes about what its executable takes
constexpr uint32_t kNodesMost = 1 << 16;  // kernel nodes of all of them
constexpr uint32_t kUpdatesMost = 16;     // of an executable whose twins are made anew each time
constexpr int kDepthMost = 8;             // of child graphs

// What a twin is made for besides the sizes inside, as one word; 0: a free place.
constexpr uint64_t key_of(TwinPlace at) {
  return uint64_t{at.groups} << 8 | static_cast<uint8_t>(-at.priority) | uint64_t{1} << 40;
}
constexpr uint32_t groups_of(uint64_t key) { return static_cast<uint32_t>(key >> 8); }
constexpr int priority_of(uint64_t key) { return -static_cast<int>(key & 0xff); }

struct Place {
  std::atomic<uint64_t> key{0};                // set by a launch that wants it, after
  std::atomic<uint64_t> inside{0};             // TwinPlace's
  std::atomic<CUgraphExec> twin{nullptr};      // set by the helper
  std::atomic<CUgraphExec> given_up{nullptr};  // by a launch; the helper destroys it

  // What is wanted here; its key is 0 if nothing is.
  bool is(uint64_t wanted, uint64_t sizes) const {
    return key.load(std::memory_order_acquire) == wanted &&
           inside.load(std::memory_order_relaxed) == sizes;
  }
  void want(uint64_t wanted, uint64_t sizes) {
    inside.store(sizes, std::memory_order_relaxed);
    key.store(wanted, std::memory_order_release);
  }
};

struct Twinned {
  std::atomic<CUgraphExec> exec{nullptr};  // nullptr: free
  std::atomic<bool> used{false};           // it was taken before: who looks for another goes on
  std::atomic<CUgraphExec> last{nullptr};  // launched; nullptr: none
  std::atomic<uint64_t> stream{0};         // into which, as key_of(StreamRef)
  std::atomic<bool> movable{false};
  std::atomic<bool> wanted{false};  // by a launch, of the helper
  CUgraph clone = nullptr;
  uint64_t flags = 0;
  uint32_t updates = 0;
  uint32_t nodes = 0;  // kernels
  int device = 0;
  Place places[kPlaces];
};

constinit Twinned table[kExecs] = {};
// Held while an entry begins or ends, and by the helper while it makes a twin: an executable that
// ends meanwhile waits for that, some milliseconds.
constinit Spin lock;
constinit uint32_t twins = 0, twin_nodes = 0;
constinit std::atomic<bool> any_wanted{false};

uint32_t home_of(CUgraphExec exec) {
  return static_cast<uint32_t>((reinterpret_cast<uint64_t>(exec) * 0x9e3779b97f4a7c15u) >> 56);
}

Twinned* find(CUgraphExec exec) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    Twinned& entry = table[(home_of(exec) + i) % kExecs];
    if (entry.exec.load(std::memory_order_acquire) == exec) return &entry;
    if (!entry.used.load(std::memory_order_acquire)) return nullptr;
  }
  return nullptr;
}

// Tells streams apart. A default stream per thread is its thread's.
uint64_t key_of(StreamRef stream) {
  static thread_local char here;
  const auto handle = reinterpret_cast<uint64_t>(stream.handle);
  const bool own = handle == reinterpret_cast<uint64_t>(CU_STREAM_PER_THREAD) ||
                   (handle == 0 && stream.per_thread);
  if (own) return reinterpret_cast<uint64_t>(&here);
  return handle != 0 ? handle : reinterpret_cast<uint64_t>(CU_STREAM_LEGACY);
}

void count(const Inside& in, GraphFate fate) {
  if (in) in.count_graph(static_cast<unsigned>(fate));
}
void count(GraphFate fate) { count(Inside(), fate); }

// With the lock held. One that runs is freed when it is done: the call does not wait.
void destroy_twin(const Twinned& entry, CUgraphExec twin) {
  if (twin == nullptr) return;
  HEDDLE_REAL(cuGraphExecDestroy)(twin);
  --twins;
  twin_nodes -= entry.nodes;
}

// With the lock held.
void destroy_twins(Twinned& entry) {
  entry.movable.store(false, std::memory_order_relaxed);
  for (Place& place : entry.places) {
    destroy_twin(entry, place.twin.exchange(nullptr));
    destroy_twin(entry, place.given_up.exchange(nullptr));
    place.key.store(0, std::memory_order_relaxed);
  }
  if (entry.clone != nullptr) HEDDLE_REAL(cuGraphDestroy)(entry.clone);
  entry.clone = nullptr;
}

// The attribute's value begins with an int that says so.
bool has(CUgraphNode node, CUlaunchAttributeID attribute) {
  CUlaunchAttributeValue value = {};
  return HEDDLE_REAL(cuGraphKernelNodeGetAttribute)(node, attribute, &value) == CUDA_SUCCESS &&
         value.cooperative != 0;
}

// Visits the kernel nodes of the graph and of its children, until one visit fails.
template <class Visit>
CUresult for_each_kernel(CUgraph graph, Visit&& visit, int depth = 0) {
  size_t count = 0;
  CUresult result = HEDDLE_REAL(cuGraphGetNodes)(graph, nullptr, &count);
  if (result != CUDA_SUCCESS || count == 0) return result;
  const size_t bytes = count * sizeof(CUgraphNode);  // NOLINT(bugprone-sizeof-expression)
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto nodes = static_cast<CUgraphNode*>(memory);
  result = HEDDLE_REAL(cuGraphGetNodes)(graph, nodes, &count);
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    result = HEDDLE_REAL(cuGraphNodeGetType)(nodes[i], &type);
    CUgraph child = nullptr;
    if (result != CUDA_SUCCESS) break;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      result = visit(nodes[i]);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      result = depth < kDepthMost ? HEDDLE_REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child)
                                  : CUDA_ERROR_NOT_SUPPORTED;
      if (result == CUDA_SUCCESS) result = for_each_kernel(child, visit, depth + 1);
    }
  }
  munmap(memory, bytes);
  return result;
}

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

// The context of each run of nodes; false if one is missing.
bool find_contexts(const Inside& in, int device, uint32_t groups, uint64_t inside,
                   CUcontext (&contexts)[ipc::kInsideRuns]) {
  for (uint32_t run = 0; run < ipc::kInsideRuns; ++run) {
    const uint32_t size = ipc::size_inside(inside, run, ipc::kInsideRuns);
    const uint32_t set =
        size != 0 ? size_set(device, size, in.control().windows[device], groups) : groups;
    contexts[run] = context_of(device, member_for(device, set));
    if (contexts[run] == nullptr) return false;
  }
  return true;
}

CUgraphExec make(const Inside& in, const Twinned& entry, uint64_t key, uint64_t inside) {
  CUcontext contexts[ipc::kInsideRuns];
  if (!find_contexts(in, entry.device, groups_of(key), inside, contexts)) return nullptr;
  CUgraphExec twin = nullptr;
  const int priority = priority_of(key);
  uint64_t at = 0;
  const CUresult result = for_each_kernel(entry.clone, [&](CUgraphNode node) {
    return put(node, contexts[at++ * ipc::kInsideRuns / entry.nodes], priority);
  });
  uint64_t flags = entry.flags;
  if (priority != 0) flags |= CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (result != CUDA_SUCCESS ||
      HEDDLE_REAL(cuGraphInstantiateWithFlags)(&twin, entry.clone, flags) != CUDA_SUCCESS) {
    return nullptr;
  }
  return twin;
}

// With the lock held.
void make_wanted(const Inside& in, Twinned& entry, Place& place) {
  const uint64_t key = place.key.load(std::memory_order_acquire);
  const uint64_t inside = place.inside.load(std::memory_order_relaxed);
  if (key == 0 || place.twin.load(std::memory_order_relaxed) != nullptr) return;
  destroy_twin(entry, place.given_up.exchange(nullptr));
  if (twins == kTwinsMost || twin_nodes + entry.nodes > kNodesMost) {
    entry.movable.store(false, std::memory_order_relaxed);
    return count(in, GraphFate::kFull);
  }
  const CUgraphExec twin = make(in, entry, key, inside);
  if (twin == nullptr) {
    entry.movable.store(false, std::memory_order_relaxed);
    return count(in, GraphFate::kRefused);
  }
  ++twins;
  twin_nodes += entry.nodes;
  count(in, GraphFate::kTwin);
  // A launch gave this place to other sizes meanwhile, and called for them.
  if (!place.is(key, inside)) return destroy_twin(entry, twin);
  place.twin.store(twin, std::memory_order_release);
}

// A place for those sizes where none is free: of a twin that was not launched last. nullptr: there
// is none, or the helper has yet to destroy what was given up there.
Place* give_up_place(Twinned& entry) {
  const CUgraphExec last = entry.last.load(std::memory_order_relaxed);
  for (Place& place : entry.places) {
    const CUgraphExec twin = place.twin.load(std::memory_order_acquire);
    if (twin == nullptr || twin == last || place.inside.load(std::memory_order_relaxed) == 0 ||
        place.given_up.load(std::memory_order_relaxed) != nullptr) {
      continue;
    }
    place.key.store(0, std::memory_order_relaxed);
    place.given_up.store(twin, std::memory_order_relaxed);
    place.twin.store(nullptr, std::memory_order_release);
    return &place;
  }
  return nullptr;
}

// Room for one more; nullptr: there is none. The lock is held.
Twinned* begin(CUgraphExec exec) {
  if (Twinned* old = find(exec)) {  // its end was not seen
    destroy_twins(*old);
    return old;
  }
  for (uint32_t i = 0; i < kProbes; ++i) {
    Twinned& entry = table[(home_of(exec) + i) % kExecs];
    if (entry.exec.load(std::memory_order_relaxed) == nullptr) return &entry;
  }
  return nullptr;
}

bool all_may_move(CUgraph graph, GraphFate& why, uint32_t& nodes) {
  why = GraphFate::kNoClone;
  return for_each_kernel(graph, [&](CUgraphNode node) {
           ++nodes;
           if (has(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)) {
             why = GraphFate::kCooperative;
           } else if (has(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)) {
             why = GraphFate::kDevice;
           } else {
             return CUDA_SUCCESS;
           }
           return CUDA_ERROR_NOT_SUPPORTED;
         }) == CUDA_SUCCESS;
}

}  // namespace

void clone_graph(CUgraphExec exec, CUgraph graph, uint64_t flags, uint32_t updates) {
  const RelaxedCapture relaxed;
  CUcontext context = nullptr;
  CUdevice device = -1;
  if (HEDDLE_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || context == nullptr ||
      HEDDLE_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS || !has_family(device, context)) {
    return;
  }
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return count(GraphFate::kDevice);
  CUgraph clone = nullptr;
  if (HEDDLE_REAL(cuGraphClone)(&clone, graph) != CUDA_SUCCESS) return count(GraphFate::kNoClone);
  GraphFate why;
  uint32_t nodes = 0;
  const bool movable = all_may_move(clone, why, nodes);
  Twinned* entry = nullptr;
  {
    const Held held(lock);
    entry = movable ? begin(exec) : nullptr;
    if (entry != nullptr) {
      entry->clone = clone;
      entry->flags = flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
      entry->updates = updates;
      entry->nodes = nodes;
      entry->device = device;
      entry->used.store(true, std::memory_order_relaxed);
      entry->last.store(nullptr, std::memory_order_relaxed);
      entry->wanted.store(false, std::memory_order_relaxed);
      entry->movable.store(true, std::memory_order_relaxed);
      entry->exec.store(exec, std::memory_order_release);
    }
  }
  if (entry != nullptr) return;
  HEDDLE_REAL(cuGraphDestroy)(clone);
  count(movable ? GraphFate::kFull : why);
}

CUgraphExec twin_of(CUgraphExec exec, int device, TwinPlace at) {
  Twinned* entry = find(exec);
  if (entry == nullptr || entry->device != device ||
      !entry->movable.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  // Who instantiated it with priorities of its nodes chose them.
  if ((entry->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0) at.priority = 0;
  at.groups = member_for(device, at.groups);
  if (at == TwinPlace{}) return nullptr;
  const uint64_t key = key_of(at);
  Place* free = nullptr;
  for (Place& place : entry->places) {
    if (place.is(key, at.inside)) return place.twin.load(std::memory_order_acquire);
    if (free == nullptr && place.key.load(std::memory_order_relaxed) == 0) free = &place;
  }
  if (free == nullptr && at.inside != 0) free = give_up_place(*entry);
  if (free == nullptr) return nullptr;
  free->want(key, at.inside);
  entry->wanted.store(true, std::memory_order_relaxed);
  any_wanted.store(true, std::memory_order_release);
  call_helper();
  return nullptr;
}

CUgraphExec in_order(CUgraphExec exec, StreamRef stream, CUgraphExec wanted) {
  Twinned* entry = find(exec);
  if (entry == nullptr) return exec;
  const uint64_t key = key_of(stream);
  const CUgraphExec last = entry->last.load(std::memory_order_relaxed);
  const bool same = entry->stream.load(std::memory_order_relaxed) == key;
  entry->stream.store(key, std::memory_order_relaxed);
  if (last != nullptr && !same) return last;
  const CUgraphExec chosen = wanted != nullptr ? wanted : exec;
  entry->last.store(chosen, std::memory_order_relaxed);
  return chosen;
}

bool may_have_twin(CUgraphExec exec) {
  const Twinned* entry = find(exec);
  return entry != nullptr && entry->movable.load(std::memory_order_relaxed);
}

void twin_refused(const Inside& in, CUgraphExec exec) {
  if (Twinned* entry = find(exec)) {
    entry->movable.store(false, std::memory_order_relaxed);
    entry->last.store(exec, std::memory_order_relaxed);
  }
  count(in, GraphFate::kRefused);
}

void graph_ends(CUgraphExec exec) {
  Twinned* entry = find(exec);
  if (entry == nullptr) return;
  const Held held(lock);
  destroy_twins(*entry);
  entry->exec.store(nullptr, std::memory_order_release);
}

void graph_updated(CUgraphExec exec) {
  if (find(exec) == nullptr) return;
  graph_ends(exec);
  count(GraphFate::kUpdated);
}

Update graph_updates(CUgraphExec exec) {
  const Twinned* entry = find(exec);
  if (entry == nullptr) return {};
  const Update update{entry->updates < kUpdatesMost, entry->flags, entry->updates + 1};
  graph_ends(exec);
  if (!update.again) count(GraphFate::kUpdated);
  return update;
}

void make_twins() {
  if (!any_wanted.exchange(false, std::memory_order_acquire)) return;
  const Inside in;
  for (Twinned& entry : table) {
    if (!entry.wanted.load(std::memory_order_acquire)) continue;
    // While something captures it is tried again at the next look.
    std::optional<EventPermit> permit;
    if (in) permit.emplace(in);
    if (!permit || !*permit) return any_wanted.store(true, std::memory_order_relaxed);
    const RelaxedCapture relaxed;
    const Held held(lock);
    entry.wanted.store(false, std::memory_order_relaxed);
    const CUcontext primary = context_of(entry.device, 0);
    if (entry.exec.load(std::memory_order_relaxed) == nullptr || primary == nullptr ||
        HEDDLE_REAL(cuCtxPushCurrent_v2)(primary) != CUDA_SUCCESS) {
      continue;
    }
    for (Place& place : entry.places) {
      if (entry.movable.load(std::memory_order_relaxed)) make_wanted(in, entry, place);
    }
    CUcontext popped = nullptr;
    HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
  }
}

void end_twins(int device) {
  if (static_cast<uint32_t>(device) >= ipc::kDevices) return;
  const CUcontext primary = context_of(device, 0);
  if (primary == nullptr) return;  // no family: no twins
  const Held held(lock);
  if (twins != 0) {  // they may run in partitions: the end of the context would wait for them too
    CUcontext popped = nullptr;
    if (HEDDLE_REAL(cuCtxPushCurrent_v2)(primary) == CUDA_SUCCESS) {
      HEDDLE_REAL(cuCtxSynchronize)();
      HEDDLE_REAL(cuCtxPopCurrent_v2)(&popped);
    }
  }
  for (Twinned& entry : table) {
    if (entry.exec.load(std::memory_order_relaxed) == nullptr || entry.device != device) continue;
    destroy_twins(entry);
    entry.exec.store(nullptr, std::memory_order_relaxed);
  }
}

void forget_twins() {
  lock.forget();
  twins = twin_nodes = 0;
  for (Twinned& entry : table) {
    entry.exec.store(nullptr, std::memory_order_relaxed);
    entry.clone = nullptr;
    for (Place& place : entry.places) {
      place.key.store(0, std::memory_order_relaxed);
      place.twin.store(nullptr, std::memory_order_relaxed);
      place.given_up.store(nullptr, std::memory_order_relaxed);
    }
  }
}

}  // namespace heddle::shim
