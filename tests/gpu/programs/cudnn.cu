// cuDNN without a framework: a convolution by a fixed algorithm and an activation.
#include <cudnn.h>

#include "program.h"

using namespace matrix;

#define DNN(call)                                                                       \
  do {                                                                                  \
    const cudnnStatus_t status_ = (call);                                               \
    if (status_ != CUDNN_STATUS_SUCCESS) {                                              \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudnnGetErrorString(status_)); \
      exit(2);                                                                          \
    }                                                                                   \
  } while (false)

namespace {

constexpr int kImages = 8, kChannels = 32, kSide = 64;

__global__ void fill(float* data, unsigned count, unsigned salt) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = static_cast<float>((i * 2654435761u + salt) % 1000) / 1000.f - 0.5f;
}

cudnnTensorDescriptor_t tensor() {
  cudnnTensorDescriptor_t descriptor;
  DNN(cudnnCreateTensorDescriptor(&descriptor));
  DNN(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, kImages,
                                 kChannels, kSide, kSide));
  return descriptor;
}

}  // namespace

int main() {
  static_assert(kImages * kChannels * kSide * kSide == kCount);
  Program program;
  float* x = reinterpret_cast<float*>(words());
  float* y = reinterpret_cast<float*>(words());
  float* weights = reinterpret_cast<float*>(words());
  cudnnHandle_t handle;
  DNN(cudnnCreate(&handle));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  DNN(cudnnSetStream(handle, stream));
  const cudnnTensorDescriptor_t shape = tensor();
  cudnnFilterDescriptor_t filter;
  DNN(cudnnCreateFilterDescriptor(&filter));
  DNN(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, kChannels, kChannels,
                                 3, 3));
  cudnnConvolutionDescriptor_t convolution;
  DNN(cudnnCreateConvolutionDescriptor(&convolution));
  DNN(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                      CUDNN_DATA_FLOAT));
  cudnnActivationDescriptor_t activation;
  DNN(cudnnCreateActivationDescriptor(&activation));
  DNN(cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_TANH, CUDNN_NOT_PROPAGATE_NAN, 0));
  const cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  size_t bytes = 0;
  DNN(cudnnGetConvolutionForwardWorkspaceSize(handle, shape, filter, convolution, shape, algorithm,
                                              &bytes));
  void* workspace = nullptr;
  CHECK(cudaMalloc(&workspace, bytes + 1));
  fill<<<grid(), 256, 0, stream>>>(x, kCount, 1);
  fill<<<grid(), 256, 0, stream>>>(weights, kCount, 2);
  const float one = 1.f, zero = 0.f;
  for ([[maybe_unused]] const int round : program.rounds()) {
    for (int i = 0; i < 4; ++i) {
      DNN(cudnnConvolutionForward(handle, &one, shape, x, filter, weights, convolution, algorithm,
                                  workspace, bytes, &zero, shape, y));
      DNN(cudnnActivationForward(handle, activation, &one, shape, y, &zero, shape, x));
    }
    CHECK(cudaStreamSynchronize(stream));
  }
  program.digest("x", x, kBytes);
  return program.finish();
}
