// The driver as the demo programs and the conformance program see it: whatever libcuda.so.1 the
// loader finds, the real one, the simulated one, or a shim before either. Nothing is linked.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "shim/driver/driver_api.h"

namespace heddle::workloads {

// Name, result of the look-up's field, parameters.
#define HEDDLE_DRIVER_CALLS(X)                                                                    \
  X(cuInit, (unsigned))                                                                           \
  X(cuDriverGetVersion, (int*))                                                                   \
  X(cuDeviceGet, (CUdevice*, int))                                                                \
  X(cuDeviceGetName, (char*, int, CUdevice))                                                      \
  X(cuDeviceGetAttribute, (int*, CUdevice_attribute, CUdevice))                                   \
  X(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                                             \
  X(cuCtxCreate_v2, (CUcontext*, unsigned, CUdevice))                                             \
  X(cuCtxDestroy_v2, (CUcontext))                                                                 \
  X(cuCtxSetCurrent, (CUcontext))                                                                 \
  X(cuCtxGetCurrent, (CUcontext*))                                                                \
  X(cuCtxPushCurrent_v2, (CUcontext))                                                             \
  X(cuCtxPopCurrent_v2, (CUcontext*))                                                             \
  X(cuCtxSynchronize, ())                                                                         \
  X(cuCtxGetStreamPriorityRange, (int*, int*))                                                    \
  X(cuModuleLoadData, (CUmodule*, const void*))                                                   \
  X(cuModuleGetFunction, (CUfunction*, CUmodule, const char*))                                    \
  X(cuModuleUnload, (CUmodule))                                                                   \
  X(cuLibraryLoadData, (CUlibrary*, const void*, void*, void*, unsigned, void*, void*, unsigned)) \
  X(cuLibraryGetKernel, (CUkernel*, CUlibrary, const char*))                                      \
  X(cuKernelGetName, (const char**, CUkernel))                                                    \
  X(cuFuncGetName, (const char**, CUfunction))                                                    \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, CUfunction, int, size_t))                 \
  X(cuMemAlloc_v2, (CUdeviceptr*, size_t))                                                        \
  X(cuMemFree_v2, (CUdeviceptr))                                                                  \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                                   \
  X(cuMemcpyHtoD_v2, (CUdeviceptr, const void*, size_t))                                          \
  X(cuMemcpyDtoH_v2, (void*, CUdeviceptr, size_t))                                                \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void*, size_t, CUstream))                           \
  X(cuMemcpyDtoHAsync_v2, (void*, CUdeviceptr, size_t, CUstream))                                 \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                           \
  X(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))                                          \
  X(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                                  \
  X(cuStreamCreate, (CUstream*, unsigned))                                                        \
  X(cuStreamCreateWithPriority, (CUstream*, unsigned, int))                                       \
  X(cuStreamGetPriority, (CUstream, int*))                                                        \
  X(cuStreamGetCtx, (CUstream, CUcontext*))                                                       \
  X(cuStreamDestroy_v2, (CUstream))                                                               \
  X(cuStreamSynchronize, (CUstream))                                                              \
  X(cuStreamQuery, (CUstream))                                                                    \
  X(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                             \
  X(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                     \
  X(cuStreamEndCapture, (CUstream, CUgraph*))                                                     \
  X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))                                      \
  X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))                                    \
  X(cuEventCreate, (CUevent*, unsigned))                                                          \
  X(cuEventDestroy_v2, (CUevent))                                                                 \
  X(cuEventRecord, (CUevent, CUstream))                                                           \
  X(cuEventQuery, (CUevent))                                                                      \
  X(cuEventSynchronize, (CUevent))                                                                \
  X(cuEventElapsedTime, (float*, CUevent, CUevent))                                               \
  X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,      \
                     unsigned, CUstream, void**, void**))                                         \
  X(cuLaunchKernel_ptsz, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                          unsigned, CUstream, void**, void**))                                    \
  X(cuLaunchKernelEx, (const CUlaunchConfig*, CUfunction, void**, void**))                        \
  X(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long))                     \
  X(cuGraphLaunch, (CUgraphExec, CUstream))                                                       \
  X(cuGraphGetNodes, (CUgraph, CUgraphNode*, size_t*))                                            \
  X(cuGraphKernelNodeGetParams_v2, (CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*))                    \
  X(cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, void*))                                          \
  X(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec, CUgraphNode, const void*))                   \
  X(cuGraphExecDestroy, (CUgraphExec))                                                            \
  X(cuGraphDestroy, (CUgraph))                                                                    \
  X(cuGetErrorName, (CUresult, const char**))                                                     \
  X(cuGetProcAddress_v2,                                                                          \
    (const char*, void**, int, unsigned long long, CUdriverProcAddressQueryResult*))

struct Driver {
#define HEDDLE_DECLARE(name, params) CUresult(*name) params = nullptr;
  HEDDLE_DRIVER_CALLS(HEDDLE_DECLARE)
#undef HEDDLE_DECLARE
  void* library = nullptr;

  // Ends the program with status 2 if the driver or a function of it is missing.
  static Driver load() {
    Driver driver;
    driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver.library == nullptr) {
      fprintf(stderr, "no CUDA driver: %s; set LD_LIBRARY_PATH\n", dlerror());
      exit(2);
    }
#define HEDDLE_RESOLVE(name, params)                                                \
  driver.name = reinterpret_cast<CUresult(*) params>(dlsym(driver.library, #name)); \
  if (driver.name == nullptr) {                                                     \
    fprintf(stderr, "the CUDA driver lacks " #name ": it is too old\n");            \
    exit(2);                                                                        \
  }
    HEDDLE_DRIVER_CALLS(HEDDLE_RESOLVE)
#undef HEDDLE_RESOLVE
    return driver;
  }
};

// demo.ptx, with a terminating zero.
extern "C" const char heddle_demo_ptx[];

// state = state * kStateFactor + value: what heddle_spin does to its word.
inline constexpr uint64_t kStateFactor = 6364136223846793005ULL;

}  // namespace heddle::workloads
