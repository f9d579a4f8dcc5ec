// Stream-ordered allocation: pools, which keep what is given back until they are trimmed, or until
// the driver has no other room (as with a release threshold that nothing reaches).
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

uint64_t whole_blocks(uint64_t bytes) {
  return (bytes + kGranularity - 1) / kGranularity * kGranularity;
}

Pool* device_pool() {
  Driver& d = driver();
  if (d.pools.empty()) d.pools.push_back(d.current_pool = new Pool);
  return d.pools.front();
}

Pool* current_pool() {
  device_pool();
  return driver().current_pool;
}

// What a destroyed handle does is not defined: here it ends the program.
Pool* find_pool(CUmemoryPool handle) {
  Pool* pool = live<Pool>(handle);
  if (pool != nullptr && !pool->destroyed) return pool;
  fputs("simulated driver: a pool that was destroyed is used\n", stderr);
  abort();
}

CUmemoryPool handle_of(Pool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }

void trim(Pool& pool, uint64_t keep) {
  pool.reserved = std::min(pool.reserved, whole_blocks(std::max(pool.used, keep)));
}

void end_if_unused(Pool* pool) {
  if (!pool->destroyed || pool->used != 0) return;
  pool->tag = 0;
  std::erase(driver().pools, pool);
}

CUresult capture_memory(Stream* stream, CUdeviceptr address, uint64_t bytes, bool frees) {
  const CUresult error = capture_node(stream, {});
  if (error != CUDA_SUCCESS) return error;
  Node& node = stream->capture->nodes.back();
  node.memory = address;
  node.bytes = bytes;
  node.frees = frees;
  return CUDA_SUCCESS;
}

CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUmemoryPool from, CUstream handle,
                        NullStream null) {
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
  Pool* pool = from != nullptr ? find_pool(from) : current_pool();
  const uint64_t reserved = std::max(pool->reserved, whole_blocks(pool->used + bytes));
  if (!has_room(reserved - pool->reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
  error = allocate_device(call, out, bytes);
  if (error != CUDA_SUCCESS) return error;
  d.device_memory.erase(*out);  // it counts with the pool
  d.pooled[*out] = pool;
  pool->used += bytes;
  pool->reserved = std::max(pool->reserved, whole_blocks(pool->used));
  return CUDA_SUCCESS;
}

CUresult free_async(CUdeviceptr address, CUstream handle, NullStream null) {
  HEDDLE_SIM_CALL(call);
  CUresult error;
  Stream* stream = find_stream(call, handle, null, error);
  if (stream == nullptr) return error;
  if (stream->capture != nullptr) return capture_memory(stream, address, 0, true);
  return free_behind(stream, address);
}

}  // namespace

// As the real one, it takes what pools keep and do not use before it says that there is none.
bool has_room(uint64_t bytes) {
  const auto fits = [bytes] {
    const uint64_t used = device_bytes();
    return used <= kHeapBytes && bytes <= kHeapBytes - used;
  };
  if (fits()) return true;
  for (Pool* pool : driver().pools) trim(*pool, 0);
  return fits();
}

void give_to_pool(CUdeviceptr address, uint64_t bytes) {
  const auto pooled = driver().pooled.extract(address);
  if (pooled.empty()) return;
  pooled.mapped()->used -= bytes;
  end_if_unused(pooled.mapped());
}

}  // namespace heddle::sim

using namespace heddle::sim;

#define HEDDLE_POOL_CALLS(suffix, null)                                                         \
  HEDDLE_SIM_API CUresult cuMemAllocAsync##suffix(CUdeviceptr* out, size_t bytes,               \
                                                  CUstream stream) {                            \
    return allocate_async(out, bytes, nullptr, stream, null);                                   \
  }                                                                                             \
  HEDDLE_SIM_API CUresult cuMemAllocFromPoolAsync##suffix(CUdeviceptr* out, size_t bytes,       \
                                                          CUmemoryPool pool, CUstream stream) { \
    return allocate_async(out, bytes, pool, stream, null);                                      \
  }                                                                                             \
  HEDDLE_SIM_API CUresult cuMemFreeAsync##suffix(CUdeviceptr address, CUstream stream) {        \
    return free_async(address, stream, null);                                                   \
  }
HEDDLE_POOL_CALLS(, NullStream::kLegacy)
HEDDLE_POOL_CALLS(_ptsz, NullStream::kPerThread)

HEDDLE_SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  *out = handle_of(current_pool());
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
HEDDLE_SIM_API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  HEDDLE_SIM_CALL(call);
  device_pool();
  driver().current_pool = find_pool(pool);
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
HEDDLE_SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  *out = handle_of(device_pool());
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
HEDDLE_SIM_API CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* what) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr || what == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (what->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return unsupported("cuMemPoolCreate");
  device_pool();
  driver().pools.push_back(new Pool);
  *out = handle_of(driver().pools.back());
  return CUDA_SUCCESS;
}
// The device's current pool is its own again if it was this one.
HEDDLE_SIM_API CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  HEDDLE_SIM_CALL(call);
  Pool* pool = find_pool(handle);
  if (pool == device_pool()) return CUDA_ERROR_INVALID_VALUE;
  if (pool == driver().current_pool) driver().current_pool = device_pool();
  pool->destroyed = true;
  trim(*pool, 0);
  end_if_unused(pool);
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute which,
                                              void* value) {
  HEDDLE_SIM_CALL(call);
  const Pool* pool = find_pool(handle);
  if (which != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT && which != CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    return unsupported("cuMemPoolGetAttribute");
  }
  *static_cast<uint64_t*>(value) =
      which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? pool->used : pool->reserved;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  HEDDLE_SIM_CALL(call);
  trim(*find_pool(handle), keep);
  return CUDA_SUCCESS;
}
