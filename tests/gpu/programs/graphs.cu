// CUDA graphs: captured from two streams, replayed, updated by parameter and by whole graph, with
// eager launches between; another thread works while this one captures (relaxed and thread-local).
#include <thread>

#include "program.h"

using namespace matrix;

namespace {

cudaGraph_t capture(cudaStream_t stream, cudaStream_t side, unsigned* data, unsigned* other,
                    unsigned salt, cudaStreamCaptureMode mode) {
  cudaEvent_t fork, join;
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, mode));
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(side, fork));
  for (unsigned i = 0; i < 8; ++i) {
    step<<<grid(), 256, 0, stream>>>(data, kCount, salt + i);
    step<<<grid(), 256, 0, side>>>(other, kCount, salt * 3 + i);
  }
  CHECK(cudaEventRecord(join, side));
  CHECK(cudaStreamWaitEvent(stream, join));
  CHECK(cudaMemcpyAsync(other, data, kBytes / 2, cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaEventDestroy(fork));
  CHECK(cudaEventDestroy(join));
  return graph;
}

// Sets the salt of every kernel node of a graph in its executable form.
void set_salts(cudaGraphExec_t exec, cudaGraph_t graph, unsigned salt) {
  size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams params;
    CHECK(cudaGraphKernelNodeGetParams(node, &params));
    unsigned* data = *static_cast<unsigned**>(params.kernelParams[0]);
    unsigned words = kCount;
    void* arguments[] = {&data, &words, &salt};
    params.kernelParams = arguments;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
  }
}

}  // namespace

int main() {
  Program program;
  unsigned *data = words(), *other = words(), *beside = words();
  cudaStream_t stream, side, free_stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  step<<<grid(), 256, 0, free_stream>>>(beside, kCount, 1);  // code is loaded before any capture
  program.launched(1);
  CHECK(cudaDeviceSynchronize());

  const cudaGraph_t graph = capture(stream, side, data, other, 7, cudaStreamCaptureModeThreadLocal);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (const int round : program.rounds()) {
    for (int replay = 0; replay < 5; ++replay) CHECK(cudaGraphLaunch(exec, stream));
    step<<<grid(), 256, 0, stream>>>(data, kCount, round);
    // Captures again while another thread launches, and updates the executable graph with it.
    std::thread worker([&] {
      for (unsigned i = 0; i < 4; ++i) step<<<grid(), 256, 0, free_stream>>>(beside, kCount, i);
      CHECK(cudaStreamSynchronize(free_stream));
    });
    const cudaGraph_t fresh =
        capture(stream, side, data, other, 100 + round, cudaStreamCaptureModeRelaxed);
    worker.join();
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, fresh, &info));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphDestroy(fresh));
    set_salts(exec, graph, 1000 + round);  // by the nodes that it was instantiated from
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    program.launched(5 + 1 + 4 + 2);
  }
  CHECK(cudaGraphDestroy(graph));
  program.digest("data", data, kBytes);
  program.digest("other", other, kBytes);
  program.digest("beside", beside, kBytes);
  return program.finish();
}
