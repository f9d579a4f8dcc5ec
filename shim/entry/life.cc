// Entry points that begin and end things: the driver, look-ups, modules, captures, streams,
// contexts.
#include <unistd.h>

#include <algorithm>

#include "shim/admission/kernels.h"
#include "shim/admission/library_kernels.h"
#include "shim/driver/driver.h"
#include "shim/entry/wait.h"
#include "shim/evidence/streams.h"
#include "shim/gate/page.h"
#include "shim/link/inside.h"
#include "shim/memory/account.h"
#include "shim/sm/contexts.h"
#include "shim/sm/twins.h"
#include "shim/stop/lever.h"

namespace heddle::shim {
namespace {

void context_ends(CUcontext context, bool gone = false) {
  await_memory();
  if (!is_initialized()) return;
  context_gone(context);
  end_context(context, gone);
  forget_registrations(context);
  purge_kernels();
}

template <class Real>
CUresult destroy_context(CUcontext context, Real&& real) {
  const HeldOn held;
  context_ends(context);
  const CUresult result = real(context);
  if (result == CUDA_SUCCESS && is_initialized()) forget_context_memory(context);
  return result;
}

void stream_ends(CUstream stream) {
  await_memory();
  if (stream == nullptr || !is_initialized()) return;
  stream_gone(stream);
  end_stream(stream);
}

// How often the application has retained each primary context, as far as the shim saw.
constinit std::atomic<int> retained[ipc::kDevices] = {};

std::atomic<int>& retained_of(CUdevice device) {
  return retained[static_cast<unsigned>(device) % ipc::kDevices];
}

template <class Real>
CUresult reset_primary(CUdevice device, Real&& real) {
  if (!is_initialized()) return real(device);  // in a forked child all state is the parent's
  const HeldOn held;
  const EventsRest rest;
  const CUcontext context = primary_of(device);
  if (context != nullptr) context_ends(context);
  end_twins(device);
  end_sm_sets(device);
  retained_of(device).store(0, std::memory_order_relaxed);
  const CUresult result = real(device);
  if (context != nullptr && result == CUDA_SUCCESS) forget_context_memory(context);
  return result;
}

// Only the last release ends the context, with its events. SM sets hold the context, too, so they
// end before. If the shim takes a release for the last one too early, the context lives on without
// SM sets, and its launches keep the whole device.
template <class Real>
CUresult release_primary(CUdevice device, Real&& real) {
  if (!is_initialized()) return real(device);
  const CUcontext context = primary_of(device);
  const bool last =
      context != nullptr && retained_of(device).fetch_sub(1, std::memory_order_relaxed) <= 1;
  const HeldOn held(last);
  const EventsRest rest;
  if (last) {
    end_twins(device);
    end_sm_sets(device);
  }
  const CUresult result = real(device);
  if (context != nullptr && !primary_is_active(device)) {
    context_ends(context, true);
    forget_context_memory(context);
  }
  return result;
}

// A process's lock of itself. The shim does not see another process lock this one.
template <class Real>
CUresult checkpoint_lock(int pid, bool lock, Real&& real) {
  const bool own = pid == getpid();
  if (own && lock) hold_on_for_checkpoint(true);
  const CUresult result = real();
  if (own && lock == (result != CUDA_SUCCESS)) hold_on_for_checkpoint(false);
  return result;
}

// The first retain brings the context into being. SM sets are made before another thread gets it.
CUresult retain_primary(CUcontext* context, CUdevice device) {
  const auto real = HEDDLE_REAL(cuDevicePrimaryCtxRetain);
  if (!is_initialized()) return real(context, device);
  const Held held(primary_lock(device));
  std::atomic<int>& holders = retained_of(device);
  const bool is_new = holders.load(std::memory_order_relaxed) == 0 && !primary_is_active(device);
  const CUresult result = real(context, device);
  if (result != CUDA_SUCCESS) return result;
  holders.fetch_add(1, std::memory_order_relaxed);
  if (is_new) make_family(device, *context);
  return result;
}

template <class Real>
CUresult begin_capture(StreamRef stream, Real&& real) {
  if (!is_initialized()) return real();
  capture_begins(stream);
  const CUresult result = real();
  if (result != CUDA_SUCCESS) capture_failed(stream);
  return result;
}

// A failed call may or may not have ended the capture: the driver's state of the stream tells.
template <class Real>
CUresult end_capture(StreamRef stream, Real&& real) {
  const CUresult result = real();
  if (!is_initialized()) return result;
  if (result == CUDA_SUCCESS || !stream_captures(stream)) capture_ends(stream);
  return result;
}

}  // namespace
}  // namespace heddle::shim

using namespace heddle::shim;

extern "C" {

CUresult cuInit(unsigned flags) noexcept {
  const CUresult result = HEDDLE_REAL(cuInit)(flags);
  if (result == CUDA_SUCCESS) on_driver_initialized();
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags) noexcept {
  const CUresult result = HEDDLE_REAL(cuGetProcAddress)(symbol, pfn, version, flags);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) *pfn = replacement(*pfn);
  return result;
}
CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult* status) noexcept {
  const CUresult result = HEDDLE_REAL(cuGetProcAddress_v2)(symbol, pfn, version, flags, status);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) *pfn = replacement(*pfn);
  return result;
}

