// Stream-ordered allocation: buffers that live between launches, from the default pool and from one
// of the program's own, freed and reused without a synchronization.
#include "program.h"

using namespace matrix;

int main() {
  Program program;
  unsigned* result = words();
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool;
  CHECK(cudaMemPoolCreate(&pool, &props));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  for (const int round : program.rounds()) {
    for (unsigned i = 0; i < 8; ++i) {
      unsigned *first = nullptr, *second = nullptr;
      CHECK(cudaMallocAsync(&first, kBytes, stream));
      CHECK(cudaMallocFromPoolAsync(&second, kBytes, pool, stream));
      CHECK(cudaMemcpyAsync(first, result, kBytes, cudaMemcpyDeviceToDevice, stream));
      step<<<grid(), 256, 0, stream>>>(first, kCount, round * 8 + i);
      CHECK(cudaMemcpyAsync(second, first, kBytes, cudaMemcpyDeviceToDevice, stream));
      CHECK(cudaFreeAsync(first, stream));
      step<<<grid(), 256, 0, stream>>>(second, kCount, i);
      CHECK(cudaMemcpyAsync(result, second, kBytes, cudaMemcpyDeviceToDevice, stream));
      CHECK(cudaFreeAsync(second, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    program.launched(16);
  }
  program.digest("result", result, kBytes);
  return program.finish();
}
