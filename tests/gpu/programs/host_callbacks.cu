// Host functions in stream order: each reads what the kernel before it wrote and hands on what the
// kernel after it reads.
#include "program.h"

using namespace matrix;

namespace {

struct Mailbox {
  unsigned* pinned;
  unsigned calls = 0;
};

void CUDART_CB answer(void* data) {
  Mailbox* box = static_cast<Mailbox*>(data);
  *box->pinned = *box->pinned * 48271u + ++box->calls;
}

void CUDART_CB answer_with_status(cudaStream_t, cudaError_t status, void* data) {
  CHECK(status);
  answer(data);
}

__global__ void exchange(unsigned* data, unsigned count, volatile unsigned* pinned) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  __shared__ unsigned salt;
  if (threadIdx.x == 0) salt = *pinned;  // over the bus: once a block
  __syncthreads();
  if (i < count) data[i] = (data[i] + salt) * 2654435761u;
}

__global__ void post(const unsigned* data, volatile unsigned* pinned) { *pinned = data[17]; }

}  // namespace

int main() {
  Program program;
  unsigned* data = words();
  Mailbox box;
  CHECK(cudaMallocHost(&box.pinned, sizeof(unsigned)));
  *box.pinned = 1;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  for (const int round : program.rounds()) {
    for (int i = 0; i < 4; ++i) {
      exchange<<<grid(), 256, 0, stream>>>(data, kCount, box.pinned);
      post<<<1, 1, 0, stream>>>(data, box.pinned);
      if (round % 2 == 0) {
        CHECK(cudaLaunchHostFunc(stream, answer, &box));
      } else {
        CHECK(cudaStreamAddCallback(stream, answer_with_status, &box, 0));
      }
    }
    CHECK(cudaStreamSynchronize(stream));
    program.launched(8);
  }
  program.digest("data", data, kBytes);
  program.digest("calls", &box.calls, sizeof box.calls);
  return program.finish();
}
