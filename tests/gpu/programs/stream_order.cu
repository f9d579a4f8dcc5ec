// One computation that moves from stream to stream: the legacy default stream, one that blocks with
// it, one that does not and is tied by events, and copies between the kernels. Whatever reroutes
// launches must keep the order of all three.
#include "program.h"

using namespace matrix;

int main() {
  Program program;
  unsigned *data = words(), *copy = words(), *last = words();
  cudaStream_t blocking, free;
  cudaEvent_t to_free, back;
  CHECK(cudaStreamCreate(&blocking));
  CHECK(cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&to_free, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
  for (const int round : program.rounds()) {
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned salt = round * 8 + i;
      step<<<grid(), 256>>>(data, kCount, salt);
      step<<<grid(), 256, 0, blocking>>>(data, kCount, salt + 1);
      CHECK(cudaMemcpyAsync(copy, data, kBytes, cudaMemcpyDeviceToDevice, blocking));
      step<<<grid(), 256>>>(copy, kCount, salt + 2);
      CHECK(cudaEventRecord(to_free, nullptr));
      CHECK(cudaStreamWaitEvent(free, to_free));
      step<<<grid(), 256, 0, free>>>(copy, kCount, salt + 3);
      CHECK(cudaMemcpyAsync(last, copy, kBytes, cudaMemcpyDeviceToDevice, free));
      step<<<grid(), 256, 0, free>>>(last, kCount, salt + 4);
      CHECK(cudaEventRecord(back, free));
      CHECK(cudaStreamWaitEvent(nullptr, back));
      CHECK(cudaMemcpyAsync(data, last, kBytes, cudaMemcpyDeviceToDevice, nullptr));
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    program.launched(40);
  }
  program.digest("data", data, kBytes);
  program.digest("copy", copy, kBytes);
  program.digest("last", last, kBytes);
  return program.finish();
}
