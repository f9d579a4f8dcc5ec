// A stream that waits for a value that another stream of this program writes: whoever holds back
// the writer's launches holds up the waiter too. More work stands behind the wait than any window
// or in-flight limit covers.
#include <cuda.h>

#include "program.h"

using namespace matrix;

namespace {

using Operation = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

Operation entry(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  return reinterpret_cast<Operation>(found);
}

}  // namespace

int main() {
  Program program;
  unsigned *waiter = words(), *writer = words(), *flag = words();
  const Operation wait_value = entry("cuStreamWaitValue32");
  const Operation write_value = entry("cuStreamWriteValue32");
  cudaStream_t behind, ahead;
  CHECK(cudaStreamCreateWithFlags(&behind, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&ahead, cudaStreamNonBlocking));
  step<<<grid(), 256>>>(writer, kCount, 0);  // code is loaded before anything waits
  program.launched(1);
  CHECK(cudaDeviceSynchronize());
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(flag);
  for (const int round : program.rounds()) {
    const unsigned value = round + 1;
    if (wait_value(behind, address, value, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) return 2;
    for (unsigned i = 0; i < 20; ++i) {
      step<<<grid(), 256, 0, behind>>>(waiter, kCount, round * 20 + i);
    }
    for (unsigned i = 0; i < 5; ++i) step<<<grid(), 256, 0, ahead>>>(writer, kCount, round + i);
    if (write_value(ahead, address, value, 0) != CUDA_SUCCESS) return 2;
    CHECK(cudaStreamSynchronize(behind));
    program.launched(25);
  }
  program.digest("waiter", waiter, kBytes);
  program.digest("writer", writer, kBytes);
  return program.finish();
}
