// The entry points that allocate device memory: each allocation is counted, and refused with CUDA's
// own error beyond the limit.
//
// Not counted: memory that another process made and this one opens (IPC, imported handles), memory
// of other APIs, and memory that contexts and modules take for themselves (shim/MEMORY_LIMITS.md).
#include <algorithm>

#include "shim/admission/gate.h"
#include "shim/driver/driver.h"
#include "shim/entry/wait.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"
#include "shim/memory/account.h"
#include "shim/memory/reserved.h"

namespace heddle::shim {
namespace {

constexpr int kNoDevice = -1;
constexpr int kFileHandle = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

// The calling thread's device. kNoDevice without a context, and without an account: before the
// first cuInit, in a forked child, and with HEDDLE_DISABLE=1.
int accounted_device() { return is_initialized() ? current_device() : kNoDevice; }

// No GPU has this much memory. The driver refuses larger requests, so the shim need not add them
// up, and no sum overflows.
constexpr uint64_t kBytesMost = uint64_t{1} << 50;

// The device for which `bytes` at `out` are to be counted.
int device_for(const void* out, uint64_t bytes) {
  return out != nullptr && bytes != 0 && bytes <= kBytesMost ? accounted_device() : kNoDevice;
}

bool claim(int device, uint64_t bytes) {
  settle_graphs(device);
  if (claim_memory(device, bytes)) return true;
  if (trim_pools(device) && claim_memory(device, bytes)) return true;
  count_refused_memory(device);
  return false;
}

// ---- the shapes that the entry points have ----

// real() allocates `bytes` of device memory, and writes the allocation's key to `out`.
template <class Key, class Real>
CUresult allocate(Holds kind, uint64_t bytes, Key* out, Real&& real) {
  const int device = device_for(out, bytes);
  if (device == kNoDevice) return real();
  if (!claim(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real();
  if (result != CUDA_SUCCESS) {
    unclaim_memory(device, bytes);
  } else {
    hold_memory(kind, (uint64_t)(*out), current_context(), device, bytes);
  }
  return result;
}

// The allocation is taken out of the table before the driver frees it: another thread may get the
// same address at once.
template <class Key, class Real>
CUresult release(Holds kind, Key key, Real&& real) {
  Holding held;
  if (!is_initialized() || !take_memory(kind, (uint64_t)key, held)) return real();
  const CUresult result = real();
  if (result == CUDA_SUCCESS) {
    unclaim_memory(held.device, held.bytes);
  } else {
    put_memory_back(held);
  }
  return result;
}

// The driver chooses the pitch, and tells it only afterwards. So the width is counted, rounded up
// as drivers align rows.
template <class Address, class Size, class Real>
CUresult allocate_pitched(Address* at, Size* pitch, uint64_t width, uint64_t height, Real&& real) {
  constexpr uint64_t kPitch = 512;
  const uint64_t row = (width + kPitch - 1) / kPitch * kPitch;
  const bool too_large = row != 0 && height > kBytesMost / row;
  const uint64_t expected = too_large ? 0 : row * height;
  const int device = pitch != nullptr ? device_for(at, expected) : kNoDevice;
  if (device == kNoDevice) return real();
  if (!claim(device, expected)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real();
  if (result != CUDA_SUCCESS) {
    unclaim_memory(device, expected);
    return result;
  }
  hold_memory(Holds::kPointer, *at, current_context(), device, expected);
  return result;
}

// Bytes of one channel of one element.
uint64_t bytes_of_format(int format) {
  switch (format) {
    case 0x01:  // 8 bits
    case 0x08:
    case 0xc0:
    case 0xc1:
    case 0xc2:
    case 0xc6:
    case 0xc7:
    case 0xc8:
      return 1;
    case 0x02:  // 16 bits
    case 0x09:
    case 0x10:
    case 0xc3:
    case 0xc4:
    case 0xc5:
    case 0xc9:
    case 0xca:
    case 0xcb:
      return 2;
    default:
      // Block-compressed formats have a byte or less for all channels of an element.
      return format >= 0x91 && format <= 0x9d ? 1 : 4;
  }
}

// By the descriptor, without padding: the driver does not tell how much it adds.
template <class Descriptor>
uint64_t bytes_of_plane(const Descriptor& what) {
  const uint64_t height = std::max<uint64_t>(what.Height, 1);
  return what.Width * height * what.NumChannels * bytes_of_format(what.Format);
}
template <class Descriptor>
uint64_t bytes_of_array(const Descriptor* what, unsigned levels = 1) {
  if (what == nullptr || (what->Flags & (kArray3dSparse | kArray3dDeferredMapping)) != 0) {
    return 0;  // no memory yet: cuMemMapArrayAsync maps memory of cuMemCreate there
  }
  uint64_t bytes = 0;
  Descriptor level = *what;
  constexpr unsigned kLevelsMost = 32;
  for (unsigned i = 0; i < std::min(std::max(levels, 1u), kLevelsMost); ++i) {
    bytes += bytes_of_plane(level) * std::max<uint64_t>(level.Depth, 1);
    const auto halve = [](auto& extent) { extent = extent > 1 ? extent / 2 : extent; };
    halve(level.Width);
    halve(level.Height);
    if ((level.Flags & (kArray3dLayered | kArray3dCubemap)) == 0) halve(level.Depth);
  }
  return bytes;
}

// A pool counts by its reserved size. If the driver does not tell that, each allocation counts.
template <class Real>
CUresult allocate_in_order(CUdeviceptr* at, uint64_t bytes, CUmemoryPool pool, StreamRef stream,
                           Real&& real) {
  const int device = device_for(at, bytes);
  if (device == kNoDevice) return real();
  if (anything_captures() && stream_captures(stream)) {
    graphs_allocate.store(true, std::memory_order_relaxed);
    return real();
  }
  const uint64_t claimed = pool_has_room(pool, device, bytes) ? 0 : bytes;
  if (claimed != 0 && !claim(device, claimed)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real();
  const CUmemoryPool settled = settle_pool(pool, device);
  if (settled == nullptr && result == CUDA_SUCCESS) {
    hold_memory(Holds::kPointer, *at, current_context(), device, claimed);
    return result;
  }
  if (result == CUDA_SUCCESS) hold_pooled(*at, settled, device, bytes);
  unclaim_memory(device, claimed);
  return result;
}

template <class Real>
CUresult free_in_order(CUdeviceptr at, Real&& real) {
  const CUresult result = release(Holds::kPointer, at, real);
  const int device = result == CUDA_SUCCESS ? accounted_device() : kNoDevice;
  if (device == kNoDevice) return result;
  settle_pool(nullptr, device);
  return result;
}

void note_node(const CUgraphNodeType* what) {
  if (what != nullptr && *what == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    graphs_allocate.store(true, std::memory_order_relaxed);
  }
}

// ---- the limit shown as the device's memory ----

template <class Size>
void show_limit(int device, Size* free, Size* total) {
  if (device == kNoDevice) return;
  settle_graphs(device);
  const MemoryView view = view_memory(device);
  if (view.limit == 0) return;
  const uint64_t left = view.limit > view.used ? view.limit - view.used : 0;
  if (total != nullptr && *total > view.limit) *total = static_cast<Size>(view.limit);
  if (free != nullptr && *free > left) *free = static_cast<Size>(left);
}

}  // namespace
}  // namespace heddle::shim

using namespace heddle::shim;

extern "C" {

CUresult cuMemAlloc(unsigned* at, unsigned bytes) noexcept {
  return allocate(Holds::kPointer, bytes, at, [&] { return HEDDLE_REAL(cuMemAlloc)(at, bytes); });
}
CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) noexcept {
  return allocate(Holds::kPointer, bytes, at,
                  [&] { return HEDDLE_REAL(cuMemAlloc_v2)(at, bytes); });
}
CUresult cuMemAllocPitch(unsigned* at, unsigned* pitch, unsigned width, unsigned height,
                         unsigned element) noexcept {
  return allocate_pitched(at, pitch, width, height, [&] {
    return HEDDLE_REAL(cuMemAllocPitch)(at, pitch, width, height, element);
  });
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* at, size_t* pitch, size_t width, size_t height,
                            unsigned element) noexcept {
  return allocate_pitched(at, pitch, width, height, [&] {
    return HEDDLE_REAL(cuMemAllocPitch_v2)(at, pitch, width, height, element);
  });
}
CUresult cuMemAllocManaged(CUdeviceptr* at, size_t bytes, unsigned flags) noexcept {
  return allocate(Holds::kPointer, bytes, at,
                  [&] { return HEDDLE_REAL(cuMemAllocManaged)(at, bytes, flags); });
}
CUresult cuMemFree(unsigned at) noexcept {
  const ImplicitWait wait;
  return release(Holds::kPointer, at, [&] { return HEDDLE_REAL(cuMemFree)(at); });
}
CUresult cuMemFree_v2(CUdeviceptr at) noexcept {
  const ImplicitWait wait;
  return release(Holds::kPointer, at, [&] { return HEDDLE_REAL(cuMemFree_v2)(at); });
}
CUresult cuMemFreeHost(void* at) noexcept {
  const ImplicitWait wait;
  return HEDDLE_REAL(cuMemFreeHost)(at);
}
CUresult cuMemHostUnregister(void* at) noexcept {
  const ImplicitWait wait;
  return HEDDLE_REAL(cuMemHostUnregister)(at);
}

CUresult cuMemGetInfo(unsigned* free, unsigned* total) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemGetInfo)(free, total);
  if (result == CUDA_SUCCESS) show_limit(accounted_device(), free, total);
  return result;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemGetInfo_v2)(free, total);
  if (result == CUDA_SUCCESS) show_limit(accounted_device(), free, total);
  return result;
}
CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device) noexcept {
  const CUresult result = HEDDLE_REAL(cuDeviceTotalMem)(bytes, device);
  if (result == CUDA_SUCCESS && is_initialized()) show_limit<unsigned>(device, nullptr, bytes);
  return result;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) noexcept {
  const CUresult result = HEDDLE_REAL(cuDeviceTotalMem_v2)(bytes, device);
  if (result == CUDA_SUCCESS && is_initialized()) show_limit<size_t>(device, nullptr, bytes);
  return result;
}

CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* what) noexcept {
  return allocate(Holds::kArray, what != nullptr ? bytes_of_plane(*what) : 0, array,
                  [&] { return HEDDLE_REAL(cuArrayCreate)(array, what); });
}
CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* what) noexcept {
  return allocate(Holds::kArray, what != nullptr ? bytes_of_plane(*what) : 0, array,
                  [&] { return HEDDLE_REAL(cuArrayCreate_v2)(array, what); });
}
CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* what) noexcept {
  return allocate(Holds::kArray, bytes_of_array(what), array,
                  [&] { return HEDDLE_REAL(cuArray3DCreate)(array, what); });
}
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* what) noexcept {
  return allocate(Holds::kArray, bytes_of_array(what), array,
                  [&] { return HEDDLE_REAL(cuArray3DCreate_v2)(array, what); });
}
CUresult cuArrayDestroy(CUarray array) noexcept {
  const ImplicitWait wait;
  return release(Holds::kArray, array, [&] { return HEDDLE_REAL(cuArrayDestroy)(array); });
}
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* what,
                                unsigned levels) noexcept {
  return allocate(Holds::kArray, bytes_of_array(what, levels), array,
                  [&] { return HEDDLE_REAL(cuMipmappedArrayCreate)(array, what, levels); });
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) noexcept {
  const ImplicitWait wait;
  return release(Holds::kArray, array, [&] { return HEDDLE_REAL(cuMipmappedArrayDestroy)(array); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* what, unsigned long long flags) noexcept {
  const auto real = [&] { return HEDDLE_REAL(cuMemCreate)(handle, bytes, what, flags); };
  if (!is_initialized() || handle == nullptr || what == nullptr || bytes == 0 ||
      bytes > kBytesMost || what->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return real();
  }
  const int device = what->location.id;
  if (!claim(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real();
  if (result != CUDA_SUCCESS) {
    unclaim_memory(device, bytes);
  } else {
    hold_physical(*handle, device, bytes);
  }
  return result;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept {
  if (is_initialized()) release_handle(handle);
  return HEDDLE_REAL(cuMemRelease)(handle);
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* at) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemRetainAllocationHandle)(handle, at);
  if (result == CUDA_SUCCESS && is_initialized()) {
    retain_handle(*handle, reinterpret_cast<uint64_t>(at));
  }
  return result;
}
CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemExportToShareableHandle)(out, handle, type, flags);
  if (result != CUDA_SUCCESS) return result;
  note_peer();
  if (is_initialized() && type == kFileHandle) export_handle(handle, *static_cast<int*>(out));
  return result;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* from,
                                        int type) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemImportFromShareableHandle)(handle, from, type);
  if (result != CUDA_SUCCESS) return result;
  note_peer();
  if (is_initialized() && type == kFileHandle) {
    import_handle(*handle, static_cast<int>(reinterpret_cast<intptr_t>(from)));
  }
  return result;
}
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemMap)(at, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && is_initialized()) map_handle(handle, at, bytes);
  return result;
}
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemUnmap)(at, bytes);
  if (result == CUDA_SUCCESS && is_initialized()) unmap_range(at, bytes);
  return result;
}

