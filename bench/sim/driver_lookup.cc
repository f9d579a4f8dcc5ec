// Look-ups by name and number: entry points, errors, export tables.
#include <string>

#include "bench/sim/driver.h"

namespace heddle::sim {
namespace {

// First version of the variants that are newer than 3020, which brought most _v2.
struct Since {
  const char* name;
  int version;
};
constexpr Since kSince[] = {
    {"cuCtxCreate_v3", 11040},
    {"cuCtxCreate_v4", 12050},
    {"cuCtxDestroy_v2", 4000},
    {"cuCtxGetDevice_v2", 13000},
    {"cuCtxPopCurrent_v2", 4000},
    {"cuCtxPushCurrent_v2", 4000},
    {"cuCtxSynchronize_v2", 13000},
    {"cuDeviceGetUuid_v2", 11040},
    {"cuDevicePrimaryCtxRelease_v2", 11000},
    {"cuDevicePrimaryCtxReset_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags_v2", 11000},
    {"cuEventDestroy_v2", 4000},
    {"cuEventElapsedTime_v2", 12080},
    {"cuGetProcAddress_v2", 12000},
    {"cuGraphInstantiate_v2", 11000},
    {"cuGraphKernelNodeGetParams_v2", 12000},
    {"cuGraphKernelNodeSetParams_v2", 12000},
    {"cuMemHostRegister_v2", 6050},
    {"cuStreamBatchMemOp_v2", 11070},
    {"cuStreamBeginCapture_v2", 10010},
    {"cuStreamDestroy_v2", 4000},
    {"cuStreamGetCtx_v2", 12050},
    {"cuStreamWaitValue32_v2", 11070},
    {"cuStreamWaitValue64_v2", 11070},
    {"cuStreamWriteValue32_v2", 11070},
    {"cuStreamWriteValue64_v2", 11070},
};

int since(const std::string& name) {
  for (const Since& entry : kSince) {
    if (name == entry.name) return entry.version;
  }
  return 3020;
}

constexpr unsigned long long kPerThreadFlag = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

const Entry* per_thread_form(const std::string& name) {
  const Entry* entry = find_entry(name + "_ptsz");
  return entry != nullptr ? entry : find_entry(name + "_ptds");
}

// The newest variant of `symbol` that `version` knows.
const Entry* select(const std::string& symbol, int version, unsigned long long flags,
                    CUdriverProcAddressQueryResult& status) {
  status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  // This name changed its signature without a suffix.
  if (symbol == "cuGraphInstantiate" && version >= 12000) {
    status = CU_GET_PROC_ADDRESS_SUCCESS;
    return find_entry("cuGraphInstantiateWithFlags");
  }
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    const std::string name = symbol + suffix;
    const Entry* entry = find_entry(name);
    if (entry == nullptr) continue;
    if (*suffix != 0 && since(name) > version) {
      status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      continue;
    }
    status = CU_GET_PROC_ADDRESS_SUCCESS;
    const Entry* threaded = (flags & kPerThreadFlag) != 0 ? per_thread_form(name) : nullptr;
    return threaded != nullptr ? threaded : entry;
  }
  return nullptr;
}

struct Error {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr Error kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed now"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would merge separate captures"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the stream"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last "
     "recorded in a capturing stream"},
    {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult describe(CUresult code, const char** out, const char* Error::*field) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  for (const Error& error : kErrors) {
    if (error.code == code) *out = error.*field;
  }
  return *out == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace
}  // namespace heddle::sim

using namespace heddle::sim;

HEDDLE_SIM_API CUresult cuGetProcAddress_v2(const char* symbol, void** out, int version,
                                            unsigned long long flags,
                                            CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdriverProcAddressQueryResult found;
  const Entry* entry = select(symbol, version, flags, found);
  *out = entry == nullptr ? nullptr : reinterpret_cast<void*>(entry->address);
  if (status != nullptr) *status = found;
  return entry == nullptr && status == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
HEDDLE_SIM_API CUresult cuGetProcAddress(const char* symbol, void** out, int version,
                                         unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, out, version, flags, nullptr);
}
HEDDLE_SIM_API CUresult cuGetErrorName(CUresult error, const char** name) {
  return describe(error, name, &Error::name);
}
HEDDLE_SIM_API CUresult cuGetErrorString(CUresult error, const char** text) {
  return describe(error, text, &Error::text);
}
// The private tables of the CUDA runtime: the simulated driver has none.
HEDDLE_SIM_API CUresult cuGetExportTable(const void**, const CUuuid*) {
  return CUDA_ERROR_NOT_FOUND;
}
