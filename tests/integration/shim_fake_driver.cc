// The least driver that the shim can stand on, told by its test when work is done. It answers at
// once, so that it also serves to time the shim itself. Everything it lacks is a missing symbol,
// which the shim must live with.
#include <pthread.h>

#include <atomic>
#include <cstring>

#include "shim/cuda/driver_api.h"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

int context_object;
thread_local CUcontext current = reinterpret_cast<CUcontext>(&context_object);
std::atomic<uint64_t> events{0x10000};

}  // namespace

// Controls, for shim_client.
FAKE std::atomic<int> fake_busy;         // nonzero: no event is complete
FAKE std::atomic<int> fake_launches;     // calls that succeeded
FAKE std::atomic<int> fake_priority;     // of the last launch that had one
FAKE std::atomic<int> fake_fail;         // result of the next launch
FAKE std::atomic<int> fake_event_calls;  // records and queries
FAKE std::atomic<int> fake_capturing;
std::atomic<int> fake_busy{0}, fake_launches{0}, fake_priority{0}, fake_fail{0},
    fake_event_calls{0}, fake_capturing{0};

FAKE CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
FAKE CUresult cuDriverGetVersion(int* version) { return *version = 12030, CUDA_SUCCESS; }
FAKE CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
FAKE CUresult cuDeviceGetAttribute(int* value, int, int) { return *value = 132, CUDA_SUCCESS; }
FAKE CUresult cuCtxGetCurrent(CUcontext* context) { return *context = current, CUDA_SUCCESS; }
FAKE CUresult cuCtxGetDevice(int* device) { return *device = 0, CUDA_SUCCESS; }
FAKE CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  return *context = current, CUDA_SUCCESS;
}
FAKE CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
FAKE CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }
FAKE CUresult cuMemAlloc_v2(CUdeviceptr*, size_t) { return CUDA_ERROR_OUT_OF_MEMORY; }

FAKE CUresult cuFuncGetName(const char** name, CUfunction f) {
  *name = reinterpret_cast<const char*>(f);  // a handle is its name
  return CUDA_SUCCESS;
}
FAKE CUresult cuFuncGetAttribute(int* value, int, CUfunction) { return *value = 32, CUDA_SUCCESS; }

FAKE CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(events.fetch_add(16));
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
// Real ones make system calls, some of which are cancellation points.
FAKE CUresult cuEventRecord(CUevent, CUstream) {
  pthread_testcancel();
  ++fake_event_calls;
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventQuery(CUevent) {
  ++fake_event_calls;
  return fake_busy != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
FAKE CUresult cuEventElapsedTime(float* ms, CUevent, CUevent) {
  *ms = 0.25f;
  return fake_busy != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult launch() {
  if (const int failure = fake_fail.exchange(0)) return static_cast<CUresult>(failure);
  fake_launches.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}
FAKE CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**, void**) {
  return launch();
}
FAKE CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, CUstream, void**, void**) {
  return launch();
}
FAKE CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void**, void**) {
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      fake_priority = config->attrs[i].value.priority;
    }
  }
  return launch();
}

FAKE CUresult cuStreamBeginCapture_v2(CUstream, int) { return fake_capturing = 1, CUDA_SUCCESS; }
FAKE CUresult cuStreamEndCapture(CUstream, CUgraph*) { return fake_capturing = 0, CUDA_SUCCESS; }
FAKE CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = fake_capturing != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

FAKE CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int, uint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  constexpr uint64_t kPerThread = 2;
  *pfn = nullptr;
  if (strcmp(symbol, "cuLaunchKernel") == 0) {
    *pfn = (flags & kPerThread) != 0 ? reinterpret_cast<void*>(cuLaunchKernel_ptsz)
                                     : reinterpret_cast<void*>(cuLaunchKernel);
  } else if (strcmp(symbol, "cuMemAlloc") == 0) {
    *pfn = reinterpret_cast<void*>(cuMemAlloc_v2);
  }
  if (status != nullptr) {
    *status = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
