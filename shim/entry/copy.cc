// Copies, memsets and migrations that return before they are done: recorded as activity, never held
// back. tests/integration/shim_exempt_test.cc checks that the driver has no others.
#include "shim/admission/gate.h"
#include "shim/driver/driver.h"

using namespace heddle::shim;
using heddle::wire::Kind;

// Without a stream the call goes to the default stream of its variant.
#define HEDDLE_ACTIVITY(name, kind, per_thread, stream, parameters, arguments) \
  CUresult name parameters noexcept;                                           \
  CUresult name parameters noexcept {                                          \
    const Activity activity({stream, per_thread}, kind);                       \
    return HEDDLE_REAL(name) arguments;                                        \
  }
#define HEDDLE_ASYNC(name, kind, parameters, arguments)             \
  HEDDLE_ACTIVITY(name, kind, false, stream, parameters, arguments) \
  HEDDLE_ACTIVITY(name##_ptsz, kind, true, stream, parameters, arguments)
#define HEDDLE_OLD_ASYNC(name, parameters, arguments) \
  HEDDLE_ACTIVITY(name, Kind::COPY, false, stream, parameters, arguments)
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
HEDDLE_ASYNC(cuMemcpy3DPeerAsync, Kind::COPY, (const void* copy, CUstream stream), (copy, stream))
HEDDLE_ASYNC(cuMemcpyHtoAAsync_v2, Kind::COPY, (CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream), (to, offset, from, bytes, stream))
HEDDLE_ASYNC(cuMemcpyAtoHAsync_v2, Kind::COPY, (void* to, CUarray from, size_t offset, size_t bytes, CUstream stream), (to, from, offset, bytes, stream))
HEDDLE_ASYNC(cuMemcpyBatchAsync, Kind::COPY, (CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, void* attributes, size_t* indices, size_t attribute_count, size_t* failed, CUstream stream), (to, from, sizes, count, attributes, indices, attribute_count, failed, stream))
HEDDLE_ASYNC(cuMemcpyBatchAsync_v2, Kind::COPY, (CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, void* attributes, size_t* indices, size_t attribute_count, CUstream stream), (to, from, sizes, count, attributes, indices, attribute_count, stream))
HEDDLE_ASYNC(cuMemcpy3DBatchAsync, Kind::COPY, (size_t count, void* copies, size_t* failed, unsigned long long flags, CUstream stream), (count, copies, failed, flags, stream))
HEDDLE_ASYNC(cuMemcpy3DBatchAsync_v2, Kind::COPY, (size_t count, void* copies, unsigned long long flags, CUstream stream), (count, copies, flags, stream))
HEDDLE_ASYNC(cuMemBatchDecompressAsync, Kind::COPY, (void* parameters, size_t count, unsigned flags, size_t* failed, CUstream stream), (parameters, count, flags, failed, stream))
HEDDLE_ASYNC(cuMemPrefetchAsync, Kind::COPY, (CUdeviceptr at, size_t bytes, CUdevice to, CUstream stream), (at, bytes, to, stream))
HEDDLE_ASYNC(cuMemPrefetchAsync_v2, Kind::COPY, (CUdeviceptr at, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream), (at, bytes, to, flags, stream))
HEDDLE_ASYNC(cuMemPrefetchBatchAsync, Kind::COPY, (CUdeviceptr* at, size_t* sizes, size_t count, void* to, size_t* indices, size_t location_count, unsigned long long flags, CUstream stream), (at, sizes, count, to, indices, location_count, flags, stream))
HEDDLE_ASYNC(cuMemDiscardAndPrefetchBatchAsync, Kind::COPY, (CUdeviceptr* at, size_t* sizes, size_t count, void* to, size_t* indices, size_t location_count, unsigned long long flags, CUstream stream), (at, sizes, count, to, indices, location_count, flags, stream))
HEDDLE_ASYNC(cuMemsetD8Async, Kind::MEMSET, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), (to, value, count, stream))
HEDDLE_ASYNC(cuMemsetD16Async, Kind::MEMSET, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream), (to, value, count, stream))
HEDDLE_ASYNC(cuMemsetD32Async, Kind::MEMSET, (CUdeviceptr to, unsigned value, size_t count, CUstream stream), (to, value, count, stream))
HEDDLE_ASYNC(cuMemsetD2D8Async, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), (to, pitch, value, width, height, stream))
HEDDLE_ASYNC(cuMemsetD2D16Async, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), (to, pitch, value, width, height, stream))
HEDDLE_ASYNC(cuMemsetD2D32Async, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream), (to, pitch, value, width, height, stream))

