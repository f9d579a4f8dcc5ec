// The fake driver's part of gates.
#include <atomic>

#include "tests/integration/shim_fake_driver.h"

// Nothing waits here, but it is noted.
FAKE std::atomic<int> fake_registered;  // pages, so often
FAKE std::atomic<int> fake_no_gates;    // nonzero: a stream takes none
FAKE std::atomic<int> fake_ticket;      // of the last one
std::atomic<int> fake_registered{0}, fake_no_gates{0}, fake_ticket{0};
FAKE CUresult cuMemHostRegister_v2(void*, size_t, unsigned) {
  unsafe();
  return ++fake_registered, CUDA_SUCCESS;
}
FAKE CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* at, void* host, unsigned) {
  return *at = reinterpret_cast<CUdeviceptr>(host), CUDA_SUCCESS;
}
FAKE CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr, uint32_t value, unsigned) {
  if (fake_no_gates != 0) return CUDA_ERROR_NOT_SUPPORTED;
  fake_ticket = static_cast<int>(value);
  return note("gate", stream), CUDA_SUCCESS;
}
FAKE CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr at, uint32_t value,
                                          unsigned flags) {
  return cuStreamWaitValue32_v2(stream, at, value, flags);
}
