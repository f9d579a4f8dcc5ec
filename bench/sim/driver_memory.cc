// Memory: allocations, copies, fills. Device and pinned memory lie in the heap that the owner maps
// too, so that the owner carries out copies in stream order. Copies take no modelled time.
#include <algorithm>
#include <cstring>

#include "bench/sim/driver.h"

namespace heddle::sim {

namespace {

constexpr uint64_t kAlignment = 256;

bool pinned(CUdeviceptr address) {
  const auto base = reinterpret_cast<CUdeviceptr>(driver().link.heap());
  return address >= base && address - base < kHeapBytes;
}

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Staging of copies that are done, and what was freed behind work that is.
void release_staging() {
  Driver& d = driver();
  while (!d.staged.empty() && d.link.done(d.staged.front().slot) >= d.staged.front().seq) {
    d.allocations.erase(d.staged.front().offset);
    d.staged.pop_front();
  }
}

CUresult copy_from_pageable(Call& call, Stream* stream, Command& command, const void* from) {
  Driver& d = driver();
  if (stream->capture != nullptr) return unsupported("cuMemcpyAsync");
  release_staging();
  command.src = allocate(command.bytes);
  if (command.src == kNoHeap) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(d.link.heap() + command.src, from, command.bytes);
  const CUresult error = issue(call, stream, command);
  if (error != CUDA_SUCCESS) {
    d.allocations.erase(command.src);
  } else {
    d.staged.push_back({stream->slot, stream->issued, command.src});
  }
  return error;
}

// Into pageable memory a copy is synchronous, as the real driver's are.
CUresult copy_to_pageable(Call& call, Stream* stream, void* to, uint64_t from, uint64_t bytes) {
  if (stream->capture != nullptr) return unsupported("cuMemcpyAsync");
  Command marker;
  CUresult error = issue(call, stream, marker);
  if (error == CUDA_SUCCESS) error = wait_for(call, stream->slot, stream->issued);
  if (error == CUDA_SUCCESS) memcpy(to, driver().link.heap() + from, bytes);
  return error;
}

enum class Side { kDevice, kHost, kUnknown };

// `kUnknown` of cuMemcpy: host memory unless the address says otherwise.
CUresult copy(CUdeviceptr to, Side to_side, CUdeviceptr from, Side from_side, uint64_t bytes,
              CUstream handle, NullStream null, bool wait) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (wait) {
    error = check_legacy(stream->context);
    if (error == CUDA_SUCCESS) error = check_unsafe();
    if (error != CUDA_SUCCESS) return error;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  const auto in_heap = [&](CUdeviceptr address, Side side) {
    const bool device = address >= kDeviceBase && address - kDeviceBase < kHeapBytes;
    return side == Side::kDevice || pinned(address) || (side == Side::kUnknown && device);
  };
  const bool to_heap = in_heap(to, to_side);
  const bool from_heap = in_heap(from, from_side);
  Command command;
  command.kind = CommandKind::kCopy;
  command.bytes = bytes;
  command.dst = to_heap ? locate(to, bytes) : 0;
  command.src = from_heap ? locate(from, bytes) : 0;
  if (command.dst == kNoHeap || command.src == kNoHeap) return CUDA_ERROR_INVALID_VALUE;
  if (!to_heap && !from_heap) return unsupported("cuMemcpy");
  if (!to_heap) {
    return copy_to_pageable(call, stream, reinterpret_cast<void*>(to), command.src, bytes);
  }
  error = from_heap ? issue(call, stream, command)
                    : copy_from_pageable(call, stream, command, reinterpret_cast<void*>(from));
  if (error != CUDA_SUCCESS || !wait) return error;
  return wait_for(call, stream->slot, stream->issued);
}

CUresult fill(CUdeviceptr to, uint64_t value, uint8_t width, uint64_t count, CUstream handle,
              NullStream null, bool wait) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  Command command;
  command.kind = CommandKind::kFill;
  command.width = width;
  command.value = value;
  command.bytes = count * width;
  command.dst = locate(to, command.bytes);
  if (command.dst == kNoHeap || to % width != 0) return CUDA_ERROR_INVALID_VALUE;
  error = issue(call, stream, command);
  if (error != CUDA_SUCCESS || !wait) return error;
  return wait_for(call, stream->slot, stream->issued);
}

CUresult reserve(Call& call, uint64_t bytes, uint64_t& offset) {
  stand_back(call, true);
  const CUresult error = check_unsafe();
  if (error != CUDA_SUCCESS) return error;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  release_staging();
  if (!has_room(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  offset = allocate(bytes);
  return offset == kNoHeap ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

// Freeing waits for the device, as cuMemFree does.
CUresult release(Call& call, CUdeviceptr base, CUdeviceptr address) {
  Context* context = call.context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error = check_unsafe();
  if (error != CUDA_SUCCESS) return error;
  if (address == 0) return CUDA_SUCCESS;
  const auto allocation = driver().allocations.find(address - base);
  if (address < base || allocation == driver().allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  error = drain_holding_up(call, context);
  driver().allocations.erase(address - base);
  return error;
}

}  // namespace

// First fit.
uint64_t allocate(uint64_t bytes) {
  auto& allocations = driver().allocations;
  if (bytes > kHeapBytes) return kNoHeap;
  const uint64_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  uint64_t offset = 0;
  for (const auto& [at, length] : allocations) {
    if (at - offset >= size) break;
    offset = at + (length + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (offset + size > kHeapBytes) return kNoHeap;
  allocations[offset] = bytes;
  return offset;
}

uint64_t locate(CUdeviceptr address, uint64_t bytes) {
  const auto& allocations = driver().allocations;
  const auto heap = reinterpret_cast<CUdeviceptr>(driver().link.heap());
  const uint64_t offset = pinned(address) ? address - heap : address - kDeviceBase;
  auto allocation = allocations.upper_bound(offset);
  if (allocation == allocations.begin()) return kNoHeap;
  --allocation;
  const uint64_t within = offset - allocation->first;
  return within <= allocation->second && bytes <= allocation->second - within ? offset : kNoHeap;
}

uint64_t device_bytes() {
  uint64_t all = driver().graphs_reserved;
  for (const Pool* pool : driver().pools) all += pool->reserved;
  for (const auto& [key, memory] : driver().device_memory) all += memory.bytes;
  return all;
}

CUresult allocate_device(Call& call, CUdeviceptr* out, uint64_t bytes) {
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t offset;
  const CUresult error = reserve(call, bytes, offset);
  if (error != CUDA_SUCCESS) return error;
  *out = kDeviceBase + offset;
  driver().device_memory[*out] = {bytes, call.context()};
  return CUDA_SUCCESS;
}

CUresult free_device(Call& call, CUdeviceptr address) {
  const auto allocation = driver().allocations.find(address - kDeviceBase);
  const uint64_t bytes = allocation != driver().allocations.end() ? allocation->second : 0;
  const CUresult error = release(call, kDeviceBase, address);
  if (error != CUDA_SUCCESS) return error;
  driver().device_memory.erase(address);
  give_to_pool(address, bytes);
  return CUDA_SUCCESS;
}

CUresult free_behind(Stream* stream, CUdeviceptr address) {
  Driver& d = driver();
  if (address == 0) return CUDA_SUCCESS;
  const auto allocation = d.allocations.find(address - kDeviceBase);
  if (allocation == d.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  order_against_legacy(stream);  // a free is no command, which would be ordered as it is put in
  d.staged.push_back({stream->slot, stream->issued, allocation->first});
  d.device_memory.erase(address);
  give_to_pool(address, allocation->second);
  return CUDA_SUCCESS;
}

void release_context_memory(Context* context) {
  Driver& d = driver();
  std::erase_if(d.registered, [=](const auto& entry) { return entry.second.context == context; });
  for (auto it = d.device_memory.begin(); it != d.device_memory.end();) {
    if (it->second.context != context) {
      ++it;
      continue;
    }
    if (it->first >= kDeviceBase) d.allocations.erase(it->first - kDeviceBase);
    it = d.device_memory.erase(it);
  }
}

}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  HEDDLE_SIM_CALL(call);
  return allocate_device(call, out, bytes);
}
HEDDLE_SIM_API CUresult cuMemFree_v2(CUdeviceptr address) {
  HEDDLE_SIM_CALL(call);
  return free_device(call, address);
}
HEDDLE_SIM_API CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t offset;
  const CUresult error = reserve(call, bytes, offset);
  if (error == CUDA_SUCCESS) *out = driver().link.heap() + offset;
  return error;
}
HEDDLE_SIM_API CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return cuMemHostAlloc(out, bytes, 0);
}
HEDDLE_SIM_API CUresult cuMemFreeHost(void* pointer) {
  HEDDLE_SIM_CALL(call);
  return release(call, address_of(driver().link.heap()), address_of(pointer));
}
HEDDLE_SIM_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *total = kHeapBytes;
  *free = kHeapBytes - std::min(kHeapBytes, device_bytes());
  return CUDA_SUCCESS;
}

// A copy or fill in its four forms: synchronous and asynchronous, each with both NULL streams.
#define HEDDLE_COPY(sync, async, To, to_side, From, from_side, to, from)                 \
  HEDDLE_SIM_API CUresult sync(To d, From s, size_t n) {                                 \
    return copy(to, to_side, from, from_side, n, nullptr, NullStream::kLegacy, true);    \
  }                                                                                      \
  HEDDLE_SIM_API CUresult sync##_ptds(To d, From s, size_t n) {                          \
    return copy(to, to_side, from, from_side, n, nullptr, NullStream::kPerThread, true); \
  }                                                                                      \
  HEDDLE_SIM_API CUresult async(To d, From s, size_t n, CUstream stream) {               \
    return copy(to, to_side, from, from_side, n, stream, NullStream::kLegacy, false);    \
  }                                                                                      \
  HEDDLE_SIM_API CUresult async##_ptsz(To d, From s, size_t n, CUstream stream) {        \
    return copy(to, to_side, from, from_side, n, stream, NullStream::kPerThread, false); \
  }

