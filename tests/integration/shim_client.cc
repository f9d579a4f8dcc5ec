// An application under the shim, led by its test: one command a line on stdin, one answer a line.
// It finds the driver as applications do, and reaches the fake driver's controls behind the shim.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shim/driver/driver_api.h"

namespace {

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**);

#ifdef BIG_TLS
// So much that threads of this program need more than a small stack.
[[gnu::used]] thread_local char big[4 << 20];
#endif

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

int launch(CUfunction f, CUstream stream, bool per_thread, unsigned blocks = 8,
           unsigned threads = 128, unsigned shared = 0) {
  const auto call =
      reinterpret_cast<Launch>(dlsym(shim, per_thread ? "cuLaunchKernel_ptsz" : "cuLaunchKernel"));
  return call(f, blocks, 1, 1, threads, 1, 1, shared, stream, nullptr, nullptr);
}

// With more attributes than anybody has a use for.
int launch_with_attributes(CUfunction f, CUstream stream) {
  CUlaunchAttribute attributes[64]{};
  const CUlaunchConfig config{8, 1, 1, 128, 1, 1, 0, stream, attributes, 64};
  return symbol<CUresult(const CUlaunchConfig*, CUfunction, void**, void**)>("cuLaunchKernelEx")(
      &config, f, nullptr, nullptr);
}

// In clusters of two blocks, as a programmatic dependent launch.
int launch_pdl(CUfunction f, CUstream stream) {
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim = {2, 1, 1};
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[1].value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{8, 1, 1, 128, 1, 1, 0, stream, attributes, 2};
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

int launch_cooperative(CUfunction f, CUstream stream) {
  return symbol<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, CUstream, void**)>("cuLaunchCooperativeKernel")(
      f, 8, 1, 1, 128, 1, 1, 0, stream, nullptr);
}

int launch_graph(CUfunction of_kernel) {
  CUgraphExec exec;
  symbol<CUresult(CUgraphExec*, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags")(
      &exec, reinterpret_cast<CUgraph>(of_kernel), 0);
  return symbol<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch")(exec, nullptr);
}

CUgraphExec kept_graph = nullptr;

int make_graph(const char* of_kernel, unsigned long long flags = 0) {
  return symbol<CUresult(CUgraphExec*, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags")(
      &kept_graph, reinterpret_cast<CUgraph>(kernel(of_kernel)), flags);
}

int launch_on_two_devices(CUfunction f) {
  CUDA_LAUNCH_PARAMS launches[2] = {{f, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr},
                                    {f, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr}};
  launches[0].hStream = reinterpret_cast<CUstream>(64);
  launches[1].hStream = reinterpret_cast<CUstream>(4096);  // of the second context
  return symbol<CUresult(CUDA_LAUNCH_PARAMS*, unsigned, unsigned)>(
      "cuLaunchCooperativeKernelMultiDevice")(launches, 2, 0);
}

// Lets that device reach some memory.
int set_access(int device) {
  const CUmemAccessDesc who{{CU_MEM_LOCATION_TYPE_DEVICE, device}, 3};
  return symbol<CUresult(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t)>("cuMemSetAccess")(
      0, 0, &who, 1);
}

// Any entry point with `number` at one place and zeros else: what it does not take is not looked
// at.
int call(const char* name, uintptr_t number, size_t place) {
  using Words = int(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                    uintptr_t, uintptr_t, uintptr_t);
  uintptr_t w[10] = {};
  w[place] = number;
  return symbol<Words>(name)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9]);
}

// One launch each, all alive at once until the last is done. The last thread launches `last`; if
// that is another kernel, when all others have launched.
int launch_in_threads(CUfunction f, long number, CUfunction last) {
  std::atomic<long> done{0};
  auto body = [&](bool is_last) {
    while (is_last && last != f && done + 1 < number) std::this_thread::yield();
    launch(is_last ? last : f, nullptr, false);
    ++done;
    while (done < number) std::this_thread::yield();
  };
  std::vector<std::thread> threads;
  for (long i = 0; i < number; ++i) threads.emplace_back(body, i + 1 == number);
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(done);
}

// One launch each, one thread after the other.
int launch_in_turn(CUfunction f, long number) {
  int done = 0;
  for (long i = 0; i < number; ++i)
    std::thread([&] { done += launch(f, nullptr, false) == 0; }).join();
  return done;
}

