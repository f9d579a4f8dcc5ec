// A program of thousands of threads, all alive at once, that all launch. Each has a word of device
// memory that its kernels step: a launch that is lost, doubled or out of order leaves a wrong word.
//
//   crowd LAUNCHES      led by its test: "THREADS" on stdin, "THREADS WRONG" on stdout
//
// No thread ends before all have launched, so that none gets the place of another.
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "bench/workloads/driver.h"

namespace {

using heddle::workloads::Driver;

constexpr size_t kStackBytes = 64 * 1024;
constexpr size_t kStreams = 16;
constexpr uint32_t kBlockNs = 1'000;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "crowd: %s: error %d\n", what, result);
  _exit(1);
}

Driver driver;
CUcontext context;
CUfunction spin;
CUstream streams[kStreams];
pthread_barrier_t all_here, all_launched;
uint64_t launches;

struct Member {
  pthread_t thread{};
  CUdeviceptr word = 0;
  CUstream stream = nullptr;
  uint64_t expected = 0;
};

void* launch_all(void* argument) {
  Member& own = *static_cast<Member*>(argument);
  check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  pthread_barrier_wait(&all_here);
  for (uint64_t value = 1; value <= launches; ++value) {
    uint32_t block_ns = kBlockNs;
    void* params[] = {&own.word, &block_ns, &value};
    check(driver.cuLaunchKernel(spin, 1, 1, 1, 128, 1, 1, 0, own.stream, params, nullptr),
          "cuLaunchKernel");
    own.expected = own.expected * heddle::workloads::kStateFactor + value;
  }
  pthread_barrier_wait(&all_launched);
  return nullptr;
}

// How many threads' words are not theirs.
size_t gather(size_t count) {
  const size_t bytes = count * sizeof(uint64_t);
  CUdeviceptr words;
  check(driver.cuMemAlloc_v2(&words, bytes), "cuMemAlloc");
  check(driver.cuMemsetD8_v2(words, 0, bytes), "cuMemset");
  pthread_barrier_init(&all_here, nullptr, static_cast<unsigned>(count));
  pthread_barrier_init(&all_launched, nullptr, static_cast<unsigned>(count));
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kStackBytes);
  std::vector<Member> members(count);
  for (size_t i = 0; i < count; ++i) {
    members[i].word = words + i * sizeof(uint64_t);
    members[i].stream = streams[i % kStreams];
    if (pthread_create(&members[i].thread, &small, launch_all, &members[i]) != 0) {
      fprintf(stderr, "crowd: no more than %zu threads\n", i);
      _exit(1);
    }
  }
  for (const Member& member : members) pthread_join(member.thread, nullptr);
  check(driver.cuCtxSynchronize(), "cuCtxSynchronize");
  std::vector<uint64_t> found(count);
  check(driver.cuMemcpyDtoH_v2(found.data(), words, bytes), "cuMemcpyDtoH");
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += found[i] != members[i].expected;
  check(driver.cuMemFree_v2(words), "cuMemFree");
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  launches = strtoull(argv[1], nullptr, 10);
  driver = Driver::load();
  CUdevice device;
  CUmodule module;
  check(driver.cuInit(0), "cuInit");
  check(driver.cuDeviceGet(&device, 0), "cuDeviceGet");
  check(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(driver.cuModuleLoadData(&module, heddle::workloads::heddle_demo_ptx), "cuModuleLoadData");
  check(driver.cuModuleGetFunction(&spin, module, "heddle_spin"), "cuModuleGetFunction");
  for (CUstream& stream : streams) check(driver.cuStreamCreate(&stream, 1), "cuStreamCreate");
  setvbuf(stdout, nullptr, _IOLBF, 0);
  for (size_t count; scanf("%zu", &count) == 1;) printf("%zu %zu\n", count, gather(count));
  return 0;
}
