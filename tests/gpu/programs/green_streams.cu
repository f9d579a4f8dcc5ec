// Streams of a Green Context that the program made: they keep their SMs. Each block notes the SM
// that it runs on, so that a launch which was moved is seen; where `%smid` is virtual (MPS), how
// many there are still tells.
#include <cuda.h>

#include "program.h"

using namespace matrix;

static __global__ void note_sm(unsigned* seen) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) seen[sm] = 1;
}

int main() {
  Program program;
  unsigned *seen = words(), *data = words();
  CUdevice device;
  CUdevResource all{}, group{}, rest{};
  CUdevResourceDesc description;
  CUgreenCtx green;
  CUstream stream;
  unsigned count = 1;
  if (cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
      cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
      cuDevSmResourceSplitByCount(&group, &count, &all, &rest, 0, 16) != CUDA_SUCCESS ||
      cuDevResourceGenerateDesc(&description, &group, 1) != CUDA_SUCCESS ||
      cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS ||
      cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) {
    skip("no Green Contexts");
  }
  for (const int round : program.rounds()) {
    note_sm<<<1024, 64, 0, stream>>>(seen);
    step<<<grid(), 256, 0, stream>>>(data, kCount, static_cast<unsigned>(round));
    CHECK(cudaStreamSynchronize(stream));
    step<<<grid(), 256>>>(data, kCount, static_cast<unsigned>(round));  // may be moved
    CHECK(cudaDeviceSynchronize());
    program.launched(3);
  }
  unsigned sms[256] = {}, used = 0;
  CHECK(cudaMemcpy(sms, seen, sizeof sms, cudaMemcpyDeviceToHost));
  for (const unsigned sm : sms) used += sm;
  if (used > group.sm.smCount) {
    fprintf(stderr, "%u SMs were used, of %u\n", used, group.sm.smCount);
    return 3;
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
