// Entry points which tell that others may wait for this process's GPU work: writes of values and
// signals of semaphores by a stream, host functions, events and memory that are shared with other
// processes and devices (memory.cc has the rest). And entry points that have a stream wait.
#include "shim/admission/gate.h"
#include "shim/driver/driver.h"
#include "shim/entry/wait.h"

using namespace heddle::shim;

#define HEDDLE_BEFORE_ONE(note, name, per_thread, parameters, arguments) \
  CUresult name parameters noexcept;                                     \
  CUresult name parameters noexcept {                                    \
    note({stream, per_thread});                                          \
    return HEDDLE_REAL(name) arguments;                                  \
  }
#define HEDDLE_BEFORE(note, name, parameters, arguments)      \
  HEDDLE_BEFORE_ONE(note, name, false, parameters, arguments) \
  HEDDLE_BEFORE_ONE(note, name##_ptsz, true, parameters, arguments)
#define HEDDLE_SIGNAL(name, parameters, arguments) \
  HEDDLE_BEFORE(note_signal, name, parameters, arguments)
#define HEDDLE_HOST(name, parameters, arguments) \
  HEDDLE_BEFORE(note_host_function, name, parameters, arguments)
#define HEDDLE_STREAM_WAIT(name, parameters, arguments) \
  HEDDLE_BEFORE(note_stream_wait, name, parameters, arguments)
#define HEDDLE_EVENT(name, parameters, arguments)        \
  CUresult name parameters noexcept;                     \
  CUresult name parameters noexcept {                    \
    const CUresult result = HEDDLE_REAL(name) arguments; \
    if (result == CUDA_SUCCESS) note_shared_event();     \
    return result;                                       \
  }
// Sharing memory maps it, and that may wait for running kernels.
#define HEDDLE_PEER(name, parameters, arguments)         \
  CUresult name parameters noexcept;                     \
  CUresult name parameters noexcept {                    \
    const ImplicitWait wait;                             \
    const CUresult result = HEDDLE_REAL(name) arguments; \
    if (result == CUDA_SUCCESS) note_peer();             \
    return result;                                       \
  }

namespace {

// Notes a peer if a device other than the calling thread's gets access to the memory.
void note_access(const CUmemAccessDesc* who, size_t count) {
  const CUdevice own = current_device();
  if (who == nullptr || own < 0) return;
  for (size_t i = 0; i < count; ++i) {
    if (who[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && who[i].location.id != own) {
      note_peer();
    }
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// clang-format off
HEDDLE_SIGNAL(cuStreamWriteValue32, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_SIGNAL(cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_SIGNAL(cuStreamWriteValue64, (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_SIGNAL(cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_SIGNAL(cuStreamBatchMemOp, (CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags), (stream, count, operations, flags))
HEDDLE_SIGNAL(cuStreamBatchMemOp_v2, (CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags), (stream, count, operations, flags))
HEDDLE_SIGNAL(cuSignalExternalSemaphoresAsync, (const void* semaphores, const void* parameters, unsigned count, CUstream stream), (semaphores, parameters, count, stream))

HEDDLE_STREAM_WAIT(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
HEDDLE_STREAM_WAIT(cuStreamWaitValue32, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_STREAM_WAIT(cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_STREAM_WAIT(cuStreamWaitValue64, (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_STREAM_WAIT(cuStreamWaitValue64_v2, (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags), (stream, at, value, flags))
HEDDLE_STREAM_WAIT(cuWaitExternalSemaphoresAsync, (const void* semaphores, const void* parameters, unsigned count, CUstream stream), (semaphores, parameters, count, stream))

HEDDLE_HOST(cuLaunchHostFunc, (CUstream stream, void (*function)(void*), void* data), (stream, function, data))
HEDDLE_HOST(cuStreamAddCallback, (CUstream stream, void (*function)(CUstream, CUresult, void*), void* data, unsigned flags), (stream, function, data, flags))
HEDDLE_EVENT(cuIpcGetEventHandle, (CUipcEventHandle* handle, CUevent event), (handle, event))
HEDDLE_EVENT(cuIpcOpenEventHandle, (CUevent* event, CUipcEventHandle handle), (event, handle))

HEDDLE_PEER(cuIpcGetMemHandle, (void* handle, CUdeviceptr at), (handle, at))
HEDDLE_PEER(cuIpcOpenMemHandle, (CUdeviceptr* at, CUipcMemHandle handle, unsigned flags), (at, handle, flags))
HEDDLE_PEER(cuIpcOpenMemHandle_v2, (CUdeviceptr* at, CUipcMemHandle handle, unsigned flags), (at, handle, flags))
HEDDLE_PEER(cuMemPoolExportToShareableHandle, (void* out, void* pool, int type, unsigned long long flags), (out, pool, type, flags))
HEDDLE_PEER(cuMemPoolImportFromShareableHandle, (void* pool, void* from, int type, unsigned long long flags), (pool, from, type, flags))
HEDDLE_PEER(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags))
HEDDLE_PEER(cuMulticastAddDevice, (unsigned long long handle, CUdevice device), (handle, device))
// clang-format on

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* who,
                        size_t count) noexcept;
CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* who,
                        size_t count) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemSetAccess)(at, bytes, who, count);
  if (result == CUDA_SUCCESS) note_access(who, count);
  return result;
}
CUresult cuMemPoolSetAccess(void* pool, const CUmemAccessDesc* who, size_t count) noexcept;
CUresult cuMemPoolSetAccess(void* pool, const CUmemAccessDesc* who, size_t count) noexcept {
  const CUresult result = HEDDLE_REAL(cuMemPoolSetAccess)(pool, who, count);
  if (result == CUDA_SUCCESS) note_access(who, count);
  return result;
}

}  // extern "C"
#pragma GCC visibility pop
