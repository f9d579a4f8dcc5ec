// heddle-conformance: what the driver API promises and our programs rely on, checked on whatever
// libcuda.so.1 the loader finds. The simulated driver and a real one must give the same answers.
// Prints PASS or FAIL for each check; exit status 1 if any failed.
#include <cstring>
#include <thread>
#include <vector>

#include "bench/workloads/driver.h"

namespace heddle::workloads {
namespace {

constexpr uint32_t kLong = 20'000'000;  // ns of one kernel: long enough to be seen running
constexpr uint32_t kShort = 200'000;
constexpr auto kUnjoined = static_cast<CUresult>(904);
constexpr auto kCapturedEvent = static_cast<CUresult>(907);

Driver cu;
CUfunction spin;
CUfunction null_kernel;
CUcontext primary;
CUdeviceptr word;
int failures = 0;
bool holds;  // of the check that runs

#define EXPECT_IS(call, wanted)                                                       \
  do {                                                                                \
    const CUresult got = (call);                                                      \
    if (got != (wanted)) {                                                            \
      holds = false;                                                                  \
      printf("     %s = %d, want %d (line %d)\n", #call, got, int(wanted), __LINE__); \
    }                                                                                 \
  } while (false)
#define EXPECT_OK(call) EXPECT_IS(call, CUDA_SUCCESS)
#define EXPECT_THAT(condition)                                     \
  do {                                                             \
    if (!(condition)) {                                            \
      holds = false;                                               \
      printf("     not so: %s (line %d)\n", #condition, __LINE__); \
    }                                                              \
  } while (false)

using Launch = decltype(Driver::cuLaunchKernel);

CUresult launch(CUstream stream, uint32_t block_ns, uint64_t value, Launch how = nullptr) {
  CUdeviceptr state = word;
  void* params[] = {&state, &block_ns, &value};
  return (how != nullptr ? how : cu.cuLaunchKernel)(spin, 132, 1, 1, 256, 1, 1, 0, stream, params,
                                                    nullptr);
}

uint64_t read_word() {
  uint64_t value = 0;
  EXPECT_OK(cu.cuMemcpyDtoH_v2(&value, word, sizeof value));
  return value;
}

uint64_t after(const std::vector<uint64_t>& values) {
  uint64_t state = 0;
  for (uint64_t value : values) state = state * kStateFactor + value;
  return state;
}

CUstream stream(unsigned flags = 1) {
  CUstream made = nullptr;
  EXPECT_OK(cu.cuStreamCreate(&made, flags));
  return made;
}

CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
  CUevent made = nullptr;
  EXPECT_OK(cu.cuEventCreate(&made, flags));
  return made;
}

void stream_order() {
  CUstream s = stream();
  std::vector<uint64_t> values;
  for (uint64_t i = 1; i <= 50; ++i) {
    EXPECT_OK(launch(s, 1000, i));
    values.push_back(i);
  }
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_THAT(read_word() == after(values));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void launches_do_not_wait() {
  CUstream s = stream();
  EXPECT_OK(launch(s, kLong, 1));
  EXPECT_IS(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_OK(cu.cuStreamQuery(s));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void legacy_stream_waits_for_blocking() {
  CUstream s = stream(0);
  EXPECT_OK(launch(s, kLong, 1));
  EXPECT_OK(launch(nullptr, kShort, 2));
  EXPECT_OK(launch(s, kShort, 3));
  EXPECT_OK(launch(CU_STREAM_LEGACY, kShort, 4));
  EXPECT_OK(cu.cuStreamSynchronize(nullptr));
  EXPECT_OK(cu.cuStreamQuery(s));
  EXPECT_THAT(read_word() == after({1, 2, 3, 4}));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void nonblocking_ignores_legacy() {
  CUstream s = stream();
  EXPECT_OK(launch(s, kLong, 1));
  void* none[] = {nullptr};
  EXPECT_OK(cu.cuLaunchKernel(null_kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, none, nullptr));
  EXPECT_OK(cu.cuStreamSynchronize(nullptr));
  EXPECT_IS(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void per_thread_streams_are_separate() {
  EXPECT_OK(launch(nullptr, kLong, 1, cu.cuLaunchKernel_ptsz));
  CUresult other = CUDA_ERROR_UNKNOWN;
  std::thread thread([&] {
    cu.cuCtxSetCurrent(primary);
    other = cu.cuStreamQuery(CU_STREAM_PER_THREAD);
  });
  thread.join();
  EXPECT_IS(other, CUDA_SUCCESS);
  EXPECT_IS(cu.cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  EXPECT_OK(launch(nullptr, kShort, 2));  // legacy: after the per-thread one, which blocks
  EXPECT_OK(cu.cuStreamSynchronize(nullptr));
  EXPECT_OK(cu.cuStreamQuery(CU_STREAM_PER_THREAD));
  EXPECT_THAT(read_word() == after({1, 2}));
}

void events_order_streams() {
  CUstream a = stream();
  CUstream b = stream();
  CUevent e = event();
  EXPECT_OK(cu.cuEventQuery(e));  // never recorded: complete
  EXPECT_OK(launch(a, kLong, 1));
  EXPECT_OK(cu.cuEventRecord(e, a));
  EXPECT_IS(cu.cuEventQuery(e), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cu.cuStreamWaitEvent(b, e, 0));
  EXPECT_OK(launch(b, kShort, 2));
  EXPECT_IS(cu.cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cu.cuEventSynchronize(e));
  EXPECT_OK(cu.cuEventQuery(e));
  EXPECT_OK(cu.cuStreamSynchronize(b));
  EXPECT_THAT(read_word() == after({1, 2}));
  EXPECT_OK(cu.cuEventDestroy_v2(e));
  EXPECT_OK(cu.cuStreamDestroy_v2(a));
  EXPECT_OK(cu.cuStreamDestroy_v2(b));
}

void elapsed_time() {
  CUstream s = stream();
  CUevent start = event(CU_EVENT_DEFAULT);
  CUevent end = event(CU_EVENT_DEFAULT);
  CUevent untimed = event();
  float ms = 0;
  EXPECT_IS(cu.cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_OK(cu.cuEventRecord(start, s));
  EXPECT_OK(launch(s, kLong, 1));
  EXPECT_OK(cu.cuEventRecord(end, s));
  EXPECT_OK(cu.cuEventRecord(untimed, s));
  EXPECT_IS(cu.cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_OK(cu.cuEventElapsedTime(&ms, start, end));
  EXPECT_THAT(ms > 19 && ms < 40);
  EXPECT_IS(cu.cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
  for (CUevent e : {start, end, untimed}) EXPECT_OK(cu.cuEventDestroy_v2(e));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void wrong_context() {
  CUcontext other;
  EXPECT_OK(cu.cuCtxCreate_v2(&other, 0, 0));
  CUcontext current = nullptr;
  EXPECT_OK(cu.cuCtxGetCurrent(&current));
  EXPECT_THAT(current == other);
  CUstream foreign = stream();
  CUevent e = event();
  CUcontext of_stream = nullptr;
  EXPECT_OK(cu.cuStreamGetCtx(foreign, &of_stream));
  EXPECT_THAT(of_stream == other);
  EXPECT_OK(cu.cuCtxPopCurrent_v2(&current));
  CUstream s = stream();
  EXPECT_IS(cu.cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_IS(launch(foreign, kShort, 1), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_OK(cu.cuCtxDestroy_v2(other));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void priorities() {
  int least = 1;
  int greatest = 1;
  EXPECT_OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_THAT(least == 0 && greatest == -5);
  CUstream s;
  int priority = 1;
  EXPECT_OK(cu.cuStreamCreateWithPriority(&s, 1, -100));
  EXPECT_OK(cu.cuStreamGetPriority(s, &priority));
  EXPECT_THAT(priority == greatest);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attribute.value.priority = -3;
  const CUlaunchConfig config{132, 1, 1, 256, 1, 1, 0, s, &attribute, 1};
  uint32_t block_ns = kShort;
  uint64_t value = 7;
  void* params[] = {&word, &block_ns, &value};
  EXPECT_OK(cu.cuLaunchKernelEx(&config, spin, params, nullptr));
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_THAT(read_word() == 7);
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void graph_runs_what_was_captured() {
  CUstream s = stream();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(cu.cuStreamIsCapturing(s, &status));
  EXPECT_THAT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_OK(launch(s, kShort, 1));
  EXPECT_OK(launch(s, kShort, 2));
  EXPECT_OK(cu.cuStreamEndCapture(s, &graph));
  EXPECT_THAT(read_word() == 0);
  EXPECT_OK(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
  EXPECT_OK(cu.cuGraphDestroy(graph));
  EXPECT_OK(cu.cuGraphLaunch(executable, s));
  EXPECT_OK(cu.cuGraphLaunch(executable, s));
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_THAT(read_word() == after({1, 2, 1, 2}));
  EXPECT_OK(cu.cuGraphExecDestroy(executable));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void capture_forks_and_joins() {
  CUstream a = stream();
  CUstream b = stream();
  CUevent e = event();
  CUgraph graph = nullptr;
  EXPECT_OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(cu.cuEventRecord(e, a));
  EXPECT_OK(cu.cuStreamWaitEvent(b, e, 0));
  EXPECT_OK(launch(b, kShort, 1));
  EXPECT_IS(cu.cuStreamEndCapture(a, &graph), kUnjoined);
  EXPECT_OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(cu.cuEventRecord(e, a));
  EXPECT_OK(cu.cuStreamWaitEvent(b, e, 0));
  EXPECT_OK(launch(b, kShort, 1));
  EXPECT_OK(cu.cuEventRecord(e, b));
  EXPECT_OK(cu.cuStreamWaitEvent(a, e, 0));
  EXPECT_OK(cu.cuStreamEndCapture(a, &graph));
  EXPECT_THAT(graph != nullptr);
  if (graph != nullptr) EXPECT_OK(cu.cuGraphDestroy(graph));
  EXPECT_OK(cu.cuEventDestroy_v2(e));
  EXPECT_OK(cu.cuStreamDestroy_v2(a));
  EXPECT_OK(cu.cuStreamDestroy_v2(b));
}

// Each misuse, in a capture of its own, gives `wanted` and ruins the capture.
template <class Misuse>
void misuse_invalidates(CUresult wanted, Misuse misuse, unsigned flags = 1) {
  CUstream s = stream(flags);
  CUgraph graph = nullptr;
  EXPECT_OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(launch(s, kShort, 1));
  EXPECT_IS(misuse(s), wanted);
  EXPECT_IS(cu.cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_THAT(graph == nullptr);
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void synchronizing_in_capture() {
  misuse_invalidates(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                     [](CUstream s) { return cu.cuStreamSynchronize(s); });
}
void querying_in_capture() {
  misuse_invalidates(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                     [](CUstream s) { return cu.cuStreamQuery(s); });
}
void context_synchronize_in_capture() {
  misuse_invalidates(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                     [](CUstream) { return cu.cuCtxSynchronize(); });
}
void legacy_launch_in_capture() {
  misuse_invalidates(
      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, [](CUstream) { return launch(nullptr, kShort, 1); }, 0);
}
void event_query_in_global_capture() {
  CUevent e = event();
  misuse_invalidates(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [e](CUstream) {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      cu.cuCtxSetCurrent(primary);
      result = cu.cuEventQuery(e);
    }).join();
    return result;
  });
  EXPECT_OK(cu.cuEventDestroy_v2(e));
}

void relaxed_thread_may_query() {
  CUevent e = event();
  CUstream s = stream();
  CUgraph graph = nullptr;
  EXPECT_OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::thread([e] {
    cu.cuCtxSetCurrent(primary);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_THAT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu.cuEventQuery(e));
  }).join();
  EXPECT_OK(cu.cuStreamEndCapture(s, &graph));
  if (graph != nullptr) EXPECT_OK(cu.cuGraphDestroy(graph));
  EXPECT_OK(cu.cuEventDestroy_v2(e));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void capture_state_errors() {
  CUstream s = stream();
  CUgraph graph = nullptr;
  CUevent e = event();
  EXPECT_IS(cu.cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_IS(cu.cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_IS(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_OK(cu.cuStreamEndCapture(s, &graph));
  if (graph != nullptr) EXPECT_OK(cu.cuGraphDestroy(graph));
  EXPECT_OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cu.cuEventRecord(e, s));
  EXPECT_IS(cu.cuEventQuery(e), kCapturedEvent);
  cu.cuStreamEndCapture(s, &graph);
  EXPECT_OK(cu.cuEventDestroy_v2(e));
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void copies_keep_order() {
  CUstream s = stream();
  uint64_t three = 3;
  uint64_t back = 0;
  EXPECT_OK(launch(s, kLong, 9));
  EXPECT_OK(cu.cuMemcpyHtoDAsync_v2(word, &three, sizeof three, s));
  EXPECT_OK(launch(s, kShort, 1));
  EXPECT_OK(cu.cuMemcpyDtoHAsync_v2(&back, word, sizeof back, s));
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_THAT(back == 3 * kStateFactor + 1);
  EXPECT_OK(cu.cuMemsetD32Async(word, 5, 2, s));
  EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_THAT(read_word() == 0x0000000500000005);
  EXPECT_OK(cu.cuStreamDestroy_v2(s));
}

void freed_memory_stays_for_earlier_work() {
  const auto allocate = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t, CUstream)>(
      dlsym(cu.library, "cuMemAllocAsync"));
  const auto free =
      reinterpret_cast<CUresult (*)(CUdeviceptr, CUstream)>(dlsym(cu.library, "cuMemFreeAsync"));
  CUdeviceptr before = word;
  CUstream blocking = stream(0), other = stream();
  EXPECT_OK(allocate(&word, sizeof(uint64_t), blocking));
  EXPECT_OK(launch(blocking, kLong, 9));
  EXPECT_OK(free(word, CU_STREAM_LEGACY));
  EXPECT_OK(allocate(&word, sizeof(uint64_t), other));
  EXPECT_OK(cu.cuMemsetD32Async(word, 5, 2, other));
  for (CUstream s : {other, blocking}) EXPECT_OK(cu.cuStreamSynchronize(s));
  EXPECT_THAT(read_word() == 0x0000000500000005);
  for (CUstream s : {other, blocking}) EXPECT_OK(cu.cuStreamDestroy_v2(s));
  word = before;
}

void names_and_bad_launches() {
  const char* name = nullptr;
  CUfunction missing;
  CUmodule module;
  EXPECT_OK(cu.cuFuncGetName(&name, spin));
  EXPECT_THAT(name != nullptr && strcmp(name, "heddle_spin") == 0);
  EXPECT_OK(cu.cuModuleLoadData(&module, heddle_demo_ptx));
  EXPECT_IS(cu.cuModuleGetFunction(&missing, module, "no_such"), CUDA_ERROR_NOT_FOUND);
  EXPECT_OK(cu.cuModuleUnload(module));
  void* none[] = {nullptr};
  EXPECT_IS(cu.cuLaunchKernel(null_kernel, 0, 1, 1, 1, 1, 1, 0, nullptr, none, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_IS(cu.cuLaunchKernel(null_kernel, 1, 1, 1, 2048, 1, 1, 0, nullptr, none, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

void library_kernels_launch() {
  CUlibrary library;
  CUkernel kernel;
  const char* name = nullptr;
  EXPECT_OK(
      cu.cuLibraryLoadData(&library, heddle_demo_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_OK(cu.cuLibraryGetKernel(&kernel, library, "heddle_spin"));
  EXPECT_OK(cu.cuKernelGetName(&name, kernel));
  EXPECT_THAT(name != nullptr && strcmp(name, "heddle_spin") == 0);
  uint32_t block_ns = kShort;
  uint64_t value = 11;
  void* params[] = {&word, &block_ns, &value};
  EXPECT_OK(cu.cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 132, 1, 1, 256, 1, 1, 0,
                              nullptr, params, nullptr));
  EXPECT_THAT(read_word() == 11);
}

void proc_addresses_equal_dlsym() {
  struct {
    const char* symbol;
    int version;
    unsigned long long flags;
    const char* wanted;
  } const cases[] = {{"cuLaunchKernel", 12000, 0, "cuLaunchKernel"},
                     {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"},
                     {"cuMemAlloc", 12000, 0, nullptr},
                     {"cuStreamBeginCapture", 12000, 0, "cuStreamBeginCapture_v2"},
                     {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
                     {"cuGraphInstantiate", 12000, 0, nullptr},
                     {"cuEventElapsedTime", 12000, 0, nullptr}};
  for (const auto& c : cases) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status;
    EXPECT_OK(cu.cuGetProcAddress_v2(c.symbol, &address, c.version, c.flags, &status));
    EXPECT_THAT(address != nullptr);
    // Other names are passed through: there the shim's export is its own and this one the driver's.
    EXPECT_THAT(c.wanted == nullptr || address == dlsym(cu.library, c.wanted));
  }
  void* address = &address;
  CUdriverProcAddressQueryResult status;
  EXPECT_OK(cu.cuGetProcAddress_v2("cuNoSuchThing", &address, 12000, 0, &status));
  EXPECT_THAT(address == nullptr && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

struct Check {
  const char* name;
  void (*run)();
};

constexpr Check kChecks[] = {
    {"work of one stream runs in order", stream_order},
    {"a launch does not wait for its kernel", launches_do_not_wait},
    {"the NULL stream and blocking streams wait for each other", legacy_stream_waits_for_blocking},
    {"a non-blocking stream ignores the NULL stream", nonblocking_ignores_legacy},
    {"each thread has a default stream of its own", per_thread_streams_are_separate},
    {"an event orders two streams", events_order_streams},
    {"elapsed time", elapsed_time},
    {"streams and events of another context are refused", wrong_context},
    {"priorities: range, clamping, launch attribute", priorities},
    {"a graph runs what was captured", graph_runs_what_was_captured},
    {"captures fork and join through events", capture_forks_and_joins},
    {"synchronizing a capturing stream", synchronizing_in_capture},
    {"querying a capturing stream", querying_in_capture},
    {"synchronizing the context during a capture", context_synchronize_in_capture},
    {"the NULL stream during a capture of a blocking stream", legacy_launch_in_capture},
    {"another thread's event query during a global capture", event_query_in_global_capture},
    {"a relaxed thread may query during a capture", relaxed_thread_may_query},
    {"capture states", capture_state_errors},
    {"copies and fills keep stream order", copies_keep_order},
    {"memory that the NULL stream frees stays", freed_memory_stays_for_earlier_work},
    {"names and impossible launches", names_and_bad_launches},
    {"kernels of a library launch without a function", library_kernels_launch},
    {"cuGetProcAddress gives what dlsym gives", proc_addresses_equal_dlsym},
};

int run() {
  cu = Driver::load();
  CUmodule module;
  char device[128] = "";
  EXPECT_IS(cu.cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_OK(cu.cuInit(0));
  EXPECT_OK(cu.cuDevicePrimaryCtxRetain(&primary, 0));
  EXPECT_IS(cu.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cu.cuCtxSetCurrent(primary));
  EXPECT_OK(cu.cuDeviceGetName(device, sizeof device, 0));
  EXPECT_OK(cu.cuModuleLoadData(&module, heddle_demo_ptx));
  EXPECT_OK(cu.cuModuleGetFunction(&spin, module, "heddle_spin"));
  EXPECT_OK(cu.cuModuleGetFunction(&null_kernel, module, "heddle_null"));
  EXPECT_OK(cu.cuMemAlloc_v2(&word, sizeof(uint64_t)));
  printf("on %s\n", device);
  for (const Check& check : kChecks) {
    holds = true;
    EXPECT_OK(cu.cuMemsetD8_v2(word, 0, sizeof(uint64_t)));
    EXPECT_OK(cu.cuCtxSynchronize());
    check.run();
    printf("%s %s\n", holds ? "PASS" : "FAIL", check.name);
    fflush(stdout);
    failures += holds ? 0 : 1;
  }
  printf("%d of %zu failed\n", failures, std::size(kChecks));
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle::workloads

int main() { return heddle::workloads::run(); }
