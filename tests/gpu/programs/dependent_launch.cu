// Programmatic dependent launch: each kernel may start before the one before it has ended, and
// waits on the device for its results.
#include "program.h"

using namespace matrix;

namespace {

__global__ void dependent_step(unsigned* data, unsigned count, unsigned salt) {
  cudaTriggerProgrammaticLaunchCompletion();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned mine = i * salt;
  for (unsigned k = 0; k < 256; ++k) mine = mine * 1664525u + 1013904223u;
  cudaGridDependencySynchronize();
  if (i < count) data[i] = (data[i] ^ mine) * 2654435761u;
}

}  // namespace

int main() {
  Program program;
  unsigned* data = words();
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceSynchronize());
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid();
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &attribute;
  for (const int round : program.rounds()) {
    for (unsigned i = 0; i < 20; ++i) {
      config.numAttrs = i % 5 != 0;  // an ordinary launch now and then
      CHECK(cudaLaunchKernelEx(&config, dependent_step, data, kCount, round * 20 + i + 1));
    }
    CHECK(cudaStreamSynchronize(stream));
    program.launched(20);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
