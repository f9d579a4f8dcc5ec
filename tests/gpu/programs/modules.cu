// Many kernels, each launched for the first time at another moment: what lazy loading defers. Run
// with CUDA_MODULE_LOADING=LAZY and =EAGER.
#include <utility>

#include "program.h"

using namespace matrix;

namespace {

template <unsigned kSalt>
__global__ void one_of_many(unsigned* data, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = (data[i] ^ (kSalt * 97)) * 2654435761u + kSalt;
}

using Kernel = void (*)(unsigned*, unsigned);

template <unsigned... kSalts>
std::vector<Kernel> all(std::integer_sequence<unsigned, kSalts...>) {
  return {one_of_many<kSalts>...};
}

}  // namespace

int main() {
  Program program;
  unsigned* data = words();
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) CHECK(cudaStreamCreate(&stream));
  const std::vector<Kernel> kernels = all(std::make_integer_sequence<unsigned, kRounds * 4>());
  for (const int round : program.rounds()) {
    for (int i = 0; i < 4; ++i) {
      const Kernel fresh = kernels[round * 4 + i];
      fresh<<<grid(), 256, 0, streams[0]>>>(data, kCount);
      kernels[i]<<<grid(), 256, 0, streams[0]>>>(data, kCount);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(streams[0]));
    program.launched(8);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
