// Device memory that is only counted: nothing of ours reads or writes it. VMM handles and mappings,
// arrays, the default pool.
#include <algorithm>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

constexpr uint64_t kGranularity = uint64_t{2} << 20;  // of cuMemCreate, and of what a pool reserves
constexpr CUdeviceptr kReservedBase = 0x600000000000;
constexpr uint64_t kFirstHandle = 0x1000;  // handles are small numbers, used again

uint64_t free_handle() {
  uint64_t handle = kFirstHandle;
  while (driver().device_memory.count(handle) != 0) ++handle;
  return handle;
}

void end_if_unused(uint64_t handle) {
  const auto at = driver().device_memory.find(handle);
  if (at->second.handles == 0 && at->second.mappings == 0) driver().device_memory.erase(at);
}

// An array is one handle, and lives in its context.
CUresult create_array(CUarray* out, uint64_t bytes) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!has_room(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t handle = free_handle();
  driver().device_memory[handle] = {bytes, call.context(), 1};
  *out = reinterpret_cast<CUarray>(handle);
  return CUDA_SUCCESS;
}

uint64_t elements(uint64_t width, uint64_t height, uint64_t depth, unsigned channels) {
  return width * std::max<uint64_t>(height, 1) * std::max<uint64_t>(depth, 1) * channels;
}

// Floats are all that our programs have in arrays.
bool is_float(int format) { return format == 0x20; }

CUresult capture_memory(Stream* stream, CUdeviceptr address, uint64_t bytes, bool frees) {
  const CUresult error = capture_node(stream, {});
  if (error != CUDA_SUCCESS) return error;
  Node& node = stream->capture->nodes.back();
  node.memory = address;
  node.bytes = bytes;
  node.frees = frees;
  return CUDA_SUCCESS;
}

CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUstream handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  Driver& d = driver();
  if (stream->capture != nullptr) {
    // An address at once, memory at the launch.
    error = allocate_device(call, out, bytes);
    if (error != CUDA_SUCCESS) return error;
    d.device_memory.erase(*out);
    return capture_memory(stream, *out, bytes, false);
  }
  const uint64_t used = d.pool_used + bytes;
  const uint64_t reserved =
      std::max(d.pool_reserved, (used + kGranularity - 1) / kGranularity * kGranularity);
  if (!has_room(reserved - d.pool_reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
  error = allocate_device(call, out, bytes);
  if (error != CUDA_SUCCESS) return error;
  d.device_memory.erase(*out);  // it counts with the pool
  d.pool_used = used;
  d.pool_reserved = reserved;
  return CUDA_SUCCESS;
}

CUresult free_async(CUdeviceptr address, CUstream handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (stream->capture != nullptr) return capture_memory(stream, address, 0, true);
  const auto allocation = driver().allocations.find(address - kDeviceBase);
  if (allocation == driver().allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t bytes = allocation->second;
  error = free_device(call, address);
  if (error == CUDA_SUCCESS) driver().pool_used -= bytes;
  return error;
}

}  // namespace

bool has_room(uint64_t bytes) {
  const uint64_t used = device_bytes();
  return used <= kHeapBytes && bytes <= kHeapBytes - used;
}

CUresult reserve_for(const Graph& graph) {
  std::map<CUdeviceptr, uint64_t> live;
  uint64_t now = 0, most = 0;
  for (const Node& node : graph.nodes) {
    if (node.memory == 0) continue;
    if (node.frees) {
      now -= live[node.memory];
      live.erase(node.memory);
    } else {
      now += live[node.memory] = node.bytes;
    }
    most = std::max(most, now);
  }
  Driver& d = driver();
  most = (most + kGranularity - 1) / kGranularity * kGranularity;
  if (most <= d.graphs_reserved) return CUDA_SUCCESS;
  if (!has_room(most - d.graphs_reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
  d.graphs_reserved = most;
  return CUDA_SUCCESS;
}

}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned) {
  HEDDLE_SIM_CALL(call);
  return allocate_device(call, out, bytes);
}
HEDDLE_SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width,
                                           size_t height, unsigned) {
  HEDDLE_SIM_CALL(call);
  constexpr size_t kPitch = 512;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return allocate_device(call, out, *pitch * height);
}

