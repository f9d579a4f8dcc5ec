// An application under the shim, led by its test: one command a line on stdin, one answer a line.
// It finds the driver as applications do, and reaches the fake driver's controls behind the shim.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "shim/cuda/driver_api.h"

namespace {

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**);

void* shim;
void* fake;

template <class F>
F* symbol(const char* name) {
  return reinterpret_cast<F*>(dlsym(shim, name));
}
std::atomic<int>& control(const char* name) {
  return *static_cast<std::atomic<int>*>(dlsym(fake, name));
}

// The name of a kernel is its handle, so it must stay.
CUfunction kernel(const char* name) { return reinterpret_cast<CUfunction>(strdup(name)); }

int launch(CUfunction f, CUstream stream, bool per_thread, unsigned blocks = 8) {
  const auto call =
      reinterpret_cast<Launch>(dlsym(shim, per_thread ? "cuLaunchKernel_ptsz" : "cuLaunchKernel"));
  return call(f, blocks, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
}

int launch_pdl(CUfunction f) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{8, 1, 1, 128, 1, 1, 0, nullptr, &attribute, 1};
  return symbol<CUresult(const CUlaunchConfig*, CUfunction, void**, void**)>("cuLaunchKernelEx")(
      &config, f, nullptr, nullptr);
}

// "same" if cuGetProcAddress hands out what the shim exports as `name`.
const char* proc_address(const char* asked, uint64_t flags, const char* name) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status;
  symbol<CUresult(const char*, void**, int, uint64_t, CUdriverProcAddressQueryResult*)>(
      "cuGetProcAddress_v2")(asked, &address, 12030, flags, &status);
  if (address == dlsym(shim, name)) return "same";
  return address == dlsym(fake, name) ? "real" : "other";
}

int in_child(CUfunction f) {
  const pid_t child = fork();
  if (child == 0) _exit(launch(f, nullptr, false));
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A launch by a thread that is cancelled in it.
int launch_cancelled(CUstream stream) {
  pthread_t thread;
  const auto body = [](void* on) -> void* {
    static const CUfunction f = kernel("cancelled_kernel");
    pthread_cancel(pthread_self());
    launch(f, static_cast<CUstream>(on), false);
    return nullptr;
  };
  pthread_create(&thread, nullptr, body, stream);
  void* result = nullptr;
  pthread_join(thread, &result);
  return result == PTHREAD_CANCELED ? 0 : 1;
}

int answer(char* line) {
  static const CUfunction first = kernel("first_kernel");
  static const CUfunction second = kernel("second_kernel");
  char word[64] = {}, name[64] = {};
  long number = 0;
  sscanf(line, "%63s %ld", word, &number);
  const auto stream = reinterpret_cast<CUstream>(number);
  if (strcmp(word, "init") == 0) return symbol<CUresult(unsigned)>("cuInit")(0);
  if (strcmp(word, "launch") == 0) return launch(first, stream, false);
  if (strcmp(word, "second") == 0) return launch(second, stream, false);
  if (strcmp(word, "nccl") == 0) {
    return launch(kernel("_Z21ncclDevKernel_AllGather"), stream, false);
  }
  if (strcmp(word, "per_thread") == 0) return launch(first, stream, true);
  if (strcmp(word, "pdl") == 0) return launch_pdl(first);
  if (strcmp(word, "sync") == 0) return symbol<CUresult(CUstream)>("cuStreamSynchronize")(stream);
  if (strcmp(word, "destroy") == 0) return symbol<CUresult(CUstream)>("cuStreamDestroy_v2")(stream);
  if (strcmp(word, "alloc") == 0) {
    return symbol<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(nullptr, 1);
  }
  if (strcmp(word, "missing") == 0) return symbol<CUresult(void*)>("cuMemFreeHost")(nullptr);
  if (strcmp(word, "capture") == 0) {
    return symbol<CUresult(CUstream, int)>("cuStreamBeginCapture_v2")(stream, 0);
  }
  if (strcmp(word, "end_capture") == 0) {
    return symbol<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream, nullptr);
  }
  if (strcmp(word, "shapes") == 0) {  // as many kernels
    for (long i = 1; i <= number; ++i) launch(first, nullptr, false, static_cast<unsigned>(i));
    return 0;
  }
  if (strcmp(word, "streams") == 0) {  // as many streams
    for (long i = 1; i <= number; ++i) launch(first, reinterpret_cast<CUstream>(i << 8), false);
    return 0;
  }
  if (strcmp(word, "cancelled") == 0) return launch_cancelled(stream);
  if (strcmp(word, "fork") == 0) return in_child(first);
  if (strcmp(word, "bypass") == 0) {
    std::atomic_ref(*symbol<unsigned>("heddle_shim_bypass")) = static_cast<unsigned>(number);
    return 0;
  }
  if (strcmp(word, "threads") == 0) {  // one launch each, all alive at once until the last is done
    std::atomic<long> done{0};
    auto body = [&] {
      launch(first, nullptr, false);
      ++done;
      while (done < number) std::this_thread::yield();
    };
    std::thread* threads = new std::thread[static_cast<size_t>(number)];
    for (long i = 0; i < number; ++i) threads[i] = std::thread(body);
    for (long i = 0; i < number; ++i) threads[i].join();
    delete[] threads;
    return static_cast<int>(done);
  }
  if (sscanf(line, "set %63s %ld", name, &number) == 2)
    return control(name) = static_cast<int>(number);
  if (sscanf(line, "get %63s", name) == 1) return control(name);
  return -1;
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  shim = dlopen("libcuda.so.1", RTLD_NOW);
  fake = dlopen(getenv("HEDDLE_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  if (shim == nullptr || fake == nullptr) return 2;
  char line[128];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    char asked[64], name[64];
    unsigned long flags;
    if (sscanf(line, "proc %63s %lu %63s", asked, &flags, name) == 3) {
      puts(proc_address(asked, flags, name));
    } else {
      printf("%d\n", answer(line));
    }
  }
  return 0;
}
