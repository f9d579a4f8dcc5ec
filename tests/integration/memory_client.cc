// A program that allocates device memory as it is told, one line each, and answers with the result:
// `alloc KIND BYTES` (slot, or -code), `free SLOT`, `info` (free total), `total`, `driver` (bytes,
// by the driver's own count), `fork` (a child that lives as long), `random SEED COUNT MOST`,
// `reset`; `create BYTES`, `import HANDLE`, `retain MAPPING` (handle, or -code), `release HANDLE`,
// `map HANDLE` (mapping), `unmap MAPPING`; `pools ROUNDS`, `drop_pool`.
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shim/driver/driver_api.h"

namespace {

template <class Function>
Function* entry(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    std::cerr << "no " << name << '\n';
    _exit(3);
  }
  return reinterpret_cast<Function*>(address);
}

void* cuda() {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library;
}
#define CALL(name, type) entry<CUresult type>(cuda(), #name)

constexpr uint64_t kBlock = uint64_t{2} << 20;

struct Slot {
  char kind = 0;  // 0: free
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUarray array = nullptr;
  uint64_t bytes = 0;
};
std::vector<Slot> slots;

CUresult make_vmm(Slot& slot) {
  CUmemAllocationProp what{};
  what.type = 1;
  what.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  slot.bytes = (slot.bytes + kBlock - 1) / kBlock * kBlock;
  static auto create = CALL(cuMemCreate, (CUmemGenericAllocationHandle*, size_t,
                                          const CUmemAllocationProp*, unsigned long long));
  static auto reserve =
      CALL(cuMemAddressReserve, (CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long));
  static auto map = CALL(
      cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long));
  static auto release = CALL(cuMemRelease, (CUmemGenericAllocationHandle));
  CUresult result = create(&slot.handle, slot.bytes, &what, 0);
  if (result != CUDA_SUCCESS) return result;
  if (reserve(&slot.at, slot.bytes, 0, 0, 0) != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
  result = map(slot.at, slot.bytes, 0, slot.handle, 0);
  // As PyTorch's expandable segments: what is mapped lives on without its handle.
  return result == CUDA_SUCCESS ? release(slot.handle) : result;
}

CUmemoryPool make_pool() {
  static auto create = CALL(cuMemPoolCreate, (CUmemoryPool*, const CUmemPoolProps*));
  CUmemPoolProps what{};
  what.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  create(&pool, &what);
  return pool;
}

CUmemoryPool own_pool = nullptr;

CUresult make(Slot& slot) {
  switch (slot.kind) {
    case 'm':
      static auto alloc = CALL(cuMemAlloc_v2, (CUdeviceptr*, size_t));
      return alloc(&slot.at, slot.bytes);
    case 'u':
      static auto managed = CALL(cuMemAllocManaged, (CUdeviceptr*, size_t, unsigned));
      return managed(&slot.at, slot.bytes, 1);
    case 'p': {
      static auto pitched =
          CALL(cuMemAllocPitch_v2, (CUdeviceptr*, size_t*, size_t, size_t, unsigned));
      size_t pitch = 0;
      return pitched(&slot.at, &pitch, slot.bytes / 64 + 1, 64, 4);
    }
    case 'v':
      return make_vmm(slot);
    case 'a': {
      static auto array = CALL(cuArrayCreate_v2, (CUarray*, const CUDA_ARRAY_DESCRIPTOR*));
      const CUDA_ARRAY_DESCRIPTOR what{slot.bytes / 4 / 16 + 1, 16, 0x20, 1};
      return array(&slot.array, &what);
    }
    case 's':
      static auto async = CALL(cuMemAllocAsync, (CUdeviceptr*, size_t, CUstream));
      return async(&slot.at, slot.bytes, nullptr);
    case 'f': {
      static auto from =
          CALL(cuMemAllocFromPoolAsync, (CUdeviceptr*, size_t, CUmemoryPool, CUstream));
      if (own_pool == nullptr) own_pool = make_pool();
      return from(&slot.at, slot.bytes, own_pool, nullptr);
    }
    case 't':
      static auto async_ptsz = CALL(cuMemAllocAsync_ptsz, (CUdeviceptr*, size_t, CUstream));
      return async_ptsz(&slot.at, slot.bytes, nullptr);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult end(const Slot& slot) {
  switch (slot.kind) {
    case 'v':
      static auto unmap = CALL(cuMemUnmap, (CUdeviceptr, size_t));
      return unmap(slot.at, slot.bytes);
    case 'a':
      static auto destroy = CALL(cuArrayDestroy, (CUarray));
      return destroy(slot.array);
    case 'f':
    case 's':
    case 't':
      static auto async = CALL(cuMemFreeAsync, (CUdeviceptr, CUstream));
      return async(slot.at, nullptr);
    default:
      static auto free = CALL(cuMemFree_v2, (CUdeviceptr));
      return free(slot.at);
  }
}

int allocate(char kind, uint64_t bytes) {
  Slot slot;
  slot.kind = kind;
  slot.bytes = bytes;
  const CUresult result = make(slot);
  if (result != CUDA_SUCCESS) return -static_cast<int>(result);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].kind != 0) continue;
    slots[i] = slot;
    return static_cast<int>(i);
  }
  slots.push_back(slot);
  return static_cast<int>(slots.size() - 1);
}

