// A program of executable graphs on the simulated GPU, led by its test: one command a line on
// stdin, one answer a line. Its kernels change a word in host memory in a way that depends on their
// order; nothing that waits for the GPU is needed to read it.
#include <atomic>
#include <cstring>
#include <string>

#include "bench/workloads/driver.h"

namespace heddle::workloads {
namespace {

Driver cu;
CUfunction spin;
CUcontext primary;
CUstream capturing, streams[4];
CUgraphExec exec;
uint64_t* word;

void must(CUresult result) {
  if (result != CUDA_SUCCESS) exit(1);
}

int init(unsigned) {
  const int result = cu.cuInit(0);
  must(cu.cuDevicePrimaryCtxRetain(&primary, 0));
  must(cu.cuCtxSetCurrent(primary));
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  must(cu.cuLibraryLoadData(&library, heddle_demo_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  must(cu.cuLibraryGetKernel(&kernel, library, "heddle_spin"));
  spin = reinterpret_cast<CUfunction>(kernel);
  must(cu.cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0));
  must(cu.cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
  for (CUstream& stream : streams) must(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return result;
}

// So many kernels of half a millisecond.
void launch(CUstream stream, unsigned kernels, uint64_t value) {
  for (unsigned i = 0; i < kernels; ++i) {
    CUdeviceptr state = reinterpret_cast<CUdeviceptr>(word);
    uint32_t block_ns = 500'000;
    void* params[] = {&state, &block_ns, &value};
    must(cu.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr));
  }
}

CUgraph capture(unsigned kernels, uint64_t value) {
  must(cu.cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(capturing, kernels, value);
  CUgraph graph = nullptr;
  must(cu.cuStreamEndCapture(capturing, &graph));
  return graph;
}

void follow(CUstream stream, CUstream other) {
  CUevent event = nullptr;
  must(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  must(cu.cuEventRecord(event, other));
  must(cu.cuStreamWaitEvent(stream, event, 0));
}
// So many kernels in a row, so many in each of two branches, and again in a row.
int make_forked(unsigned kernels) {
  must(cu.cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(capturing, kernels, 1);
  follow(streams[0], capturing);
  launch(capturing, kernels, 1);
  launch(streams[0], kernels, 1);
  follow(capturing, streams[0]);
  launch(capturing, kernels, 1);
  CUgraph graph = nullptr;
  must(cu.cuStreamEndCapture(capturing, &graph));
  return cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
}
int make(unsigned kernels) { return cu.cuGraphInstantiateWithFlags(&exec, capture(kernels, 1), 0); }
// The same kernels with another value.
int update(unsigned kernels) {
  char info[64] = {};
  return cu.cuGraphExecUpdate_v2(exec, capture(kernels, 2), info);
}
int run(unsigned stream) { return cu.cuGraphLaunch(exec, streams[stream]); }
int destroy(unsigned) { return cu.cuGraphExecDestroy(exec); }
int sync(unsigned) { return cu.cuCtxSynchronize(); }
int reset(unsigned) {
  const auto call =
      reinterpret_cast<CUresult (*)(CUdevice)>(dlsym(cu.library, "cuDevicePrimaryCtxReset_v2"));
  return call(0);
}

const struct {
  const char* word;
  int (*run)(unsigned number);
} kCommands[] = {{"init", init}, {"fork", make_forked}, {"make", make}, {"update", update},
                 {"run", run},   {"destroy", destroy},  {"sync", sync}, {"reset", reset}};

std::string answer(const char* line) {
  if (strncmp(line, "word", 4) == 0) return std::to_string(std::atomic_ref(*word).load());
  for (const auto& command : kCommands) {
    const size_t length = strlen(command.word);
    if (strncmp(line, command.word, length) != 0) continue;
    return std::to_string(command.run(static_cast<unsigned>(atoi(line + length))));
  }
  return "what?";
}

}  // namespace
}  // namespace heddle::workloads

int main() {
  using namespace heddle::workloads;
  cu = Driver::load();
  char line[64];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    puts(answer(line).c_str());
    fflush(stdout);
  }
  return 0;
}
