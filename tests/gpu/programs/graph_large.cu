// A graph of 1 500 nodes that is the child of another: by what its nodes are, all of them, the shim
// decides whether it may be held back.
#include "program.h"

using namespace matrix;

namespace {

constexpr unsigned kNodes = 1500;

cudaGraph_t chain(cudaStream_t stream, unsigned* data) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (unsigned i = 0; i < kNodes; ++i) step<<<grid(), 256, 0, stream>>>(data, kCount, i);
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

}  // namespace

int main() {
  Program program;
  unsigned* data = words();
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  step<<<grid(), 256, 0, stream>>>(data, kCount, 1);  // code is loaded before the capture
  program.launched(1);
  CHECK(cudaDeviceSynchronize());

  const cudaGraph_t inner = chain(stream, data);
  cudaGraph_t outer;
  cudaGraphNode_t child;
  CHECK(cudaGraphCreate(&outer, 0));
  CHECK(cudaGraphAddChildGraphNode(&child, outer, nullptr, 0, inner));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, outer, 0));
  for (const int round : program.rounds()) {
    step<<<grid(), 256, 0, stream>>>(data, kCount, round);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    program.launched(3);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