CUresult release(size_t at) {
  if (at >= slots.size() || slots[at].kind == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = end(slots[at]);
  if (result == CUDA_SUCCESS) slots[at].kind = 0;
  return result;
}

// Graphs that allocate so much, `count` times, made by capture; each is freed before the next, or
// none is.
std::vector<CUgraphExec> graphs;

int make_graph(uint64_t bytes, int count, bool kept) {
  static auto create = CALL(cuStreamCreate, (CUstream*, unsigned));
  static auto begin = CALL(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode));
  static auto end = CALL(cuStreamEndCapture, (CUstream, CUgraph*));
  static auto make = CALL(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, uint64_t));
  static auto async = CALL(cuMemAllocAsync, (CUdeviceptr*, size_t, CUstream));
  static auto free = CALL(cuMemFreeAsync, (CUdeviceptr, CUstream));
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUresult result = create(&stream, 1);
  if (result == CUDA_SUCCESS) result = begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (int i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    CUdeviceptr at = 0;
    result = async(&at, bytes, stream);
    if (result == CUDA_SUCCESS && !kept) result = free(at, stream);
  }
  if (result == CUDA_SUCCESS) result = end(stream, &graph);
  if (result == CUDA_SUCCESS) result = make(&exec, graph, 0);
  if (result != CUDA_SUCCESS) return -static_cast<int>(result);
  graphs.push_back(exec);
  return static_cast<int>(graphs.size() - 1);
}

// ---- handles and mappings, by number ----

std::vector<CUmemGenericAllocationHandle> handles;
std::vector<CUdeviceptr> mappings;
uint64_t physical_bytes = 0;  // of what was created last

int made(CUresult result, CUmemGenericAllocationHandle handle) {
  if (result != CUDA_SUCCESS) return -static_cast<int>(result);
  handles.push_back(handle);
  return static_cast<int>(handles.size() - 1);
}

int create_physical(uint64_t bytes) {
  CUmemAllocationProp what{};
  what.type = what.requestedHandleTypes = 1;
  what.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  physical_bytes = bytes;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result =
      CALL(cuMemCreate, (CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                         unsigned long long))(&handle, bytes, &what, 0);
  return made(result, handle);
}

// Out by a file and in again.
int import_own(CUmemGenericAllocationHandle from) {
  int file = -1;
  CUresult result = CALL(cuMemExportToShareableHandle, (void*, CUmemGenericAllocationHandle, int,
                                                        unsigned long long))(&file, from, 1, 0);
  if (result != CUDA_SUCCESS) return -static_cast<int>(result);
  CUmemGenericAllocationHandle handle = 0;
  result = CALL(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle*, void*, int))(
      &handle, reinterpret_cast<void*>(static_cast<intptr_t>(file)), 1);
  close(file);
  return made(result, handle);
}

