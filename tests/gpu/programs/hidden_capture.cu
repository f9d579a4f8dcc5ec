// Captures in global mode, made through the driver's own file, which nothing that was preloaded
// sees, while another thread launches: no query of anybody else's may end them.
#include <cuda.h>
#include <dlfcn.h>

#include <thread>

#include "program.h"

using namespace matrix;

namespace {

// The file that the loader has of the driver, with a version in its name.
std::string driver_file() {
  std::string found;
  char line[4200];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr) {
    const std::string text(line);
    const size_t path = text.find('/'), name = text.rfind("/libcuda.so.");
    const bool versioned = name != std::string::npos && text.find('.', name + 12) < text.size();
    if (versioned) found = text.substr(path, text.find('\n') - path);
  }
  if (maps != nullptr) fclose(maps);
  return found;
}

}  // namespace

int main() {
  Program program;
  unsigned *captured = words(), *other = words();
  cudaStream_t capturing, launches;
  CHECK(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&launches, cudaStreamNonBlocking));
  step<<<grid(), 256, 0, launches>>>(other, kCount, 0);
  step<<<grid(), 256, 0, capturing>>>(captured, kCount, 0);
  program.launched(2);
  CHECK(cudaDeviceSynchronize());
  void* file = dlopen(driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) skip("the driver's file has no version in its name");
  const auto begin =
      reinterpret_cast<decltype(&cuStreamBeginCapture)>(dlsym(file, "cuStreamBeginCapture_v2"));
  const auto end =
      reinterpret_cast<decltype(&cuStreamEndCapture)>(dlsym(file, "cuStreamEndCapture"));
  const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(file, "cuLaunchKernel"));
  cudaFunction_t function;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(step)));
  std::thread beside([&] {
    for (int turn = 0; turn < 1000; ++turn) {
      for (unsigned i = 0; i < 6; ++i) step<<<grid(), 256, 0, launches>>>(other, kCount, 1);
      program.launched(6);
      usleep(300);
    }
  });
  for (const int round : program.rounds()) {
    for (unsigned capture = 0; capture < 5; ++capture) {
      if (begin(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS) return 2;
      auto salt = static_cast<unsigned>(round) * 8 + capture;
      unsigned count = kCount;
      void* arguments[] = {&captured, &count, &salt};
      for (unsigned i = 0; i < 6; ++i) {
        if (launch(reinterpret_cast<CUfunction>(function), kCount / 256, 1, 1, 256, 1, 1, 0,
                   capturing, arguments, nullptr) != CUDA_SUCCESS) {
          return 2;
        }
      }
      usleep(capture * 300);
      CUgraph graph;
      const CUresult ended = end(capturing, &graph);
      if (ended != CUDA_SUCCESS) {
        fprintf(stderr, "a capture ends with %d\n", ended);
        return 3;
      }
      cudaGraphExec_t exec;
      CHECK(cudaGraphInstantiate(&exec, graph, 0));
      CHECK(cudaGraphLaunch(exec, capturing));
      CHECK(cudaStreamSynchronize(capturing));
      CHECK(cudaGraphExecDestroy(exec));
      CHECK(cudaGraphDestroy(graph));
      program.launched(1);
    }
  }
  beside.join();
  CHECK(cudaDeviceSynchronize());
  program.digest("captured", captured, kBytes);
  program.digest("other", other, kBytes);
  return program.finish();
}
