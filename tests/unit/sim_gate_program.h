// A program of its own process at the simulated driver, its streams and the words that it waits
// for.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "bench/workloads/driver.h"
#include "tests/folder.h"

namespace heddle::sim {

using std::chrono::milliseconds;

constexpr size_t kPage = 4096;
constexpr uint32_t kBytes = 1 << 20;
constexpr int kStreams = 12;
inline void* library = nullptr;

template <class Signature>
Signature* symbol(const char* name) {
  void* found = dlsym(library, name);
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<Signature*>(found);
}

inline bool soon(const std::function<bool()>& what) {
  const auto until = std::chrono::steady_clock::now() + milliseconds(10'000);
  while (!what()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}
// That nothing happens can only be seen for a while.
inline bool never(const std::function<bool()>& what) {
  for (int i = 0; i < 30; ++i) {
    if (what()) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

struct Other {
  std::thread thread;
  std::unique_ptr<std::atomic<bool>> ended = std::make_unique<std::atomic<bool>>(false);
};
// One program, its streams and the words that it waits for.
struct Program {
  void open() {
    library = dlopen(HEDDLE_SIM_DIR "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(library, nullptr) << dlerror();
    cu = workloads::Driver::load();
    wait32 = symbol<CUresult(CUstream, CUdeviceptr, uint32_t, unsigned)>("cuStreamWaitValue32");
    batch = symbol<CUresult(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned)>(
        "cuStreamBatchMemOp");
    enlist = symbol<CUresult(void*, size_t, unsigned)>("cuMemHostRegister_v2");
    strike = symbol<CUresult(void*)>("cuMemHostUnregister");
    ASSERT_EQ(cu.cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(cu.cuModuleLoadData(&module, workloads::heddle_demo_ptx), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuModuleGetFunction(&spin, module, "heddle_spin"), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuMemHostAlloc(reinterpret_cast<void**>(&done), kStreams * sizeof *done, 0),
              CUDA_SUCCESS);
    for (CUstream& stream : streams) {
      ASSERT_EQ(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    const int fd = memfd_create("words", 0);
    ASSERT_EQ(ftruncate(fd, kPage), 0);
    void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(page, MAP_FAILED);
    words = static_cast<std::atomic<uint32_t>*>(page);
    ASSERT_EQ(enlist(page, kPage, kHostRegisterPortable | kHostRegisterDeviceMap), CUDA_SUCCESS);
  }

  CUdeviceptr at(int word) { return reinterpret_cast<CUdeviceptr>(&words[word]); }

  // Counts up the stream's number when it has run.
  void launch(int stream) {
    CUdeviceptr state = reinterpret_cast<CUdeviceptr>(&done[stream]);
    uint32_t block_ns = 0;
    uint64_t value = 1;
    void* params[] = {&state, &block_ns, &value};
    EXPECT_EQ(cu.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, streams[stream], params, nullptr),
              CUDA_SUCCESS);
  }
  void gate(int stream, uint32_t ticket) {
    EXPECT_EQ(wait32(streams[stream], at(0), ticket, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  }

  // What so many launches leave: state = state * factor + 1.
  static uint64_t after(int launches) {
    uint64_t state = 0;
    while (launches-- > 0) state = state * workloads::kStateFactor + 1;
    return state;
  }
  bool ran(int stream, int launches) {
    return std::atomic_ref(done[stream]).load() == after(launches);
  }
  CUdeviceptr take() {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cu.cuMemAlloc_v2(&memory, kBytes), CUDA_SUCCESS);
    return memory;
  }

  // Another thread of the program, in the same context.
  Other meanwhile(std::function<void()> call) {
    Other other;
    other.thread = std::thread([this, call, ended = other.ended.get()] {
      EXPECT_EQ(cu.cuCtxSetCurrent(primary), CUDA_SUCCESS);
      call();
      *ended = true;
    });
    return other;
  }
  bool waits(Other& other) {
    return never([&] { return other.ended->load(); });
  }
  bool goes(Other& other) {
    return soon([&] { return other.ended->load(); });
  }

  workloads::Driver cu;
  CUcontext primary = nullptr;
  CUfunction spin = nullptr;
  CUstream streams[kStreams] = {};
  uint64_t* done = nullptr;
  std::atomic<uint32_t>* words = nullptr;
  CUresult (*wait32)(CUstream, CUdeviceptr, uint32_t, unsigned) = nullptr;
  CUresult (*batch)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned) = nullptr;
  CUresult (*enlist)(void*, size_t, unsigned) = nullptr;
  CUresult (*strike)(void*) = nullptr;
};

// Each has a driver of its own, and so its own hardware queues.
inline void in_child(const char* queues, const std::function<void(Program&)>& body) {
  const TestFolder folder;
  setenv("HEDDLE_SIM_SOCKET", (folder.path() + "/gpu.sock").c_str(), 1);
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues != nullptr) setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);  // of what stands for ever
    Program program;
    program.open();
    body(program);
    fflush(stdout);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace heddle::sim
