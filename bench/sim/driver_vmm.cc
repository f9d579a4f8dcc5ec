// Device memory that is only counted: nothing of ours reads or writes it. VMM handles and mappings,
// arrays, what graphs reserve.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

constexpr CUdeviceptr kReservedBase = 0x600000000000;
constexpr uint64_t kFirstNumber = 0x1000;  // small numbers, used again

template <class Map>
uint64_t free_number(const Map& map) {
  uint64_t number = kFirstNumber;
  while (map.count(number) != 0) ++number;
  return number;
}

// A handle of its own: none that names the memory already, and none that did.
CUmemGenericAllocationHandle name_memory(uint64_t memory) {
  const CUmemGenericAllocationHandle handle = free_number(driver().handles);
  driver().handles[handle] = {memory, 1};
  ++driver().device_memory[memory].handles;
  return handle;
}

void end_if_unused(uint64_t memory) {
  const auto at = driver().device_memory.find(memory);
  if (at->second.handles == 0 && at->second.mappings == 0) driver().device_memory.erase(at);
}

bool overlaps_mapping(CUdeviceptr at, size_t bytes) {
  const auto next = driver().mappings.lower_bound(at + bytes);
  if (next == driver().mappings.begin()) return false;
  const auto last = std::prev(next);
  return last->first + last->second.first > at;
}

// An array is one handle, and lives in its context.
CUresult create_array(CUarray* out, uint64_t bytes) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!has_room(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t number = free_number(driver().device_memory);
  driver().device_memory[number] = {bytes, call.context(), 1};
  *out = reinterpret_cast<CUarray>(number);
  return CUDA_SUCCESS;
}

// Waits as cuMemFree does, measured on an H100.
CUresult destroy_array(uint64_t number) {
  HEDDLE_SIM_CALL(call);
  const auto array = driver().device_memory.find(number);
  if (array == driver().device_memory.end()) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult error = drain_holding_up(call, array->second.context);
  driver().device_memory.erase(number);
  return error;
}

uint64_t elements(uint64_t width, uint64_t height, uint64_t depth, unsigned channels) {
  return width * std::max<uint64_t>(height, 1) * std::max<uint64_t>(depth, 1) * channels;
}

// Floats are all that our programs have in arrays.
bool is_float(int format) { return format == 0x20; }

}  // namespace

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
  const uint64_t number = free_number(driver().device_memory);
  driver().device_memory[number] = {here ? bytes : 0};
  *out = name_memory(number);
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  HEDDLE_SIM_CALL(call);
  const auto at = driver().handles.find(handle);
  if (at == driver().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t memory = at->second.memory;
  if (--at->second.references == 0) driver().handles.erase(at);
  --driver().device_memory[memory].handles;
  end_if_unused(memory);
  return CUDA_SUCCESS;
}
// Any address of a mapping will do.
HEDDLE_SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* at) {
  HEDDLE_SIM_CALL(call);
  const auto address = reinterpret_cast<CUdeviceptr>(at);
  if (!overlaps_mapping(address, 1)) return CUDA_ERROR_INVALID_VALUE;
  *out = name_memory(std::prev(driver().mappings.upper_bound(address))->second.second);
  return CUDA_SUCCESS;
}
// The file holds the number of the memory: only the process that made it can import it here.
HEDDLE_SIM_API CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                                     int type, unsigned long long) {
  HEDDLE_SIM_CALL(call);
  const auto at = driver().handles.find(handle);
  if (out == nullptr || at == driver().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (type != 1) return unsupported("cuMemExportToShareableHandle");
  const int file = memfd_create("heddle-sim-memory", MFD_CLOEXEC);
  const uint64_t memory = at->second.memory;
  if (file < 0 || write(file, &memory, sizeof memory) != sizeof memory) return CUDA_ERROR_UNKNOWN;
  *static_cast<int*>(out) = file;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out,
                                                       void* from, int type) {
  HEDDLE_SIM_CALL(call);
  if (type != 1) return unsupported("cuMemImportFromShareableHandle");
  const int file = static_cast<int>(reinterpret_cast<intptr_t>(from));
  uint64_t memory = 0;
  if (pread(file, &memory, sizeof memory, 0) != sizeof memory ||
      driver().device_memory.count(memory) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = name_memory(memory);
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
  const auto names = driver().handles.find(handle);
  if (names == driver().handles.end() || bytes == 0 || overlaps_mapping(at, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++driver().device_memory[names->second.memory].mappings;
  driver().mappings[at] = {bytes, names->second.memory};
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  HEDDLE_SIM_CALL(call);
  // Whole mappings, one behind the other, or nothing.
  const CUdeviceptr end = at + bytes;
  const auto& mappings = driver().mappings;
  CUdeviceptr next = at;
  for (auto it = mappings.find(at); next < end && it != mappings.end() && it->first == next; ++it) {
    next += it->second.first;
  }
  if (bytes == 0 || next != end) return CUDA_ERROR_INVALID_VALUE;
  while (at < end) {
    const auto [length, memory] = driver().mappings.extract(at).mapped();
    --driver().device_memory[memory].mappings;
    end_if_unused(memory);
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
  return destroy_array(reinterpret_cast<uint64_t>(array));
}
// One level is as good as many, since nothing reads it.
HEDDLE_SIM_API CUresult cuMipmappedArrayCreate(CUmipmappedArray* out,
                                               const CUDA_ARRAY3D_DESCRIPTOR* what, unsigned) {
  return cuArray3DCreate_v2(reinterpret_cast<CUarray*>(out), what);
}
HEDDLE_SIM_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return destroy_array(reinterpret_cast<uint64_t>(array));
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