CUresult cuModuleLoad(CUmodule* module, const char* file) noexcept {
  const ImplicitWait wait;
  return HEDDLE_REAL(cuModuleLoad)(module, file);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept {
  const ImplicitWait wait;
  return HEDDLE_REAL(cuModuleLoadData)(module, image);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, void* options,
                            void** values) noexcept {
  const ImplicitWait wait;
  return HEDDLE_REAL(cuModuleLoadDataEx)(module, image, count, options, values);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) noexcept {
  const ImplicitWait wait;
  return HEDDLE_REAL(cuModuleLoadFatBinary)(module, image);
}
CUresult cuModuleUnload(CUmodule module) noexcept {
  const ImplicitWait wait;
  if (is_initialized()) purge_module(module);
  return HEDDLE_REAL(cuModuleUnload)(module);
}
CUresult cuLibraryUnload(CUlibrary library) noexcept {
  const ImplicitWait wait;
  if (is_initialized()) purge_kernels();
  forget_library(library);
  return HEDDLE_REAL(cuLibraryUnload)(library);
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) noexcept {
  const CUresult result = HEDDLE_REAL(cuLibraryGetKernel)(kernel, library, name);
  if (result == CUDA_SUCCESS) note_library_kernel(*kernel, library);
  return result;
}
CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned most, CUlibrary library) noexcept {
  const CUresult result = HEDDLE_REAL(cuLibraryEnumerateKernels)(kernels, most, library);
  unsigned count = 0;
  if (result != CUDA_SUCCESS ||
      HEDDLE_REAL(cuLibraryGetKernelCount)(&count, library) != CUDA_SUCCESS) {
    return result;
  }
  for (unsigned i = 0; i < std::min(count, most); ++i) note_library_kernel(kernels[i], library);
  return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device,
                          unsigned flags) noexcept {
  const ImplicitWait wait;
  return HEDDLE_REAL(cuGreenCtxCreate)(context, description, device, flags);
}

CUresult cuStreamBeginCapture(CUstream stream) noexcept {
  return begin_capture({stream, false}, [&] { return HEDDLE_REAL(cuStreamBeginCapture)(stream); });
}
CUresult cuStreamBeginCapture_ptsz(CUstream stream) noexcept {
  return begin_capture({stream, true},
                       [&] { return HEDDLE_REAL(cuStreamBeginCapture_ptsz)(stream); });
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) noexcept {
  return begin_capture({stream, false},
                       [&] { return HEDDLE_REAL(cuStreamBeginCapture_v2)(stream, mode); });
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) noexcept {
  return begin_capture({stream, true},
                       [&] { return HEDDLE_REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode); });
}
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                     const void* edges, size_t count,
                                     CUstreamCaptureMode mode) noexcept {
  return begin_capture({stream, false}, [&] {
    return HEDDLE_REAL(cuStreamBeginCaptureToGraph)(stream, graph, nodes, edges, count, mode);
  });
}
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                          const void* edges, size_t count,
                                          CUstreamCaptureMode mode) noexcept {
  return begin_capture({stream, true}, [&] {
    return HEDDLE_REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, nodes, edges, count, mode);
  });
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) noexcept {
  return end_capture({stream, false},
                     [&] { return HEDDLE_REAL(cuStreamEndCapture)(stream, graph); });
}
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) noexcept {
  return end_capture({stream, true},
                     [&] { return HEDDLE_REAL(cuStreamEndCapture_ptsz)(stream, graph); });
}

CUresult cuStreamDestroy(CUstream stream) noexcept {
  stream_ends(stream);
  return HEDDLE_REAL(cuStreamDestroy)(stream);
}
CUresult cuStreamDestroy_v2(CUstream stream) noexcept {
  stream_ends(stream);
  return HEDDLE_REAL(cuStreamDestroy_v2)(stream);
}
CUresult cuCtxDestroy(CUcontext context) noexcept {
  return destroy_context(context, HEDDLE_REAL(cuCtxDestroy));
}
CUresult cuCtxDestroy_v2(CUcontext context) noexcept {
  return destroy_context(context, HEDDLE_REAL(cuCtxDestroy_v2));
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) noexcept {
  return retain_primary(context, device);
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) noexcept {
  return reset_primary(device, HEDDLE_REAL(cuDevicePrimaryCtxReset));
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) noexcept {
  return reset_primary(device, HEDDLE_REAL(cuDevicePrimaryCtxReset_v2));
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) noexcept {
  return release_primary(device, HEDDLE_REAL(cuDevicePrimaryCtxRelease));
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) noexcept {
  return release_primary(device, HEDDLE_REAL(cuDevicePrimaryCtxRelease_v2));
}

CUresult cuCheckpointProcessLock(int pid, void* arguments) noexcept {
  return checkpoint_lock(pid, true,
                         [&] { return HEDDLE_REAL(cuCheckpointProcessLock)(pid, arguments); });
}
CUresult cuCheckpointProcessUnlock(int pid, void* arguments) noexcept {
  return checkpoint_lock(pid, false,
                         [&] { return HEDDLE_REAL(cuCheckpointProcessUnlock)(pid, arguments); });
}

}  // extern "C"
