// Conditional nodes: a WHILE node whose body counts down on the device, and an IF node beside it.
#include "program.h"

using namespace matrix;

namespace {

__global__ void count_down(unsigned* left, cudaGraphConditionalHandle handle) {
  if (threadIdx.x == 0) cudaGraphSetConditional(handle, --*left != 0);
}

__global__ void is_odd(const unsigned* value, cudaGraphConditionalHandle handle) {
  if (threadIdx.x == 0) cudaGraphSetConditional(handle, *value & 1);
}

cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t* after, void* function,
                           dim3 blocks, void** arguments) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeKernel;
  params.kernel.func = function;
  params.kernel.gridDim = blocks;
  params.kernel.blockDim = dim3(256);
  params.kernel.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, after, nullptr, after != nullptr ? 1 : 0, &params));
  return node;
}

// Adds the node and returns it; `body` receives its empty body.
cudaGraphNode_t add_conditional(cudaGraph_t graph, const cudaGraphNode_t* after,
                                cudaGraphConditionalHandle handle,
                                cudaGraphConditionalNodeType type, cudaGraph_t* body) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, after, nullptr, after != nullptr ? 1 : 0, &params));
  *body = params.conditional.phGraph_out[0];
  return node;
}

}  // namespace

int main() {
  Program program;
  unsigned *data = words(), *left = words(), *round_on_device = words();
  unsigned count = kCount, salt = 5, salt_if = 11;
  cudaGraph_t graph, while_body, if_body;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle again, odd;
  CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  CHECK(cudaGraphConditionalHandleCreate(&odd, graph, 0, cudaGraphCondAssignDefault));

  const cudaGraphNode_t loop =
      add_conditional(graph, nullptr, again, cudaGraphCondTypeWhile, &while_body);
  void* step_arguments[] = {&data, &count, &salt};
  const cudaGraphNode_t inner =
      add_kernel(while_body, nullptr, reinterpret_cast<void*>(step), grid(), step_arguments);
  void* down_arguments[] = {&left, &again};
  add_kernel(while_body, &inner, reinterpret_cast<void*>(count_down), dim3(1), down_arguments);

  void* odd_arguments[] = {&round_on_device, &odd};
  const cudaGraphNode_t ask =
      add_kernel(graph, &loop, reinterpret_cast<void*>(is_odd), dim3(1), odd_arguments);
  add_conditional(graph, &ask, odd, cudaGraphCondTypeIf, &if_body);
  void* if_arguments[] = {&data, &count, &salt_if};
  add_kernel(if_body, nullptr, reinterpret_cast<void*>(step), grid(), if_arguments);

  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (const int round : program.rounds()) {
    const unsigned values[2] = {3u + round % 5, static_cast<unsigned>(round)};
    CHECK(cudaMemcpyAsync(left, &values[0], sizeof(unsigned), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(round_on_device, &values[1], sizeof(unsigned), cudaMemcpyHostToDevice,
                          stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    program.launched(1);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
