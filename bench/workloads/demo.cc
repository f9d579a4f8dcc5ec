// heddle-demo: two programs to share a GPU, on the driver API alone. They know nothing of heddle.
//
//   heddle-demo latency: every few milliseconds, three kernels of about 1 ms and a synchronize; its
//     figure is the time from the first launch to the end of the synchronize.
//   heddle-demo batch: a deep queue of kernels of 0.5 to 3 ms; its figure is kernels per second.
//
// All times are drawn from the seed. Every kernel fills the GPU in one wave and steps a word of
// device memory; a lost, doubled or reordered launch ends the program with status 3.
#include <errno.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/workloads/driver.h"

namespace heddle::workloads {
namespace {

constexpr unsigned kBlockThreads = 1024;
constexpr int kLaunchesPerIteration = 3;
constexpr size_t kBatchKernels = 12;
constexpr size_t kDepth = 8;          // batch kernels outstanding
constexpr size_t kMaxBegun = 20'000;  // iterations whose begin is told

struct Iteration {
  int64_t begin_ns, end_ns;
};

struct Options {
  bool latency = true;
  uint64_t seed = 1;
  double seconds = 10;
  double kernel_ms = 0;  // 0: the role's own
  int64_t start_at_ns = 0;
  std::string json;
};

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void sleep_until(int64_t at_ns) {
  const timespec at{at_ns / 1'000'000'000, at_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

void check(const Driver& driver, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver.cuGetErrorName(result, &name);
  fprintf(stderr, "heddle-demo: %s: %s (%d)\n", what, name == nullptr ? "?" : name, result);
  exit(1);
}

// Log-normal, drawn again until it lies within [low, high].
double draw(std::mt19937_64& random, double low, double high, double spread) {
  std::lognormal_distribution<double> distribution(std::log(std::sqrt(low * high)), spread);
  for (;;) {
    const double value = distribution(random);
    if (value >= low && value <= high) return value;
  }
}

class Demo {
 public:
  explicit Demo(const Options& options)
      : options_(options), driver_(Driver::load()), random_(options.seed) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    check(driver_, driver_.cuInit(0), "cuInit");
    check(driver_, driver_.cuDeviceGet(&device, 0), "cuDeviceGet");
    check(driver_, driver_.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(driver_, driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(driver_, driver_.cuDeviceGetName(device_, sizeof device_, device), "cuDeviceGetName");
    check(driver_, driver_.cuModuleLoadData(&module, heddle_demo_ptx), "cuModuleLoadData");
    check(driver_, driver_.cuModuleGetFunction(&spin_, module, "heddle_spin"),
          "cuModuleGetFunction");
    check(driver_, driver_.cuMemAlloc_v2(&state_, sizeof expected_), "cuMemAlloc");
    check(driver_, driver_.cuMemsetD8_v2(state_, 0, sizeof expected_), "cuMemsetD8");
    check(driver_, driver_.cuStreamCreate(&stream_, 1), "cuStreamCreate");
    int sms = 0;
    int per_sm = 0;
    check(driver_,
          driver_.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
          "cuDeviceGetAttribute");
    check(driver_,
          driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, spin_, kBlockThreads, 0),
          "cuOccupancy");
    wave_ = static_cast<unsigned>(sms * per_sm);
    launch(wave_, 0.01);  // whatever is loaded late is loaded now
    check(driver_, driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  int run() {
    printf("ready\n");
    fflush(stdout);
    if (options_.start_at_ns > 0) sleep_until(options_.start_at_ns);
    begin_ns_ = now_ns();
    end_ns_ = begin_ns_ + static_cast<int64_t>(options_.seconds * 1e9);
    if (options_.latency) {
      run_latency();
    } else {
      run_batch();
    }
    const double wall_s = static_cast<double>(now_ns() - begin_ns_) / 1e9;
    uint64_t result = 0;
    check(driver_, driver_.cuMemcpyDtoH_v2(&result, state_, sizeof result), "cuMemcpyDtoH");
    report(wall_s, result == expected_);
    return result == expected_ ? 0 : 3;
  }

 private:
  void launch(unsigned blocks, double ms) {
    auto block_ns = static_cast<uint32_t>(ms * 1e6);
    uint64_t value = random_();
    void* params[] = {&state_, &block_ns, &value};
    check(driver_,
          driver_.cuLaunchKernel(spin_, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream_, params,
                                 nullptr),
          "cuLaunchKernel");
    expected_ = expected_ * kStateFactor + value;
    ++launches_;
  }

  void run_latency() {
    const double ms = options_.kernel_ms > 0 ? options_.kernel_ms : 0.85;
    while (now_ns() < end_ns_) {
      const int64_t start = now_ns();
      for (int i = 0; i < kLaunchesPerIteration; ++i) {
        launch(wave_, draw(random_, ms * 0.85, ms * 1.15, 0.05));
      }
      check(driver_, driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
      const int64_t done = now_ns();
      iterations_.push_back({start, done});
      sleep_until(done + static_cast<int64_t>(draw(random_, 4, 10, 0.25) * 1e6));
    }
  }

  // An iteration is one kernel, from when the kernel before it was seen done.
  void run_batch() {
    struct Kernel {
      unsigned blocks;
      double ms;
    };
    std::vector<Kernel> kernels;
    for (unsigned i = 0; i < kBatchKernels; ++i) {
      const double ms = options_.kernel_ms;
      kernels.push_back({wave_ - i, ms > 0 ? draw(random_, ms * 0.8, ms * 1.25, 0.1)
                                           : draw(random_, 0.5, 3, 0.5)});
    }
    CUevent events[kDepth];
    for (CUevent& event : events) {
      check(driver_, driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    int64_t last = now_ns();
    size_t posted = 0;
    for (size_t seen = 0; seen < posted || now_ns() < end_ns_;) {
      while (posted < seen + kDepth && now_ns() < end_ns_) {
        const Kernel& kernel = kernels[random_() % kernels.size()];
        launch(kernel.blocks, kernel.ms);
        check(driver_, driver_.cuEventRecord(events[posted++ % kDepth], stream_), "cuEventRecord");
      }
      if (seen == posted) continue;
      check(driver_, driver_.cuEventSynchronize(events[seen++ % kDepth]), "cuEventSynchronize");
      const int64_t now = now_ns();
      iterations_.push_back({last, now});
      last = now;
    }
  }

  void report(double wall_s, bool right) const {
    std::vector<double> sorted;
    for (const auto& [begin_ns, end_ns] : iterations_) {
      sorted.push_back(static_cast<double>(end_ns - begin_ns) / 1e6);
    }
    std::sort(sorted.begin(), sorted.end());
    double sum = 0;
    for (double sample : sorted) sum += sample;
    const auto count = static_cast<double>(sorted.size());
    const auto quantile = [&](double q) {
      return sorted.empty() ? 0.0 : sorted[static_cast<size_t>(q * (count - 1))];
    };
    FILE* files[] = {stdout, options_.json.empty() ? nullptr : fopen(options_.json.c_str(), "w")};
    for (FILE* file : files) {
      if (file == nullptr) continue;
      fprintf(file,
              "{\"role\":\"%s\",\"device\":\"%s\",\"seed\":%llu,\"iterations\":%zu,"
              "\"ms_mean\":%.4f,\"ms_p50\":%.4f,\"ms_p99\":%.4f,\"per_s\":%.3f,\"launches\":%llu,"
              "\"begin_ns\":%lld,\"seconds\":%.3f,\"checksum_ok\":%s",
              options_.latency ? "latency" : "batch", device_,
              static_cast<unsigned long long>(options_.seed), sorted.size(),
              sorted.empty() ? 0.0 : sum / count, quantile(0.5), quantile(0.99), count / wall_s,
              static_cast<unsigned long long>(launches_), static_cast<long long>(begin_ns_), wall_s,
              right ? "true" : "false");
      if (file != stdout) print_begins(file);  // thousands of numbers: not onto a terminal
      fprintf(file, "}\n");
      fflush(file);
    }
    if (files[1] != nullptr) fclose(files[1]);
  }

  void print_begins(FILE* file) const {
    fprintf(file, ",\"begun_ns\":[");
    for (size_t i = 0; i < std::min(iterations_.size(), kMaxBegun); ++i) {
      fprintf(file, "%s%lld", i == 0 ? "" : ",", static_cast<long long>(iterations_[i].begin_ns));
    }
    fprintf(file, "]");
  }

  Options options_;
  Driver driver_;
  std::mt19937_64 random_;
  char device_[128] = {};
  CUfunction spin_ = nullptr;
  CUdeviceptr state_ = 0;
  CUstream stream_ = nullptr;
  unsigned wave_ = 0;
  uint64_t expected_ = 0;
  uint64_t launches_ = 0;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
  std::vector<Iteration> iterations_;
};

[[noreturn]] void usage() {
  fprintf(stderr,
          "usage: heddle-demo latency|batch [--seed S] [--seconds T] [--kernel-ms MS]\n"
          "                   [--start-at NS (CLOCK_MONOTONIC)] [--json FILE]\n"
          "exit status: 0 right, 1 driver error, 2 usage or no driver, 3 wrong result\n");
  exit(2);
}

Options parse(int argc, char** argv) {
  if (argc < 2) usage();
  Options options;
  options.latency = strcmp(argv[1], "latency") == 0;
  if (!options.latency && strcmp(argv[1], "batch") != 0) usage();
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) usage();
    const char* value = argv[i + 1];
    if (name == "--seed") {
      options.seed = strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = strtod(value, nullptr);
    } else if (name == "--kernel-ms") {
      options.kernel_ms = strtod(value, nullptr);
    } else if (name == "--start-at") {
      options.start_at_ns = strtoll(value, nullptr, 10);
    } else if (name == "--json") {
      options.json = value;
    } else {
      usage();
    }
  }
  return options;
}

}  // namespace
}  // namespace heddle::workloads

int main(int argc, char** argv) {
  using namespace heddle::workloads;
  return Demo(parse(argc, argv)).run();
}