// From before device addresses had 64 bits.
HEDDLE_OLD_ASYNC(cuMemcpy2DAsync, (const void* copy, CUstream stream), (copy, stream))
HEDDLE_OLD_ASYNC(cuMemcpy3DAsync, (const void* copy, CUstream stream), (copy, stream))
HEDDLE_OLD_ASYNC(cuMemcpyHtoDAsync, (unsigned to, const void* from, unsigned bytes, CUstream stream), (to, from, bytes, stream))
HEDDLE_OLD_ASYNC(cuMemcpyDtoHAsync, (void* to, unsigned from, unsigned bytes, CUstream stream), (to, from, bytes, stream))
HEDDLE_OLD_ASYNC(cuMemcpyDtoDAsync, (unsigned to, unsigned from, unsigned bytes, CUstream stream), (to, from, bytes, stream))
HEDDLE_OLD_ASYNC(cuMemcpyHtoAAsync, (CUarray to, unsigned offset, const void* from, unsigned bytes, CUstream stream), (to, offset, from, bytes, stream))
HEDDLE_OLD_ASYNC(cuMemcpyAtoHAsync, (void* to, CUarray from, unsigned offset, unsigned bytes, CUstream stream), (to, from, offset, bytes, stream))

// Synchronous by name, but a copy between two places on the device returns at once. The shim would
// have to look up both addresses to find that out, so their return is no evidence.
HEDDLE_DEFAULT_STREAM(cuMemcpy, Kind::COPY, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpyDtoD_v2, Kind::COPY, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpy2D_v2, Kind::COPY, (const void* copy), (copy))
HEDDLE_DEFAULT_STREAM(cuMemcpy3D_v2, Kind::COPY, (const void* copy), (copy))
HEDDLE_DEFAULT_STREAM(cuMemcpy2DUnaligned_v2, Kind::COPY, (const void* copy), (copy))
HEDDLE_DEFAULT_STREAM(cuMemcpyPeer, Kind::COPY, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes), (to, to_context, from, from_context, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpy3DPeer, Kind::COPY, (const void* copy), (copy))
HEDDLE_DEFAULT_STREAM(cuMemcpyAtoA_v2, Kind::COPY, (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes), (to, to_offset, from, from_offset, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpyAtoD_v2, Kind::COPY, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpyDtoA_v2, Kind::COPY, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes), (to, offset, from, bytes))
HEDDLE_DEFAULT_STREAM(cuMemcpyHtoA_v2, Kind::COPY, (CUarray to, size_t offset, const void* from, size_t bytes), (to, offset, from, bytes))
HEDDLE_DEFAULT_STREAM(cuMemsetD2D8_v2, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height), (to, pitch, value, width, height))
HEDDLE_DEFAULT_STREAM(cuMemsetD2D16_v2, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height), (to, pitch, value, width, height))
HEDDLE_DEFAULT_STREAM(cuMemsetD2D32_v2, Kind::MEMSET, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height), (to, pitch, value, width, height))
HEDDLE_DEFAULT_STREAM(cuMemsetD8_v2, Kind::MEMSET, (CUdeviceptr to, unsigned char value, size_t count), (to, value, count))
HEDDLE_DEFAULT_STREAM(cuMemsetD16_v2, Kind::MEMSET, (CUdeviceptr to, unsigned short value, size_t count), (to, value, count))
HEDDLE_DEFAULT_STREAM(cuMemsetD32_v2, Kind::MEMSET, (CUdeviceptr to, unsigned value, size_t count), (to, value, count))
// clang-format on

}  // extern "C"
#pragma GCC visibility pop
