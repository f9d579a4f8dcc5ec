// cuFFT, which finds the driver's functions by plain dlsym: transforms forth and back.
#include <cufft.h>

#include "program.h"

using namespace matrix;

#define FFT(call)                                                        \
  do {                                                                   \
    const cufftResult result_ = (call);                                  \
    if (result_ != CUFFT_SUCCESS) {                                      \
      fprintf(stderr, "%s:%d: cuFFT %d\n", __FILE__, __LINE__, result_); \
      exit(2);                                                           \
    }                                                                    \
  } while (false)

namespace {

__global__ void shift(cufftComplex* data, unsigned count, float by) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  data[i].x = data[i].x / 1024.f + by;
  data[i].y = data[i].y / 1024.f - by * static_cast<float>(i % 7);
}

}  // namespace

int main() {
  Program program;
  constexpr unsigned kComplex = kCount / 2;
  auto* data = reinterpret_cast<cufftComplex*>(words());
  cufftHandle rows, plane;
  FFT(cufftPlan1d(&rows, 1024, CUFFT_C2C, kComplex / 1024));
  FFT(cufftPlan2d(&plane, 512, 1024, CUFFT_C2C));
  for (const int round : program.rounds()) {
    shift<<<grid(kComplex), 256>>>(data, kComplex, 0.25f + 0.01f * static_cast<float>(round));
    FFT(cufftExecC2C(rows, data, data, CUFFT_FORWARD));
    FFT(cufftExecC2C(rows, data, data, CUFFT_INVERSE));
    FFT(cufftExecC2C(plane, data, data, CUFFT_FORWARD));
    CHECK(cudaDeviceSynchronize());
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
