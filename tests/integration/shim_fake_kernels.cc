// The fake driver's functions and kernels. A handle is its name; that of a library's kernel begins
// with "kernel ", and its function's is the rest. Each call takes handles of its own kind only.
#include <stdlib.h>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "tests/integration/shim_fake_driver.h"

extern "C" CUresult cuCtxGetCurrent(CUcontext* context);

FAKE std::atomic<int> fake_refused;  // calls that the real driver would put into its log of errors
std::atomic<int> fake_refused{0};

CUresult refused(CUresult why) { return ++fake_refused, why; }

namespace {

constexpr unsigned kThreadsMost = 1024, kSharedMost = 48 << 10;

bool can_run(unsigned threads, size_t shared) {
  return threads > 0 && threads <= kThreadsMost && shared <= kSharedMost;
}

// The name of a library's kernel; nullptr: it is a function.
const char* name_of_kernel(const void* handle) {
  constexpr char kKernel[] = "kernel ";
  const auto* text = static_cast<const char*>(handle);
  return strncmp(text, kKernel, sizeof kKernel - 1) == 0 ? text + sizeof kKernel - 1 : nullptr;
}
template <class Handle>
Handle handle_of(const char* name) {
  return reinterpret_cast<Handle>(const_cast<char*>(name));
}
CUresult taken_as_function(CUfunction f) {
  return name_of_kernel(f) == nullptr ? CUDA_SUCCESS : refused(CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace

CUkernel kernel_of(const void* function) {
  static char made[64][64];
  static std::atomic<unsigned> next{0};
  char* const kernel = made[next++ % 64];
  snprintf(kernel, sizeof made[0], "kernel %s", static_cast<const char*>(function));
  return reinterpret_cast<CUkernel>(kernel);
}

CUresult refused_without_context() {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  return context != nullptr ? CUDA_SUCCESS : refused(CUDA_ERROR_INVALID_CONTEXT);
}

FAKE CUresult cuFuncGetName(const char** name, CUfunction f) {
  return *name = reinterpret_cast<const char*>(f), taken_as_function(f);
}
FAKE CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  *name = name_of_kernel(kernel);
  return *name != nullptr ? CUDA_SUCCESS : refused(CUDA_ERROR_INVALID_HANDLE);
}
FAKE CUresult cuKernelGetFunction(CUfunction* f, CUkernel kernel) {
  unsafe();
  if (name_of_kernel(kernel) == nullptr) return refused(CUDA_ERROR_INVALID_HANDLE);
  return *f = handle_of<CUfunction>(name_of_kernel(kernel)), refused_without_context();
}
FAKE CUresult cuFuncGetModule(CUmodule* module, CUfunction f) {
  return *module = reinterpret_cast<CUmodule>(8), taken_as_function(f);
}
FAKE CUresult cuFuncGetAttribute(int* value, CUfunction_attribute what, CUfunction f) {
  *value = what == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? static_cast<int>(kThreadsMost) : 32;
  return taken_as_function(f);
}
FAKE CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute what, CUdevice device) {
  if (what == CU_DEVICE_ATTRIBUTE_MPS_ENABLED) {
    const char* said = getenv("FAKE_MPS");
    return said == nullptr ? CUDA_ERROR_INVALID_VALUE : (*value = atoi(said), CUDA_SUCCESS);
  }
  const bool shared = what == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
  *value = shared ? static_cast<int>(kSharedMost) : 132;
  return device >= 0 ? CUDA_SUCCESS : refused(CUDA_ERROR_INVALID_DEVICE);
}
FAKE CUresult cuFuncLoad(CUfunction f) { return unsafe(), taken_as_function(f); }
FAKE CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int threads,
                                                          size_t shared) {
  if (!can_run(static_cast<unsigned>(threads), shared)) return refused(CUDA_ERROR_INVALID_VALUE);
  return *blocks = 1, taken_as_function(f);
}
CUresult refused_blocks(unsigned threads, unsigned shared) {
  return can_run(threads, shared) ? CUDA_SUCCESS : refused(CUDA_ERROR_INVALID_VALUE);
}

FAKE CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  return *kernel = handle_of<CUkernel>(name), CUDA_SUCCESS;
}
// Each library has one kernel, and is its name.
FAKE CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary) {
  return *count = 1, CUDA_SUCCESS;
}
FAKE CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned, CUlibrary library) {
  return kernels[0] = reinterpret_cast<CUkernel>(library), CUDA_SUCCESS;
}
FAKE CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
