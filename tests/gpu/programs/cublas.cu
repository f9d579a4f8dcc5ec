// cuBLAS and cuBLASLt paths: products in fp32, fp16 and batched, on a stream of the program's own.
#include <cublas_v2.h>
#include <cuda_fp16.h>

#include "program.h"

using namespace matrix;

#define BLAS(call)                                                                        \
  do {                                                                                    \
    const cublasStatus_t status_ = (call);                                                \
    if (status_ != CUBLAS_STATUS_SUCCESS) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cublasGetStatusString(status_)); \
      exit(2);                                                                            \
    }                                                                                     \
  } while (false)

namespace {

__global__ void fill(float* data, unsigned count, unsigned salt) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = static_cast<float>((i * 2654435761u + salt) % 1000) / 1000.f - 0.5f;
}

__global__ void halve(const float* data, __half* halves, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) halves[i] = __float2half(data[i]);
}

}  // namespace

int main() {
  Program program;
  constexpr int kSide = 1024;
  static_assert(kSide * kSide == kCount);
  float* a = reinterpret_cast<float*>(words());
  float* b = reinterpret_cast<float*>(words());
  float* c = reinterpret_cast<float*>(words());
  __half* halves = reinterpret_cast<__half*>(words());
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cublasHandle_t handle;
  BLAS(cublasCreate(&handle));
  BLAS(cublasSetStream(handle, stream));
  const float one = 1.f, half = 0.5f;
  fill<<<grid(), 256, 0, stream>>>(a, kCount, 1);
  fill<<<grid(), 256, 0, stream>>>(b, kCount, 2);
  for (const int round : program.rounds()) {
    fill<<<grid(), 256, 0, stream>>>(a, kCount, round);
    BLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, kSide, kSide, kSide, &one, a, kSide, b,
                     kSide, &half, c, kSide));
    halve<<<grid(), 256, 0, stream>>>(a, halves, kCount);
    BLAS(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, kSide, kSide, kSide, &one, halves,
                      CUDA_R_16F, kSide, halves, CUDA_R_16F, kSide, &half, c, CUDA_R_32F, kSide,
                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    BLAS(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 64, &one, a, 64, 4096,
                                   b, 64, 4096, &half, c, 64, 4096, 64));
    BLAS(cublasSaxpy(handle, kSide, &half, c, 1, b, 1));
    CHECK(cudaStreamSynchronize(stream));
  }
  program.digest("c", c, kBytes);
  program.digest("b", b, kBytes);
  return program.finish();
}
