// Copies and memsets that return before they are done: recorded as activity, never held back.
#include "shim/driver.h"
#include "shim/gate.h"

using namespace heddle::shim;
using heddle::wire::Kind;

// Without a stream the call goes to the default stream of its variant.
#define HEDDLE_ACTIVITY(name, kind, per_thread, stream, parameters, arguments) \
  CUresult name parameters noexcept;                                           \
  CUresult name parameters noexcept {                                          \
    note_activity({stream, per_thread}, kind);                                 \
    return HEDDLE_REAL(name) arguments;                                        \
  }
#define HEDDLE_ASYNC(name, kind, parameters, arguments)             \
  HEDDLE_ACTIVITY(name, kind, false, stream, parameters, arguments) \
  HEDDLE_ACTIVITY(name##_ptsz, kind, true, stream, parameters, arguments)
#define HEDDLE_DEFAULT_STREAM(name, kind, parameters, arguments)     \
  HEDDLE_ACTIVITY(name, kind, false, nullptr, parameters, arguments) \
  HEDDLE_ACTIVITY(name##_ptds, kind, true, nullptr, parameters, arguments)

#pragma GCC visibility push(default)
extern "C" {

// clang-format off
HEDDLE_ASYNC(cuMemcpyAsync, Kind::COPY, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
HEDDLE_ASYNC(cuMemcpyHtoDAsync_v2, Kind::COPY, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream), (to, from, bytes, stream))
HEDDLE_ASYNC(cuMemcpyDtoHAsync_v2, Kind::COPY, (void* to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
HEDDLE_ASYNC(cuMemcpyDtoDAsync_v2, Kind::COPY, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
HEDDLE_ASYNC(cuMemcpy2DAsync_v2, Kind::COPY, (const void* copy, CUstream stream), (copy, stream))
HEDDLE_ASYNC(cuMemcpy3DAsync_v2, Kind::COPY, (const void* copy, CUstream stream), (copy, stream))
HEDDLE_ASYNC(cuMemcpyPeerAsync, Kind::COPY, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream), (to, to_context, from, from_context, bytes, stream))
HEDDLE_ASYNC(cuMemsetD8Async, Kind::MEMSET, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), (to, value, count, stream))
HEDDLE_ASYNC(cuMemsetD16Async, Kind::MEMSET, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream), (to, value, count, stream))
HEDDLE_ASYNC(cuMemsetD32Async, Kind::MEMSET, (CUdeviceptr to, unsigned value, size_t count, CUstream stream), (to, value, count, stream))
HEDDLE_ASYNC(cuMemsetD2D8Async, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), (to, pitch, value, width, height, stream))
HEDDLE_ASYNC(cuMemsetD2D16Async, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), (to, pitch, value, width, height, stream))
HEDDLE_ASYNC(cuMemsetD2D32Async, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream), (to, pitch, value, width, height, stream))

// Not asynchronous by name, but between two places on the device they return at once, and which
// of the two it is would take a look-up: so they are no evidence.
HEDDLE_DEFAULT_STREAM(cuMemcpy, Kind::COPY, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpyDtoD_v2, Kind::COPY, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpy2D_v2, Kind::COPY, (const void* copy), (copy))
HEDDLE_DEFAULT_STREAM(cuMemcpy3D_v2, Kind::COPY, (const void* copy), (copy))
HEDDLE_DEFAULT_STREAM(cuMemsetD8_v2, Kind::MEMSET, (CUdeviceptr to, unsigned char value, size_t count), (to, value, count))
HEDDLE_DEFAULT_STREAM(cuMemsetD16_v2, Kind::MEMSET, (CUdeviceptr to, unsigned short value, size_t count), (to, value, count))
HEDDLE_DEFAULT_STREAM(cuMemsetD32_v2, Kind::MEMSET, (CUdeviceptr to, unsigned value, size_t count), (to, value, count))
// clang-format on

}  // extern "C"
#pragma GCC visibility pop
