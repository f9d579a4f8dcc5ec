// Counts a program's launches at the driver itself, with and without heddle: the driver loads this
// library when CUDA_INJECTION64_PATH names it, and CUPTI calls back on each launching entry point
// of the real driver. The program is unchanged; the counts stand in $HEDDLE_COUNT_FILE.<pid>, a
// mapped file, so that a process that is killed or leaves by _exit has counted too.
//
//   g++ -shared -fPIC -O2 count_launches.cc -I$CUDA/include -L$CUDA/lib64 -lcupti -o libcount.so
#include <cupti.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace {

// The file's layout: two 64-bit words of this machine.
struct Counts {
  std::atomic<uint64_t> kernels, graphs;
};

Counts* counts;

constexpr CUpti_CallbackId kKernels[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice,
};
constexpr CUpti_CallbackId kGraphs[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};

void CUPTIAPI on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  const auto* info = static_cast<const CUpti_CallbackData*>(data);
  if (info->callbackSite != CUPTI_API_ENTER) return;
  bool graph = false;
  for (const CUpti_CallbackId each : kGraphs) graph |= each == id;
  (graph ? counts->graphs : counts->kernels).fetch_add(1, std::memory_order_relaxed);
}

Counts* map_counts() {
  const char* stem = getenv("HEDDLE_COUNT_FILE");
  if (stem == nullptr) return nullptr;
  const std::string path = std::string(stem) + "." + std::to_string(getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (ftruncate(file, sizeof(Counts)) == 0) {
    memory = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Counts*>(memory);
}

}  // namespace

// Called by the driver once it has initialized; nonzero says that all went well.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  counts = map_counts();
  if (counts == nullptr) return 0;
  CUpti_SubscriberHandle subscriber;
  if (cuptiSubscribe(&subscriber, on_call, nullptr) != CUPTI_SUCCESS) return 0;
  for (const CUpti_CallbackId id : kKernels) {
    cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
  }
  for (const CUpti_CallbackId id : kGraphs) {
    cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
  }
  return 1;
}