CUresult cuMemAllocAsync(CUdeviceptr* at, size_t bytes, CUstream stream) noexcept {
  return allocate_in_order(at, bytes, nullptr, {stream, false},
                           [&] { return HEDDLE_REAL(cuMemAllocAsync)(at, bytes, stream); });
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* at, size_t bytes, CUstream stream) noexcept {
  return allocate_in_order(at, bytes, nullptr, {stream, true},
                           [&] { return HEDDLE_REAL(cuMemAllocAsync_ptsz)(at, bytes, stream); });
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* at, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) noexcept {
  return allocate_in_order(at, bytes, pool, {stream, false}, [&] {
    return HEDDLE_REAL(cuMemAllocFromPoolAsync)(at, bytes, pool, stream);
  });
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* at, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) noexcept {
  return allocate_in_order(at, bytes, pool, {stream, true}, [&] {
    return HEDDLE_REAL(cuMemAllocFromPoolAsync_ptsz)(at, bytes, pool, stream);
  });
}
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) noexcept {
  return free_in_order(at, [&] { return HEDDLE_REAL(cuMemFreeAsync)(at, stream); });
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream) noexcept {
  return free_in_order(at, [&] { return HEDDLE_REAL(cuMemFreeAsync_ptsz)(at, stream); });
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemPoolTrimTo)(pool, keep);
  const int device = result == CUDA_SUCCESS ? accounted_device() : kNoDevice;
  if (device != kNoDevice) settle_pool(pool, device);
  return result;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) noexcept {
  const PoolsHeld alone;
  return release(Holds::kPool, pool, [&] {
    const CUresult result = HEDDLE_REAL(cuMemPoolDestroy)(pool);
    if (result == CUDA_SUCCESS && is_initialized()) count_pooled(pool);
    return result;
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) noexcept {
  const CUresult result = HEDDLE_REAL(cuDeviceGraphMemTrim)(device);
  if (result == CUDA_SUCCESS && is_initialized()) settle_graphs(device);
  return result;
}
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                size_t count, void* what) noexcept {
  graphs_allocate.store(true, std::memory_order_relaxed);
  return HEDDLE_REAL(cuGraphAddMemAllocNode)(node, graph, after, count, what);
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                        CUgraphNodeType* what) noexcept {
  note_node(what);
  return HEDDLE_REAL(cuGraphAddNode)(node, graph, after, count, what);
}
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                           const void* edges, size_t count, CUgraphNodeType* what) noexcept {
  note_node(what);
  return HEDDLE_REAL(cuGraphAddNode_v2)(node, graph, after, edges, count, what);
}

}  // extern "C"