HEDDLE_COPY(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, Side::kDevice, const void*,
            Side::kHost, d, address_of(s))
HEDDLE_COPY(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void*, Side::kHost, CUdeviceptr, Side::kDevice,
            address_of(d), s)
HEDDLE_COPY(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, Side::kDevice, CUdeviceptr,
            Side::kDevice, d, s)
HEDDLE_COPY(cuMemcpy, cuMemcpyAsync, CUdeviceptr, Side::kUnknown, CUdeviceptr, Side::kUnknown, d, s)

#define HEDDLE_FILL(sync, async, Value, width)                                              \
  HEDDLE_SIM_API CUresult sync(CUdeviceptr d, Value v, size_t n) {                          \
    return fill(d, v, width, n, nullptr, NullStream::kLegacy, true);                        \
  }                                                                                         \
  HEDDLE_SIM_API CUresult sync##_ptds(CUdeviceptr d, Value v, size_t n) {                   \
    return fill(d, v, width, n, nullptr, NullStream::kPerThread, true);                     \
  }                                                                                         \
  HEDDLE_SIM_API CUresult async(CUdeviceptr d, Value v, size_t n, CUstream stream) {        \
    return fill(d, v, width, n, stream, NullStream::kLegacy, false);                        \
  }                                                                                         \
  HEDDLE_SIM_API CUresult async##_ptsz(CUdeviceptr d, Value v, size_t n, CUstream stream) { \
    return fill(d, v, width, n, stream, NullStream::kPerThread, false);                     \
  }

HEDDLE_FILL(cuMemsetD8_v2, cuMemsetD8Async, unsigned char, 1)
HEDDLE_FILL(cuMemsetD32_v2, cuMemsetD32Async, unsigned, 4)
