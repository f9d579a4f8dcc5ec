// The fake driver's part of gates.
#include <sched.h>

#include <atomic>

#include "tests/integration/shim_fake_driver.h"

// Nothing waits here, but it is noted.
FAKE std::atomic<int> fake_registered;   // pages, so often
FAKE std::atomic<int> fake_no_gates;     // nonzero: a stream takes none
FAKE std::atomic<int> fake_no_batch;     // nonzero: nor several operations at once
FAKE std::atomic<int> fake_ticket;       // of the last one
FAKE std::atomic<int> fake_held_ticket;  // its gate is on its way until this is another one
FAKE std::atomic<int> fake_done;         // the last value that was written
FAKE std::atomic<int> fake_done_word;    // and where, in words of the page
std::atomic<int> fake_registered{0}, fake_no_gates{0}, fake_no_batch{0}, fake_ticket{0};
std::atomic<int> fake_done{0}, fake_done_word{0}, fake_held_ticket{0};
namespace {
CUdeviceptr page = 0;
}
FAKE CUresult cuMemHostRegister_v2(void* host, size_t, unsigned) {
  unsafe();
  page = reinterpret_cast<CUdeviceptr>(host);
  return ++fake_registered, CUDA_SUCCESS;
}
FAKE CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* at, void* host, unsigned) {
  return *at = reinterpret_cast<CUdeviceptr>(host), CUDA_SUCCESS;
}
FAKE CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr, uint32_t value, unsigned) {
  if (fake_no_gates != 0) return CUDA_ERROR_NOT_SUPPORTED;
  fake_ticket = static_cast<int>(value);
  while (fake_held_ticket == static_cast<int>(value)) sched_yield();
  return note("gate", stream), CUDA_SUCCESS;
}
FAKE CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr at, uint32_t value,
                                          unsigned flags) {
  return cuStreamWaitValue32_v2(stream, at, value, flags);
}
FAKE CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops,
                                    unsigned flags) {
  if (fake_no_gates != 0 || fake_no_batch != 0) return CUDA_ERROR_NOT_SUPPORTED;
  for (unsigned i = 0; i < count; ++i) {
    const auto& op = ops[i].waitValue;  // a write's are alike
    if (op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
      cuStreamWaitValue32_v2(stream, op.address, op.value, flags);
    } else {
      fake_done = static_cast<int>(op.value);
      fake_done_word = static_cast<int>((op.address - page) / sizeof(uint32_t));
      note("done", stream);
    }
  }
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                         CUstreamBatchMemOpParams* ops, unsigned flags) {
  return cuStreamBatchMemOp_v2(stream, count, ops, flags);
}
// Some streams block with the legacy one.
FAKE CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  constexpr uint64_t kBlocking = 2048, kOthers = 2560;
  const auto number = reinterpret_cast<uint64_t>(stream);
  *flags = number >= kBlocking && number < kOthers ? 0u : unsigned{CU_STREAM_NON_BLOCKING};
  return CUDA_SUCCESS;
}
// Waits of the program's own.
FAKE CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
FAKE CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return cuStreamWaitEvent(stream, event, flags);
}
FAKE CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr, uint64_t, unsigned) {
  return note("wait", stream), CUDA_SUCCESS;
}
FAKE CUresult cuWaitExternalSemaphoresAsync(const void*, const void*, unsigned, CUstream stream) {
  return note("wait", stream), CUDA_SUCCESS;
}