int map_physical(CUmemGenericAllocationHandle handle) {
  CUdeviceptr at = 0;
  CALL(cuMemAddressReserve, (CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long))
  (&at, physical_bytes, 0, 0, 0);
  const CUresult result = CALL(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                                          unsigned long long))(at, physical_bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) return -static_cast<int>(result);
  mappings.push_back(at);
  return static_cast<int>(mappings.size() - 1);
}

// By an address in its middle.
int retain_mapped(CUdeviceptr at) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = CALL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle*, void*))(
      &handle, reinterpret_cast<void*>(at + physical_bytes / 2));
  return made(result, handle);
}

// What the command is not: -1000.
int physical_work(const std::string& command, uint64_t which) {
  if (command == "create") return create_physical(which);
  if (command == "import") return import_own(handles.at(which));
  if (command == "map") return map_physical(handles.at(which));
  if (command == "retain") return retain_mapped(mappings.at(which));
  if (command == "release") {
    return static_cast<int>(CALL(cuMemRelease, (CUmemGenericAllocationHandle))(handles.at(which)));
  }
  if (command == "unmap") {
    return static_cast<int>(
        CALL(cuMemUnmap, (CUdeviceptr, size_t))(mappings.at(which), physical_bytes));
  }
  return -1000;
}

// One thread makes pools, uses and destroys them; this one allocates too much meanwhile, so that
// what all pools reserve is looked at.
CUresult churn_pools(int rounds) {
  CUcontext context = nullptr;
  CALL(cuCtxGetCurrent, (CUcontext*))(&context);
  std::atomic<bool> done{false};
  std::atomic<int> error{CUDA_SUCCESS};
  std::thread other([&] {
    CALL(cuCtxSetCurrent, (CUcontext))(context);
    const auto destroy = CALL(cuMemPoolDestroy, (CUmemoryPool));
    const auto from = CALL(cuMemAllocFromPoolAsync, (CUdeviceptr*, size_t, CUmemoryPool, CUstream));
    const auto free = CALL(cuMemFreeAsync, (CUdeviceptr, CUstream));
    for (int i = 0; i < rounds && error == CUDA_SUCCESS; ++i) {
      const CUmemoryPool pool = make_pool();
      CUdeviceptr at = 0;
      CUresult result = from(&at, kBlock, pool, nullptr);
      if (result == CUDA_SUCCESS) result = free(at, nullptr);
      if (result == CUDA_SUCCESS) result = destroy(pool);
      error = result;
    }
    done = true;
  });
  const auto alloc = CALL(cuMemAlloc_v2, (CUdeviceptr*, size_t));
  while (!done) {
    CUdeviceptr at = 0;
    if (alloc(&at, uint64_t{1} << 40) == CUDA_SUCCESS) error = CUDA_ERROR_UNKNOWN;
  }
  other.join();
  return static_cast<CUresult>(error.load());
}

void fork_child() {
  const pid_t parent = getpid();
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (getppid() == parent) pause();  // it may have been killed before that
  _exit(0);
}

// Random allocations and frees; now and then a child that is there for a moment. How many were
// refused, or "error CODE" for what is neither success nor out of memory.
std::string random_work(unsigned seed, int count, uint64_t most) {
  std::mt19937_64 random(seed);
  constexpr char kKinds[] = {'m', 'u', 'p', 'v', 'a', 's', 't'};
  constexpr size_t kSlots = 24;
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const size_t at = random() % kSlots;
    if (at < slots.size() && slots[at].kind != 0) {
      if (const CUresult result = release(at); result != CUDA_SUCCESS) {
        return "error " + std::to_string(result);
      }
    } else {
      const int made = allocate(kKinds[random() % std::size(kKinds)], 1 + random() % most);
      if (made < 0 && made != -CUDA_ERROR_OUT_OF_MEMORY) return "error " + std::to_string(-made);
      refused += made < 0 ? 1 : 0;
    }
    if (random() % 2000 == 0) {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      waitpid(child, nullptr, 0);
    }
  }
  return std::to_string(refused);
}

