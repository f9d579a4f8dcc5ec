// A CUDA runtime program as most are written: the default stream, copies, events, a few kernels.
// Built twice, with the static and with the shared runtime.
#include "program.h"

using namespace matrix;

int main() {
  Program program;
  unsigned* data = words();
  unsigned* copy = words();
  std::vector<unsigned> host(kCount);
  cudaEvent_t before, after;
  CHECK(cudaEventCreate(&before));
  CHECK(cudaEventCreate(&after));
  for (const int round : program.rounds()) {
    CHECK(cudaEventRecord(before));
    for (unsigned i = 0; i < 20; ++i) step<<<grid(), 256>>>(data, kCount, round * 20 + i);
    CHECK(cudaEventRecord(after));
    CHECK(cudaGetLastError());
    program.launched(20);
    CHECK(cudaMemcpy(copy, data, kBytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(host.data(), copy, kBytes, cudaMemcpyDeviceToHost));
    host[round] += round;
    CHECK(cudaMemcpy(data, host.data(), kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaEventSynchronize(after));
    float elapsed_ms = 0;
    CHECK(cudaEventElapsedTime(&elapsed_ms, before, after));
    if (!(elapsed_ms > 0)) return 3;
  }
  program.digest("data", data, kBytes);
  program.digest("copy", copy, kBytes);
  return program.finish();
}