// Launches that are different kernels to the shim, by their grids.
int launch_shapes(CUfunction f, long number) {
  const auto call = reinterpret_cast<Launch>(dlsym(shim, "cuLaunchKernel"));
  int done = 0;
  for (long i = 0; i < number; ++i) {
    done +=
        call(f, static_cast<unsigned>(i + 1), 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == 0;
  }
  return done;
}

// Launches of kernels with names as long as C++ makes them.
int launch_names(long number) {
  static std::vector<CUfunction> kernels;
  int done = 0;
  for (size_t i = 0; i < static_cast<size_t>(number); ++i) {
    const std::string name = std::to_string(i) + std::string(500, '_');
    if (i == kernels.size()) kernels.push_back(kernel(name.c_str()));
    done += launch(kernels[i], nullptr, false) == 0;
  }
  return done;
}

// The event of that number. A handle of the fake driver ends with its context's.
CUevent event_of(long number) { return reinterpret_cast<CUevent>(16 * number + 1); }

// One launch into each of so many streams.
int launch_streams(CUfunction f, long number) {
  int done = 0;
  for (long i = 0; i < number; ++i) {
    done += launch(f, reinterpret_cast<CUstream>(64 + 8 * i), false) == 0;
  }
  return done;
}

// What careless programs do: closes descriptors that it did not open, and uses the numbers for
// files of its own; then how many of those are still there and empty.
std::vector<int> stolen;
int steal() {
  for (int fd = 100; fd < 600; ++fd) {
    if (close(fd) != 0) continue;
    char path[] = "/tmp/heddle-shim-test-XXXXXX";
    const int file = mkstemp(path);
    unlink(path);
    if (file != fd) dup2(file, fd), close(file);
    stolen.push_back(fd);
  }
  return static_cast<int>(stolen.size());
}
int intact() {
  int count = 0;
  struct stat file;
  for (const int fd : stolen) count += fstat(fd, &file) == 0 && file.st_size == 0;
  return count;
}

// From now on it can make no thread.
int want_threads() {
  const rlimit none{0, 0};
  if (setrlimit(RLIMIT_NPROC, &none) != 0) return 1;
  return geteuid() == 0 ? setuid(65534) : 0;  // whom no limit holds
}

template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
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

CUstream stream_of(long number) { return reinterpret_cast<CUstream>(number); }

// As `call` tells it: of library 1, or of the list of one kernel's library.
CUkernel made = nullptr;
CUfunction kernel_of_library(const char* call, long number) {
  static char names[][32] = {"kernel of_a_library", "kernel ncclDevKernel_library"};
  symbol<CUresult(CUkernel*, uintptr_t, const char*)>(call)(&made, 1, names[number % 2]);
  return reinterpret_cast<CUfunction>(made);
}

const CUfunction first = kernel("first_kernel");
const CUfunction second = kernel("second_kernel");

struct Command {
  const char* word;
  int (*run)(long number);
};
const Command kCommands[] = {
    {"init", [](long) -> int { return symbol<CUresult(unsigned)>("cuInit")(0); }},
    {"launch", [](long n) { return launch(first, stream_of(n), false); }},
    {"second", [](long n) { return launch(second, stream_of(n), false); }},
    {"library_kernel",
     [](long n) { return launch(kernel_of_library("cuLibraryGetKernel", n), nullptr, false); }},
    {"listed_kernel",
     [](long n) { return launch(kernel_of_library("cuLibraryEnumerateKernels", n), nullptr, 0); }},
    {"again_kernel", [](long) { return launch(reinterpret_cast<CUfunction>(made), nullptr, 0); }},
    {"block", [](long n) { return launch(first, stream_of(64), 0, 8, static_cast<unsigned>(n)); }},
    {"shared", [](long n) { return launch(first, nullptr, 0, 8, 1, static_cast<unsigned>(n)); }},
    {"nccl", [](long n) { return launch(kernel("_Z21ncclDevKernel_AllGather"), stream_of(n), 0); }},
    {"symmetric",
     [](long n) { return launch(kernel("_Z29ncclSymkDevKernel_AllGather_ST"), stream_of(n), 0); }},
    {"reduce", [](long n) { return launch(kernel("two_shot_AllReduce"), stream_of(n), false); }},
    {"per_thread", [](long n) { return launch(first, stream_of(n), true); }},
    {"graph", [](long) { return launch_graph(first); }},
    {"graph_make", [](long) { return make_graph("first_kernel"); }},
    {"graph_make_many", [](long) { return make_graph("many second_kernel"); }},
    {"graph_make_child", [](long) { return make_graph("child many second_kernel"); }},
    {"graph_make_alloc", [](long) { return make_graph("alloc_node"); }},
    {"graph_make_free", [](long) { return make_graph("free_node"); }},
    {"graph_make_while", [](long) { return make_graph("while loop_body"); }},
    {"graph_make_far", [](long) { return make_graph("far second_kernel"); }},
    {"graph_make_updatable", [](long) { return make_graph("updatable second_kernel"); }},
    {"graph_make_updatable_child",
     [](long) { return make_graph("child updatable second_kernel"); }},
    {"graph_make_coop", [](long) { return make_graph("coop_kernel"); }},
    {"graph_make_device", [](long) { return make_graph("first_kernel", 4); }},
    {"graph_make_by_node", [](long) { return make_graph("first_kernel", 8); }},
    {"graph_make_raised", [](long) { return make_graph("raised_kernel", 8); }},
    {"graph_run",
     [](long n) -> int {
       return symbol<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch")(kept_graph, stream_of(n));
     }},
    {"graph_update",
     [](long) -> int {
       return symbol<CUresult(CUgraphExec, CUgraphNode, unsigned)>("cuGraphNodeSetEnabled")(
           kept_graph, nullptr, 0);
     }},
    {"graph_update_all",
     [](long) -> int {
       return symbol<CUresult(CUgraphExec, CUgraph, void*)>("cuGraphExecUpdate_v2")(
           kept_graph, reinterpret_cast<CUgraph>(kernel("second_kernel")), nullptr);
     }},
    {"graph_end",
     [](long) -> int { return symbol<CUresult(CUgraphExec)>("cuGraphExecDestroy")(kept_graph); }},
    {"graph_nccl", [](long) { return launch_graph(kernel("ncclDevKernel_AllReduce")); }},
    {"graph_child", [](long) { return launch_graph(kernel("child child ncclKernel_X")); }},
    {"graph_many", [](long) { return launch_graph(kernel("many ncclKernel_X")); }},
    {"graph_plain", [](long) { return launch_graph(kernel("child many second_kernel")); }},
    {"graph_while", [](long) { return launch_graph(kernel("many while loop_body")); }},
    {"graph_far", [](long) { return launch_graph(kernel("many far second_kernel")); }},
    {"pdl", [](long n) { return launch_pdl(second, stream_of(n)); }},
    {"attributes", [](long n) { return launch_with_attributes(first, stream_of(n)); }},
    {"memset",
     [](long n) -> int {
       return symbol<CUresult(CUdeviceptr, unsigned char, size_t, CUstream)>("cuMemsetD8Async")(
           0, 0, 0, stream_of(n));
     }},
    {"coop", [](long n) { return launch_cooperative(first, stream_of(n)); }},
    {"access", [](long n) { return set_access(static_cast<int>(n)); }},
    {"multi", [](long) { return launch_on_two_devices(first); }},
    {"sync",
     [](long n) -> int { return symbol<CUresult(CUstream)>("cuStreamSynchronize")(stream_of(n)); }},
    {"destroy",
     [](long n) -> int { return symbol<CUresult(CUstream)>("cuStreamDestroy_v2")(stream_of(n)); }},
    {"capture",
     [](long n) -> int {
       return symbol<CUresult(CUstream, int)>("cuStreamBeginCapture_v2")(stream_of(n), 0);
     }},
    {"capture_per_thread",
     [](long) -> int {
       return symbol<CUresult(CUstream, int)>("cuStreamBeginCapture_v2_ptsz")(nullptr, 0);
     }},
    {"end_capture",
     [](long n) -> int {
       return symbol<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream_of(n), nullptr);
     }},
    {"context",
     [](long n) -> int {
       return symbol<CUresult(CUcontext)>("cuCtxSetCurrent")(reinterpret_cast<CUcontext>(16 * n));
     }},
    {"destroy_context",
     [](long n) -> int {
       return symbol<CUresult(CUcontext)>("cuCtxDestroy_v2")(reinterpret_cast<CUcontext>(16 * n));
     }},
    {"retain",
     [](long) -> int {
       CUcontext context;
       return symbol<CUresult(CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
     }},
    {"cancelled", [](long n) { return launch_cancelled(stream_of(n)); }},
    {"fork", [](long) { return in_child([] { return launch(first, nullptr, false); }); }},
    {"fork_release",
     [](long) {
       return in_child([] {
         symbol<CUresult(int)>("cuDevicePrimaryCtxRelease_v2")(0);
         return control("fake_green_contexts").load();
       });
     }},
    {"fork_reset",
     [](long) {
       return in_child([] {
         symbol<CUresult(int)>("cuDevicePrimaryCtxReset_v2")(0);
         return control("fake_green_contexts").load();
       });
     }},
    {"threads", [](long n) { return launch_in_threads(first, n, first); }},
    {"threads_nccl",
     [](long n) { return launch_in_threads(first, n, kernel("_Z21ncclDevKernel_AllGather")); }},
    {"in_turn", [](long n) { return launch_in_turn(first, n); }},
    {"shapes", [](long n) { return launch_shapes(first, n); }},
    {"streams", [](long n) { return launch_streams(first, n); }},
    {"names", [](long n) { return launch_names(n); }},
    {"record",
     [](long n) -> int {
       return symbol<CUresult(CUevent, CUstream)>("cuEventRecord")(event_of(n), stream_of(64));
     }},
    {"sync_event",
     [](long n) -> int { return symbol<CUresult(CUevent)>("cuEventSynchronize")(event_of(n)); }},
    {"again",
     [](long n) {
       int done = 0;
       for (long i = 0; i < n; ++i) done += launch(first, nullptr, false) == 0;
       return done;
     }},
    {"burst",
     [](long n) {
       int result = 0;
       for (long i = 0; i < n && result == 0; ++i) result = launch(first, nullptr, false);
       return result;
     }},
    {"slow_burst",
     [](long n) {
       int result = 0;
       for (long i = 0; i < n && result == 0; ++i) {
         result = launch(first, nullptr, false);
         std::this_thread::sleep_for(std::chrono::microseconds(100));
       }
       return result;
     }},
    {"want_threads", [](long) { return want_threads(); }},
    {"steal", [](long) { return steal(); }},
    {"intact", [](long) { return intact(); }},
    {"bypass",
     [](long n) {
       std::atomic_ref(*symbol<unsigned>("heddle_shim_bypass")) = static_cast<unsigned>(n);
       return 0;
     }},
};

int answer(const char* line) {
  char word[64] = {}, name[64] = {};
  long number = 0;
  unsigned long at = 0, place = 0;
  if (sscanf(line, "call %63s %lu %lu", name, &at, &place) >= 1) return call(name, at, place);
  if (sscanf(line, "set %63s %ld", name, &number) == 2)
    return control(name) = static_cast<int>(number);
  if (sscanf(line, "get %63s", name) == 1) return control(name);
  sscanf(line, "%63s %ld", word, &number);
  for (const Command& command : kCommands) {
    if (strcmp(word, command.word) == 0) return command.run(number);
  }
  return -1;
}

// A second thread, for one command at a time; it lives until it is told to end.
struct Worker {
  void start(std::string command) {
    const std::lock_guard lock(mutex);
    todo = std::move(command);
    busy = true;
    if (!thread.joinable()) {
      ended = false;
      thread = std::thread([this] { run(); });
    }
    changed.notify_all();
  }
  int result() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !busy; });
    return last;
  }
  void end() {
    start("");
    thread.join();
  }
  void run() {
    std::unique_lock lock(mutex);
    while (!ended) {
      changed.wait(lock, [this] { return busy; });
      const std::string command = todo;
      ended = command.empty();
      lock.unlock();
      const int value = ended ? 0 : answer(command.c_str());
      lock.lock();
      last = value;
      busy = false;
      changed.notify_all();
    }
  }

  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::string todo;
  int last = 0;
  bool busy = false, ended = false;
};

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  shim = dlopen("libcuda.so.1", RTLD_NOW);
  // The shim loads the driver here, not we below.
  int version;
  if (shim != nullptr) symbol<CUresult(int*)>("cuDriverGetVersion")(&version);
  fake = dlopen(getenv("HEDDLE_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  if (shim == nullptr || fake == nullptr) return 2;
  Worker worker;
  char line[128];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    char asked[64], name[64];
    unsigned long flags;
    if (sscanf(line, "proc %63s %lu %63s", asked, &flags, name) == 3) {
      puts(proc_address(asked, flags, name));
    } else if (strncmp(line, "ops", 3) == 0) {
      puts(reinterpret_cast<const char* (*)()>(dlsym(fake, "fake_ops"))());
    } else if (line[0] == '@') {  // "@command": on the worker, answered by "result"
      worker.start(line + 1);
    } else if (strncmp(line, "result", 6) == 0) {
      printf("%d\n", worker.result());
    } else if (strncmp(line, "end_worker", 10) == 0) {
      worker.end();
      puts("0");
    } else {
      printf("%d\n", answer(line));
    }
  }
  if (worker.thread.joinable()) worker.end();
  return 0;
}