// Nanoseconds of an allocation and its free: the median of `count`.
std::string time_pairs(int count) {
  std::vector<int64_t> took;
  for (int i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const int slot = allocate('m', 4096);
    if (slot < 0 || release(static_cast<size_t>(slot)) != CUDA_SUCCESS) return "error";
    took.push_back((std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(took.begin(), took.begin() + count / 2, took.end());
  return std::to_string(took[static_cast<size_t>(count / 2)]);
}

std::string answer(const std::string& line) {
  std::istringstream in(line);
  std::string command;
  in >> command;
  if (command == "alloc") {
    std::string kind;
    uint64_t bytes = 0;
    in >> kind >> bytes;
    return std::to_string(allocate(kind[0], bytes));
  }
  if (command == "free") {
    size_t slot = 0;
    in >> slot;
    return std::to_string(release(slot));
  }
  if (command == "graph") {
    uint64_t bytes = 0;
    int count = 0;
    bool kept = false;
    in >> bytes >> count >> kept;
    return std::to_string(make_graph(bytes, count, kept));
  }
  if (command == "launch") {
    size_t graph = 0;
    in >> graph;
    return std::to_string(CALL(cuGraphLaunch, (CUgraphExec, CUstream))(graphs.at(graph), nullptr));
  }
  if (command == "trim") return std::to_string(CALL(cuDeviceGraphMemTrim, (CUdevice))(0));
  if (command == "info") {
    size_t free = 0, total = 0;
    const CUresult result = CALL(cuMemGetInfo_v2, (size_t*, size_t*))(&free, &total);
    return result == CUDA_SUCCESS ? std::to_string(free) + ' ' + std::to_string(total)
                                  : "error " + std::to_string(result);
  }
  if (command == "total") {
    size_t total = 0;
    CALL(cuDeviceTotalMem_v2, (size_t*, CUdevice))(&total, 0);
    return std::to_string(total);
  }
  if (command == "driver") {
    uint64_t bytes = 0;
    static void* const driver = dlopen(getenv("HEDDLE_REAL_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
    entry<CUresult(uint64_t*)>(driver, "heddle_sim_device_bytes")(&bytes);
    return std::to_string(bytes);
  }
  if (command == "fork") {
    fork_child();
    return "0";
  }
  if (command == "random") {
    unsigned seed = 0;
    int count = 0;
    uint64_t most = 0;
    in >> seed >> count >> most;
    return random_work(seed, count, most);
  }
  if (command == "time") {
    int count = 0;
    in >> count;
    return time_pairs(count);
  }
  if (command == "pools") {
    int rounds = 0;
    in >> rounds;
    return std::to_string(churn_pools(rounds));
  }
  if (command == "drop_pool") {
    return std::to_string(CALL(cuMemPoolDestroy, (CUmemoryPool))(std::exchange(own_pool, nullptr)));
  }
  if (command == "reset") {
    slots.clear();
    return std::to_string(CALL(cuDevicePrimaryCtxReset_v2, (CUdevice))(0));
  }
  uint64_t which = 0;
  in >> which;
  const int result = physical_work(command, which);
  return result != -1000 ? std::to_string(result) : "no such command";
}

}  // namespace

int main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CUcontext context;
  CUresult result = CALL(cuInit, (unsigned))(0);
  if (result == CUDA_SUCCESS)
    result = CALL(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))(&context, 0);
  if (result == CUDA_SUCCESS) result = CALL(cuCtxSetCurrent, (CUcontext))(context);
  std::cout << result << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(line) << std::endl;
}
