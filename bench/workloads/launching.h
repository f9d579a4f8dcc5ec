// Launching by the driver API, with launch attributes: for the microbenchmarks.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <vector>

#include "watch.h"

namespace heddle::bench {

template <typename Kernel>
CUfunction function_of(Kernel* kernel) {
  CUfunction f;
  CHECK(cudaGetFuncBySymbol(&f, reinterpret_cast<const void*>(kernel)));
  return f;
}

inline void launch(CUfunction f, CUstream stream, void** args,
                   const std::vector<CUlaunchAttribute>& attributes, unsigned blocks = 1) {
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.hStream = stream;
  config.attrs = const_cast<CUlaunchAttribute*>(attributes.data());
  config.numAttrs = static_cast<unsigned>(attributes.size());
  CHECK(cuLaunchKernelEx(&config, f, args, nullptr));
}

inline CUlaunchAttribute priority_attribute(int priority) {
  CUlaunchAttribute a = {};
  a.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  a.value.priority = priority;
  return a;
}

inline CUlaunchAttribute dependent_attribute() {
  CUlaunchAttribute a = {};
  a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  a.value.programmaticStreamSerializationAllowed = 1;
  return a;
}

// Records `event` once all blocks of the launch have begun.
inline CUlaunchAttribute completion_attribute(CUevent event) {
  CUlaunchAttribute a = {};
  a.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  a.value.launchCompletionEvent.event = event;
  return a;
}

// A word of the host's that the GPU can write.
inline CUdeviceptr mapped_word() {
  void* host = nullptr;
  CUdeviceptr device = 0;
  CHECK(cuMemHostAlloc(&host, sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK(cuMemHostGetDevicePointer(&device, host, 0));
  return device;
}

}  // namespace heddle::bench