HEDDLE_SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                                    const CUmemAllocationProp* what, unsigned long long) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr || what == nullptr || bytes == 0 || bytes % kGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool here = what->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (here && what->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (here && !has_room(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = free_handle();
  driver().device_memory[*out] = {here ? bytes : 0, nullptr, 1};
  return CUDA_SUCCESS;
}
// A handle that is still mapped keeps its number, unlike the real driver's.
HEDDLE_SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  HEDDLE_SIM_CALL(call);
  const auto at = driver().device_memory.find(handle);
  if (at == driver().device_memory.end() || at->second.handles == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  --at->second.handles;
  end_if_unused(handle);
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* at) {
  HEDDLE_SIM_CALL(call);
  const auto mapping = driver().mappings.find(reinterpret_cast<CUdeviceptr>(at));
  if (mapping == driver().mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  *out = mapping->second.second;
  ++driver().device_memory[*out].handles;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr,
                                            unsigned long long) {
  HEDDLE_SIM_CALL(call);
  static CUdeviceptr next = kReservedBase;
  *out = next;
  next += (bytes + kGranularity - 1) / kGranularity * kGranularity;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
HEDDLE_SIM_API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t,
                                 CUmemGenericAllocationHandle handle, unsigned long long) {
  HEDDLE_SIM_CALL(call);
  const auto memory = driver().device_memory.find(handle);
  if (memory == driver().device_memory.end() || driver().mappings.count(at) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++memory->second.mappings;
  driver().mappings[at] = {bytes, handle};
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  HEDDLE_SIM_CALL(call);
  for (const CUdeviceptr end = at + bytes; at < end;) {
    const auto mapping = driver().mappings.find(at);
    if (mapping == driver().mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto [length, handle] = mapping->second;
    driver().mappings.erase(mapping);
    --driver().device_memory[handle].mappings;
    end_if_unused(handle);
    at += length;
  }
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp*,
                                                      int) {
  *out = kGranularity;
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* what) {
  if (what == nullptr || !is_float(what->Format)) return CUDA_ERROR_INVALID_VALUE;
  return create_array(out, 4 * elements(what->Width, what->Height, 1, what->NumChannels));
}
HEDDLE_SIM_API CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* what) {
  if (what == nullptr || !is_float(what->Format)) return CUDA_ERROR_INVALID_VALUE;
  return create_array(out, 4 * elements(what->Width, what->Height, what->Depth, what->NumChannels));
}
HEDDLE_SIM_API CUresult cuArrayDestroy(CUarray array) {
  HEDDLE_SIM_CALL(call);
  return driver().device_memory.erase(reinterpret_cast<uint64_t>(array)) != 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

HEDDLE_SIM_API CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate_async(out, bytes, stream, NullStream::kLegacy);
}
HEDDLE_SIM_API CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate_async(out, bytes, stream, NullStream::kPerThread);
}
HEDDLE_SIM_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_async(address, stream, NullStream::kLegacy);
}
HEDDLE_SIM_API CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free_async(address, stream, NullStream::kPerThread);
}
HEDDLE_SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  *out = reinterpret_cast<CUmemoryPool>(&driver().pool_used);
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
HEDDLE_SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  return cuDeviceGetMemPool(out, device);
}
HEDDLE_SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute which,
                                              void* value) {
  HEDDLE_SIM_CALL(call);
  if (which != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT && which != CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    return unsupported("cuMemPoolGetAttribute");
  }
  *static_cast<uint64_t*>(value) =
      which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? driver().pool_used : driver().pool_reserved;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool, size_t keep) {
  HEDDLE_SIM_CALL(call);
  Driver& d = driver();
  const uint64_t least = std::max<uint64_t>(d.pool_used, keep);
  d.pool_reserved =
      std::min(d.pool_reserved, (least + kGranularity - 1) / kGranularity * kGranularity);
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which,
                                                     void* value) {
  HEDDLE_SIM_CALL(call);
  if (which != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) {
    return unsupported("cuDeviceGetGraphMemAttribute");
  }
  *static_cast<uint64_t*>(value) = driver().graphs_reserved;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
HEDDLE_SIM_API CUresult cuDeviceGraphMemTrim(CUdevice device) {
  HEDDLE_SIM_CALL(call);
  driver().graphs_reserved = 0;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
HEDDLE_SIM_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle,
                                                     CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  HEDDLE_SIM_CALL(call);
  const Node* node = live<Node>(handle);
  if (node == nullptr || node->memory == 0 || node->frees || out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = {};
  out->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  out->bytesize = node->bytes;
  out->dptr = node->memory;
  return CUDA_SUCCESS;
}

// No entry point of the real driver: what this process holds on the device, as the driver counts.
HEDDLE_SIM_API CUresult heddle_sim_device_bytes(uint64_t* bytes) {
  HEDDLE_SIM_CALL(call);
  *bytes = device_bytes();
  return CUDA_SUCCESS;
}
