// Initialization, the device, contexts.
#include <pthread.h>

#include <cstdlib>
#include <cstring>

#include "bench/sim/demo_kernels.h"
#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

constexpr char kName[] = "heddle simulated GPU (132 SMs)";
constexpr char kUuid[17] = "heddle-sim-gpu-0";

// A child of fork has no CUDA, as with the real driver.
void forget_in_child() { driver().initialized = false; }

CUresult attribute(int* out, CUdevice_attribute which) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out = kMaxBlockThreads;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *out = 48 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *out = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      *out = facts::kRegistersPerSm;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *out = 1'980'000;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *out = facts::kSmCount;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *out = facts::kThreadsPerSm;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *out = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *out = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *out = facts::kSharedBytesPerSm;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *out = facts::kRegistersPerSm;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *out = kMaxSharedBytes;
      break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      *out = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *out = facts::kBlocksPerSm;
      break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      *out = driver().link.region()->mps ? 1 : 0;
      break;
    default:
      return unsupported("cuDeviceGetAttribute");
  }
  return CUDA_SUCCESS;
}

CUresult check_device(CUdevice device) {
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (check_device(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = make_context(false, flags);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  this_thread().contexts.push_back(context);
  *out = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult destroy_primary(Call& call) {
  Driver& d = driver();
  if (d.primary == nullptr) return CUDA_SUCCESS;
  const CUresult error = drain(call, d.primary);
  drop_greens();
  destroy_context(d.primary);
  d.primary = nullptr;
  return error;
}

CUresult synchronize(Call& call, Context* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult error = check_unsafe();
  return error != CUDA_SUCCESS ? error : drain(call, context);
}

}  // namespace

Context* retain_primary() {
  Driver& d = driver();
  if (d.primary == nullptr) d.primary = make_context(true, d.primary_flags);
  if (d.primary != nullptr) ++d.primary_references;
  return d.primary;
}

CUresult release_primary(Call& call) {
  if (driver().primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return --driver().primary_references == 0 ? destroy_primary(call) : CUDA_SUCCESS;
}

}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  std::lock_guard lock(d.mutex);
  if (d.initialized) return CUDA_SUCCESS;
  if (d.link.region() != nullptr) return CUDA_ERROR_NOT_INITIALIZED;  // a fork's child
  if (!d.link.connect()) return CUDA_ERROR_NO_DEVICE;
  pthread_atfork(nullptr, nullptr, forget_in_child);
  d.initialized = true;
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = facts::kDriverVersion;
  return CUDA_SUCCESS;
}

HEDDLE_SIM_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  HEDDLE_SIM_CALL(call);
  if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuDeviceGetCount(int* count) {
  HEDDLE_SIM_CALL(call);
  *count = 1;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  strncpy(name, kName, static_cast<size_t>(length));
  name[length - 1] = 0;
  return check_device(device);
}
HEDDLE_SIM_API CUresult cuDeviceGetAttribute(int* out, CUdevice_attribute which, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return device == 0 ? attribute(out, which) : CUDA_ERROR_INVALID_DEVICE;
}
HEDDLE_SIM_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  memcpy(uuid->bytes, kUuid, sizeof uuid->bytes);
  const char* number = getenv("HEDDLE_SIM_GPU");
  if (number != nullptr && *number != 0) uuid->bytes[sizeof uuid->bytes - 1] = *number;
  return check_device(device);
}
HEDDLE_SIM_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid(uuid, device);
}
HEDDLE_SIM_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  *bytes = kHeapBytes;
  return check_device(device);
}

HEDDLE_SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  HEDDLE_SIM_CALL(call);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (check_device(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  Context* primary = retain_primary();
  if (primary == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUcontext>(primary);
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  HEDDLE_SIM_CALL(call);
  if (check_device(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  return release_primary(call);
}
HEDDLE_SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  HEDDLE_SIM_CALL(call);
  if (check_device(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  return destroy_primary(call);
}
HEDDLE_SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  HEDDLE_SIM_CALL(call);
  *flags = driver().primary_flags;
  *active = driver().primary != nullptr ? 1 : 0;
  return check_device(device);
}
HEDDLE_SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  HEDDLE_SIM_CALL(call);
  driver().primary_flags = flags;
  return check_device(device);
}

HEDDLE_SIM_API CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create(context, flags, device);
}
HEDDLE_SIM_API CUresult cuCtxCreate_v3(CUcontext* context, void*, int, unsigned flags,
                                       CUdevice device) {
  return create(context, flags, device);
}
HEDDLE_SIM_API CUresult cuCtxCreate_v4(CUcontext* context, void*, unsigned flags, CUdevice device) {
  return create(context, flags, device);
}
HEDDLE_SIM_API CUresult cuCtxDestroy_v2(CUcontext handle) {
  HEDDLE_SIM_CALL(call);
  Context* context = live<Context>(handle);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult error = drain(call, context);
  auto& stack = this_thread().contexts;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  destroy_context(context);
  return error;
}
// Without the lock, because the real driver answers in 8 ns: only this thread changes its stack,
// and contexts are never freed.
HEDDLE_SIM_API CUresult cuCtxGetCurrent(CUcontext* out) {
  if (!driver().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUcontext>(this_thread().current());
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuCtxSetCurrent(CUcontext handle) {
  HEDDLE_SIM_CALL(call);
  Context* context = live<Context>(handle);
  if (handle != nullptr && context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = this_thread().contexts;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  HEDDLE_SIM_CALL(call);
  Context* context = live<Context>(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  this_thread().contexts.push_back(context);
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  HEDDLE_SIM_CALL(call);
  auto& stack = this_thread().contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuCtxGetDevice(CUdevice* device) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  HEDDLE_SIM_CALL(call);
  const bool known =
      handle == nullptr ? call.context() != nullptr : live<Context>(handle) != nullptr;
  *device = 0;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
HEDDLE_SIM_API CUresult cuCtxSynchronize() {
  HEDDLE_SIM_CALL(call);
  return synchronize(call, call.context());
}
HEDDLE_SIM_API CUresult cuCtxSynchronize_v2(CUcontext handle) {
  HEDDLE_SIM_CALL(call);
  return synchronize(call, handle == nullptr ? call.context() : live<Context>(handle));
}
HEDDLE_SIM_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  HEDDLE_SIM_CALL(call);
  if (call.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (least != nullptr) *least = facts::kPriorityLeast;
  if (greatest != nullptr) *greatest = facts::kPriorityGreatest;
  return CUDA_SUCCESS;
}
