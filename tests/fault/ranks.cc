// heddle-ranks: ranks of a job whose kernels wait for each other on the simulated GPU.
//
//   heddle-ranks --ranks N --count C --iterations I --block-ns T
//
// This process is C of the N ranks, each a thread with a stream of its own. Every
// iteration launches two kernels that fill the GPU, then a collective, and synchronizes. A launch
// that is held back for good is a program that does not end.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/workloads/driver.h"

namespace {

using heddle::workloads::Driver;

constexpr char kPtx[] =
    ".version 7.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry heddle_spin(.param .u64 s, .param .u32 n, .param .u64 v)\n{ ret; }\n"
    ".visible .entry ncclDevKernel_heddle_meet(.param .u64 m, .param .u32 r)\n{ ret; }\n";
struct Options {
  uint32_t ranks = 2, count = 1, iterations = 50, block_ns = 200'000;
};

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "heddle-ranks: %s: %d\n", call, result);
  exit(1);
}

struct Job {
  Driver driver = Driver::load();
  CUcontext context = nullptr;
  CUfunction spin = nullptr, meet = nullptr;

  Job() {
    CUdevice device;
    CUmodule module;
    check(driver.cuInit(0), "cuInit");
    check(driver.cuDeviceGet(&device, 0), "cuDeviceGet");
    check(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(driver.cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
    check(driver.cuModuleGetFunction(&spin, module, "heddle_spin"), "cuModuleGetFunction");
    check(driver.cuModuleGetFunction(&meet, module, "ncclDevKernel_heddle_meet"),
          "cuModuleGetFunction");
  }

  void launch(CUfunction f, unsigned blocks, CUstream stream, void** params) const {
    check(driver.cuLaunchKernel(f, blocks, 1, 1, 1024, 1, 1, 0, stream, params, nullptr),
          "cuLaunchKernel");
  }

  void run(const Options& options) const {
    CUstream stream;
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(driver.cuStreamCreate(&stream, 1), "cuStreamCreate");
    for (uint32_t i = 0; i < options.iterations; ++i) {
      uint64_t none = 0, meeting = i + 1;
      uint32_t block_ns = options.block_ns, ranks = options.ranks;
      void* spin_params[] = {&none, &block_ns, &none};
      void* meet_params[] = {&meeting, &ranks};
      launch(spin, 264, stream, spin_params);
      launch(spin, 264, stream, spin_params);
      launch(meet, 1, stream, meet_params);
      check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto value = static_cast<uint32_t>(strtoul(argv[i + 1], nullptr, 10));
    if (strcmp(argv[i], "--ranks") == 0) options.ranks = value;
    if (strcmp(argv[i], "--count") == 0) options.count = value;
    if (strcmp(argv[i], "--iterations") == 0) options.iterations = value;
    if (strcmp(argv[i], "--block-ns") == 0) options.block_ns = value;
  }
  const Job job;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < options.count; ++i) threads.emplace_back([&] { job.run(options); });
  for (std::thread& thread : threads) thread.join();
  return 0;
}
