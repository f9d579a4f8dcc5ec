// Managed memory: touched by host and device in turn, with advice and prefetches.
#include "program.h"

using namespace matrix;

int main() {
  Program program;
  unsigned* data = nullptr;
  CHECK(cudaMallocManaged(&data, kBytes));
  cudaMemLocation device = {};
  device.type = cudaMemLocationTypeDevice;
  cudaMemLocation host = {};
  host.type = cudaMemLocationTypeHost;
  for (unsigned i = 0; i < kCount; ++i) data[i] = i;
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseSetPreferredLocation, device));
  for (const int round : program.rounds()) {
    if (round % 3 == 0) CHECK(cudaMemPrefetchAsync(data, kBytes, device, 0, nullptr));
    for (unsigned i = 0; i < 5; ++i) step<<<grid(), 256>>>(data, kCount, round * 5 + i);
    if (round % 3 == 1) CHECK(cudaMemPrefetchAsync(data, kBytes, host, 0, nullptr));
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = round; i < kCount; i += 4099) data[i] = data[i] * 7 + round;
    program.launched(5);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
