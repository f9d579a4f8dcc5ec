#include "shim/memory/reserved.h"

#include <sys/mman.h>

#include <algorithm>

#include "ipc/limits.h"
#include "shim/driver/driver.h"
#include "shim/evidence/streams.h"
#include "shim/link/session.h"
#include "shim/link/spin.h"
#include "shim/memory/account.h"

namespace heddle::shim {

constinit std::atomic<bool> graphs_allocate{false};

void settle_graphs(int device) {
  if (!graphs_allocate.load(std::memory_order_relaxed) || device < 0) return;
  const RelaxedCapture relaxed;
  uint64_t reserved = 0;
  if (HEDDLE_REAL(cuDeviceGetGraphMemAttribute)(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                                &reserved) == CUDA_SUCCESS) {
    settle_reserved(Holds::kGraphs, static_cast<uint64_t>(device), device, reserved);
  }
}

namespace {

constinit Spin pools_lock;

// ---- with it held ----

CUmemoryPool pool_or_current(CUmemoryPool pool, int device) {
  if (pool == nullptr) HEDDLE_REAL(cuDeviceGetMemPool)(&pool, device);
  return pool;
}

bool read_pool(CUmemoryPool pool, CUmemPool_attribute what, uint64_t& value) {
  return pool != nullptr && HEDDLE_REAL(cuMemPoolGetAttribute)(pool, what, &value) == CUDA_SUCCESS;
}

bool settle(CUmemoryPool pool, int device) {
  uint64_t reserved = 0;
  if (!read_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, reserved)) return false;
  settle_reserved(Holds::kPool, reinterpret_cast<uint64_t>(pool), device, reserved);
  return true;
}

}  // namespace

PoolsHeld::PoolsHeld() { pools_lock.lock(); }
PoolsHeld::~PoolsHeld() { pools_lock.unlock(); }

CUmemoryPool settle_pool(CUmemoryPool pool, int device) {
  const Held held(pools_lock);
  const RelaxedCapture relaxed;
  pool = pool_or_current(pool, device);
  return settle(pool, device) ? pool : nullptr;
}

bool trim_pools(int device) {
  constexpr size_t kPools = 256;
  uint64_t pools[kPools];
  const Held held(pools_lock);
  const RelaxedCapture relaxed;
  const size_t count = pools_of(device, pools, kPools);
  for (size_t i = 0; i < count; ++i) {
    const auto pool = reinterpret_cast<CUmemoryPool>(pools[i]);
    HEDDLE_REAL(cuMemPoolTrimTo)(pool, 0);
    settle(pool, device);
  }
  return count > 0;
}

bool pool_has_room(CUmemoryPool pool, int device, uint64_t bytes) {
  const Held held(pools_lock);
  const RelaxedCapture relaxed;
  pool = pool_or_current(pool, device);
  uint64_t reserved = 0, used = 0;
  return read_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, reserved) &&
         read_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, used) && reserved > used &&
         reserved - used >= bytes;
}

namespace {

// Executable graphs that allocate, by handle. Launches of a graph without a place are never
// refused.
struct Place {
  std::atomic<uintptr_t> exec{0};  // kGone: it was destroyed
  std::atomic<uint64_t> bytes{0};
  std::atomic<int> device{0};
};
constexpr uintptr_t kGone = 1;
constexpr size_t kPlaces = 1024, kProbes = 32;
constinit Place places[kPlaces];
constinit Spin noting;  // held to write places

Place& place_at(uintptr_t key, size_t probe) { return places[((key >> 4) * 31 + probe) % kPlaces]; }

Place* find(uintptr_t key) {
  for (size_t i = 0; i < kProbes; ++i) {
    Place& place = place_at(key, i);
    const uintptr_t there = place.exec.load(std::memory_order_acquire);
    if (there == key) return &place;
    if (there == 0) return nullptr;
  }
  return nullptr;
}

struct Need {
  uint64_t bytes = 0;
  int device = -1;  // of the first node that allocates; nodes of other devices are ignored
};

// The least memory that a graph needs. A graph that frees some may use memory again, so it needs at
// least its largest allocation. A graph that frees none needs the sum of all.
Need need_of(const CUgraphNode* nodes, size_t count) {
  Need need;
  uint64_t sum = 0;
  bool frees = false;
  for (size_t i = 0; i < count; ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
    if (HEDDLE_REAL(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS) continue;
    frees |= type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    CUDA_MEM_ALLOC_NODE_PARAMS what{};
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        HEDDLE_REAL(cuGraphMemAllocNodeGetParams)(nodes[i], &what) != CUDA_SUCCESS ||
        what.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      continue;
    }
    if (need.device < 0) need.device = what.poolProps.location.id;
    if (what.poolProps.location.id != need.device) continue;
    need.bytes = std::max<uint64_t>(need.bytes, what.bytesize);
    sum += what.bytesize;
  }
  if (!frees) need.bytes = sum;
  return need;
}

Need need_of(CUgraph graph) {
  size_t count = 0;
  if (HEDDLE_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return {};
  const size_t bytes = count * sizeof(CUgraphNode);  // NOLINT(bugprone-sizeof-expression)
  // The array is mapped, because the heap is the application's.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  auto* nodes = static_cast<CUgraphNode*>(memory);
  Need need;
  if (HEDDLE_REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS) {
    need = need_of(nodes, count);
  }
  munmap(memory, bytes);
  return need;
}

}  // namespace

void drop_graph(CUgraphExec exec) {
  const Held held(noting);
  if (Place* place = find(reinterpret_cast<uintptr_t>(exec))) place->exec.store(kGone);
}

void note_graph(CUgraphExec exec, CUgraph graph) {
  if (!graphs_allocate.load(std::memory_order_relaxed)) return;
  drop_graph(exec);  // the driver used its handle again
  const Need need = need_of(graph);
  if (need.bytes == 0) return;
  const Held held(noting);
  const auto key = reinterpret_cast<uintptr_t>(exec);
  for (size_t i = 0; i < kProbes; ++i) {
    Place& place = place_at(key, i);
    if (place.exec.load(std::memory_order_relaxed) > kGone) continue;
    place.bytes.store(need.bytes, std::memory_order_relaxed);
    place.device.store(need.device, std::memory_order_relaxed);
    place.exec.store(key, std::memory_order_release);
    return;
  }
}

void forget_reserved() {
  noting.forget();
  pools_lock.forget();
  for (Place& place : places) place.exec.store(0, std::memory_order_relaxed);
}

bool noted_graph_fits(CUgraphExec exec) {
  const Place* place = is_initialized() ? find(reinterpret_cast<uintptr_t>(exec)) : nullptr;
  if (place == nullptr) return true;
  const int device = place->device.load(std::memory_order_relaxed);
  const uint64_t bytes = place->bytes.load(std::memory_order_relaxed);
  if (fits_beside_graphs(device, bytes)) return true;
  // Before refusing the launch, update the account with memory that was given back; takes locks.
  settle_graphs(device);
  trim_pools(device);
  if (fits_beside_graphs(device, bytes)) return true;
  count_refused_memory(device);
  return false;
}

}  // namespace heddle::shim
