// heddle-stop-probe: asks a GPU whether heddle can stop kernels on it (ipc/stop.h), prints the
// answer as one JSON object, and ends. It is asked of the GPU, not of the driver's version.
//
//   heddle-stop-probe [--gpu UUID] [--driver LIBCUDA] [--even-if-busy]
//
//   1. Does a kernel of 20 ms stand still while the process's compute channels are off, and go on?
//   2. Do slices of 3 : 1 give two processes 3 : 1 of the GPU?
//
// Two children do it, so that a driver that hangs or dies costs an answer. They give back what they
// changed, and an alarm ends them; the driver lets go what a process that ended had stopped.
//
// {gpu, name, answer: "yes", "no" or "not asked", why, stop_us, go_us, slice_ratio}
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/workloads/driver.h"
#include "bench/workloads/stop_requests.h"

namespace heddle::workloads {
namespace {

constexpr unsigned kBlockThreads = 1024;
constexpr int kTries = 7;
constexpr double kStandMs = 20, kBeforeMs = 2, kStandMsMost = 100;
constexpr double kSliceKernelMs = 1, kSliceS = 0.3;
constexpr uint64_t kSliceUs[] = {3'000, 1'000};
constexpr int kSliceRounds = 3;
constexpr double kRatioLeast = 2.2, kRatioMost = 3.8;
constexpr size_t kDepth = 8;
constexpr unsigned kStartS = 20, kAskS = 5;
constexpr char kSimulated[] = "heddle simulated GPU";

// What a child says, in memory that it shares with its parent.
struct Said {
  Answer answer;
  char why[160];
  char gpu[48], name[96];
  double stop_us, go_us;
  uint64_t kernels;  // of the last round of slices
};

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void sleep_ms(double ms) {
  const timespec pause{0, static_cast<long>(ms * 1e6)};
  nanosleep(&pause, nullptr);
}

// ---- who else is there --------------------------------------------------------------------------

struct NvmlProcess {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

bool is_mps(unsigned pid) {
  char path[64], name[32] = {};
  snprintf(path, sizeof path, "/proc/%u/comm", pid);
  FILE* const file = fopen(path, "r");
  if (file == nullptr) return false;
  const bool read = fgets(name, sizeof name, file) != nullptr;
  fclose(file);
  return read && strncmp(name, "nvidia-cuda-mps", 15) == 0;
}

// By NVML, before this process has a context.
void expect_nobody(const std::string& gpu, bool simulated) {
  const char* const named = getenv("HEDDLE_NVML");
  if (simulated && named == nullptr) return;
  void* const nvml = dlopen(named != nullptr ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) not_asked("no NVML says whether somebody else is on the GPU");
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto find =
      reinterpret_cast<int (*)(const char*, void**)>(dlsym(nvml, "nvmlDeviceGetHandleByUUID"));
  const auto list = reinterpret_cast<int (*)(void*, unsigned*, NvmlProcess*)>(
      dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3"));
  void* device = nullptr;
  std::vector<NvmlProcess> all(256);
  auto count = static_cast<unsigned>(all.size());
  const bool known =
      init != nullptr && find != nullptr && list != nullptr && init() == 0 &&
      (find(gpu.c_str(), &device) == 0 || find(("MIG-" + gpu.substr(4)).c_str(), &device) == 0) &&
      list(device, &count, all.data()) == 0;
  if (!known) not_asked("NVML does not say whether somebody else is on the GPU");
  bool others = false;
  for (unsigned i = 0; i < count; ++i) {
    if (is_mps(all[i].pid)) not_asked("MPS is on the GPU");
    others |= all[i].pid != static_cast<unsigned>(getpid());
  }
  if (others) not_asked("somebody else is on the GPU");
}

// ---- a child ------------------------------------------------------------------------------------

struct Options {
  std::string gpu, driver = "libcuda.so.1";
  bool even_if_busy = false;
};

#define HEDDLE_PROBE_CALLS(X)                                                                \
  X(cuInit, (unsigned))                                                                      \
  X(cuDeviceGet, (CUdevice*, int))                                                           \
  X(cuDeviceGetName, (char*, int, CUdevice))                                                 \
  X(cuDeviceGetUuid_v2, (CUuuid*, CUdevice))                                                 \
  X(cuDeviceGetAttribute, (int*, CUdevice_attribute, CUdevice))                              \
  X(cuCtxCreate_v2, (CUcontext*, unsigned, CUdevice))                                        \
  X(cuCtxDestroy_v2, (CUcontext))                                                            \
  X(cuModuleLoadData, (CUmodule*, const void*))                                              \
  X(cuModuleGetFunction, (CUfunction*, CUmodule, const char*))                               \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, CUfunction, int, size_t))            \
  X(cuMemAlloc_v2, (CUdeviceptr*, size_t))                                                   \
  X(cuMemcpyHtoD_v2, (CUdeviceptr, const void*, size_t))                                     \
  X(cuMemcpyDtoH_v2, (void*, CUdeviceptr, size_t))                                           \
  X(cuStreamCreate, (CUstream*, unsigned))                                                   \
  X(cuStreamSynchronize, (CUstream))                                                         \
  X(cuEventCreate, (CUevent*, unsigned))                                                     \
  X(cuEventRecord, (CUevent, CUstream))                                                      \
  X(cuEventQuery, (CUevent))                                                                 \
  X(cuEventSynchronize, (CUevent))                                                           \
  X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     unsigned, CUstream, void**, void**))

class Gpu {
 public:
  Gpu(const Options& options, Said& said);

  void open();  // makes a context
  void stand();
  // Kernels done within kSliceS from now.
  uint64_t run_kernels();

 private:
  void check(CUresult result, const char* what) const;
  void launch(double ms);
  double run_alone_ms();

  Said& said_;
  const bool even_if_busy_;
#define HEDDLE_DECLARE(name, params) CUresult(*name) params = nullptr;
  HEDDLE_PROBE_CALLS(HEDDLE_DECLARE)
#undef HEDDLE_DECLARE
  CUdevice device_ = 0;
  CUfunction spin_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent events_[kDepth] = {};
  CUdeviceptr state_ = 0;
  unsigned wave_ = 0;
  uint64_t expected_ = 0;
};

void Gpu::check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  not_asked(std::string(what) + ": CUDA error " + std::to_string(result));
}

Gpu::Gpu(const Options& options, Said& said) : said_(said), even_if_busy_(options.even_if_busy) {
  void* const library = dlopen(options.driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) not_asked("no CUDA driver");
#define HEDDLE_RESOLVE(name, params)                                  \
  name = reinterpret_cast<CUresult(*) params>(dlsym(library, #name)); \
  if (name == nullptr) not_asked("the CUDA driver lacks " #name);
  HEDDLE_PROBE_CALLS(HEDDLE_RESOLVE)
#undef HEDDLE_RESOLVE
  watch_requests(reinterpret_cast<const void*>(cuInit));
  // Else this process becomes a client of it, and may have it serve nobody else.
  const char* const pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string mps = pipes != nullptr && *pipes != '\0' ? pipes : "/tmp/nvidia-mps";
  if (access((mps + "/control").c_str(), F_OK) == 0) not_asked("MPS is on the GPU");
  if (!options.gpu.empty()) setenv("CUDA_VISIBLE_DEVICES", options.gpu.c_str(), 1);
  const CUresult begun = cuInit(0);
  if (begun != CUDA_SUCCESS) {
    const char* const control = "/dev/nvidiactl";
    if (access(control, F_OK) == 0 && access(control, R_OK | W_OK) != 0) not_asked("no rights");
    not_asked(begun == CUDA_ERROR_NO_DEVICE ? "no CUDA device"
                                            : "cuInit: CUDA error " + std::to_string(begun));
  }
  if (cuDeviceGet(&device_, 0) != CUDA_SUCCESS) not_asked("no CUDA device");
  check(cuDeviceGetName(said.name, sizeof said.name, device_), "cuDeviceGetName");
  CUuuid id;
  check(cuDeviceGetUuid_v2(&id, device_), "cuDeviceGetUuid");
  char* out = said.gpu + sprintf(said.gpu, "GPU-");
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    out += sprintf(out, "%s%02x", dash ? "-" : "", static_cast<unsigned char>(id.bytes[i]));
  }
}

void Gpu::open() {
  constexpr auto kComputeMode = static_cast<CUdevice_attribute>(20);
  int value = 0;
  if (cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device_) != CUDA_SUCCESS) {
    not_asked("the driver does not say whether MPS is on the GPU");
  }
  if (value != 0) not_asked("MPS is on the GPU");
  if (cuDeviceGetAttribute(&value, kComputeMode, device_) == CUDA_SUCCESS && value != 0) {
    not_asked(value == 2 ? "compute mode Prohibited" : "exclusive mode");
  }
  CUcontext context;
  CUmodule module;
  int sms = 0, per_sm = 0;
  check(cuCtxCreate_v2(&context, 0, device_), "cuCtxCreate");
  check(cuModuleLoadData(&module, heddle_demo_ptx), "cuModuleLoadData");
  check(cuModuleGetFunction(&spin_, module, "heddle_spin"), "cuModuleGetFunction");
  check(cuMemAlloc_v2(&state_, sizeof expected_), "cuMemAlloc");
  check(cuMemcpyHtoD_v2(state_, &expected_, sizeof expected_), "cuMemcpyHtoD");
  check(cuStreamCreate(&stream_, 1), "cuStreamCreate");
  for (CUevent& event : events_) check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
  check(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_), "SMs");
  check(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, spin_, kBlockThreads, 0), "occupancy");
  wave_ = static_cast<unsigned>(sms * per_sm);
  launch(0.01);
  check(cuStreamSynchronize(stream_), "a kernel");
  expect_channels();
}

void Gpu::launch(double ms) {
  auto block_ns = static_cast<uint32_t>(ms * 1e6);
  uint64_t value = 7;
  void* params[] = {&state_, &block_ns, &value};
  check(cuLaunchKernel(spin_, wave_, 1, 1, kBlockThreads, 1, 1, 0, stream_, params, nullptr),
        "cuLaunchKernel");
  expected_ = expected_ * kStateFactor + value;
}

double Gpu::run_alone_ms() {
  const double begun = now_s();
  launch(kStandMs);
  check(cuStreamSynchronize(stream_), "a kernel");
  return (now_s() - begun) * 1e3;
}

void Gpu::stand() {
  const double alone_ms = run_alone_ms();
  if (alone_ms > kStandMsMost) not_asked("the GPU is too slow now");
  std::vector<double> stop_us, go_us;
  for (int i = 0; i < kTries; ++i) {
    launch(kStandMs);
    check(cuEventRecord(events_[0], stream_), "cuEventRecord");
    sleep_ms(kBeforeMs);
    // A late host: nothing runs any more that could stand.
    if (cuEventQuery(events_[0]) == CUDA_SUCCESS) continue;
    const double begun = now_s();
    Standing standing;
    stop_us.push_back((now_s() - begun) * 1e6);
    expect_ok(standing.status());
    sleep_ms(3 * alone_ms);
    if (cuEventQuery(events_[0]) == CUDA_SUCCESS) no("the kernel went on");
    const double went_on = now_s();
    const uint32_t status = standing.on();
    go_us.push_back((now_s() - went_on) * 1e6);
    expect_ok(status);
    check(cuEventSynchronize(events_[0]), "a kernel that stood");
  }
  if (stop_us.size() < kTries / 2) not_asked("this host is too busy now");
  uint64_t state = 0;
  check(cuMemcpyDtoH_v2(&state, state_, sizeof state), "cuMemcpyDtoH");
  if (state != expected_) no("the kernel that stood has a wrong result");
  std::sort(stop_us.begin(), stop_us.end());
  std::sort(go_us.begin(), go_us.end());
  said_.stop_us = stop_us[stop_us.size() / 2];
  said_.go_us = go_us[go_us.size() / 2];
}

uint64_t Gpu::run_kernels() {
  uint64_t posted = 0, seen = 0;
  for (const double until = now_s() + kSliceS; now_s() < until;) {
    while (posted < seen + kDepth) {
      launch(kSliceKernelMs);
      check(cuEventRecord(events_[posted++ % kDepth], stream_), "cuEventRecord");
    }
    if (cuEventQuery(events_[seen % kDepth]) == CUDA_SUCCESS) {
      ++seen;
    } else {
      sleep_ms(0.1);
    }
  }
  return seen;
}

// ---- both children ------------------------------------------------------------------------------

class Child {
 public:
  Child(const Options& options, int index, Said& said);
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      // Not waited for long: inside of a driver that hangs it does not even die.
      for (int i = 0; i < 100 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) sleep_ms(10);
    }
    close(talk_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Has it take its next step.
  void go() { send(talk_, "g", 1, MSG_NOSIGNAL); }
  // Until it has taken it. False: it said why it ends, or ended without a word.
  bool done() {
    pollfd in{talk_, POLLIN, 0};
    char byte;
    return poll(&in, 1, static_cast<int>((kStartS + kAskS) * 1'000)) == 1 &&
           read(talk_, &byte, 1) == 1;
  }

 private:
  [[noreturn]] static void run(const Options& options, int index, Said& said, int talk);

  pid_t pid_ = -1;
  int talk_ = -1;
};

Child::Child(const Options& options, int index, Said& said) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(ends[0]);
    run(options, index, said, ends[1]);
  }
  close(ends[1]);
  talk_ = ends[0];
}

// Steps, each behind a word of the parent's: the first child makes a context and stands, the second
// makes one; then both run in slices, as often as they are told to.
void Child::run(const Options& options, int index, Said& said, int talk) {
  char byte;
  const auto told = [&] { return read(talk, &byte, 1) == 1; };
  const auto done = [&] { return send(talk, "d", 1, MSG_NOSIGNAL) == 1; };
  try {
    if (!told()) _exit(0);
    alarm(kStartS);
    Gpu gpu(options, said);
    if (index == 0 && !options.even_if_busy) {
      expect_nobody(said.gpu, strncmp(said.name, kSimulated, sizeof kSimulated - 1) == 0);
    }
    gpu.open();
    alarm(kAskS);
    if (index == 0) gpu.stand();
    while (done() && told()) {
      alarm(kAskS);
      const Slice slice(kSliceUs[index]);
      expect_ok(slice.status());
      if (!done() || !told()) break;
      said.kernels = gpu.run_kernels();
    }
    _exit(0);
  } catch (const Ends& ends) {
    snprintf(said.why, sizeof said.why, "%s", ends.why.c_str());
    said.answer = ends.answer;
  }
  _exit(1);
}

double slice_ratio(Child& first, Child& second, const Said* said) {
  const auto both = [&] {
    first.go();
    second.go();
    return first.done() && second.done();
  };
  double ratio = 0;
  for (int i = 0; i < kSliceRounds; ++i) {
    if (!both() || !both()) return 0;  // slices are set; kernels have run
    ratio = static_cast<double>(said[0].kernels) /
            static_cast<double>(std::max<uint64_t>(said[1].kernels, 1));
    if (ratio >= kRatioLeast && ratio <= kRatioMost) break;
  }
  return ratio;
}

// Of what both said, and of how the slices shared the GPU.
Ends verdict(const Said* said, double ratio) {
  for (int i = 0; i < 2; ++i) {
    if (said[i].answer != Answer::kNone) return {said[i].answer, said[i].why};
  }
  if (said[0].stop_us == 0) return {Answer::kNo, "the driver did not answer in time"};
  if (ratio == 0) return {Answer::kNo, "the driver did not answer in time, with time slices"};
  if (ratio >= kRatioLeast && ratio <= kRatioMost) return {Answer::kYes, ""};
  char text[80];
  snprintf(text, sizeof text, "time slices of 3 : 1 give %.2f : 1", ratio);
  return {Answer::kNo, text};
}

std::string quoted(const char* text) {
  std::string out = "\"";
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') out += '\\';
    if (static_cast<unsigned char>(*text) >= 0x20) out += *text;
  }
  return out + '"';
}

int run(const Options& options) {
  void* const shared =
      mmap(nullptr, 2 * sizeof(Said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto* const said = static_cast<Said*>(shared);
  double ratio = 0;
  {
    Child first(options, 0, said[0]), second(options, 1, said[1]);
    first.go();
    if (first.done()) {
      second.go();
      if (second.done()) ratio = slice_ratio(first, second, said);
    }
  }
  const Ends end = verdict(said, ratio);
  printf(
      "{\"gpu\":%s,\"name\":%s,\"answer\":\"%s\",\"why\":%s,\"stop_us\":%.0f,\"go_us\":%.0f,"
      "\"slice_ratio\":%.2f}\n",
      quoted(said[0].gpu).c_str(), quoted(said[0].name).c_str(),
      end.answer == Answer::kYes  ? "yes"
      : end.answer == Answer::kNo ? "no"
                                  : "not asked",
      quoted(end.why.c_str()).c_str(), said[0].stop_us, said[0].go_us, ratio);
  return 0;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--even-if-busy") {
      options.even_if_busy = true;
    } else if (word == "--gpu" && i + 1 < argc) {
      options.gpu = argv[++i];
    } else if (word == "--driver" && i + 1 < argc) {
      options.driver = argv[++i];
    } else {
      fprintf(stderr,
              "usage: heddle-stop-probe [--gpu UUID] [--driver LIBCUDA] [--even-if-busy]\n");
      exit(2);
    }
  }
  return options;
}

}  // namespace
}  // namespace heddle::workloads

int main(int argc, char** argv) {
  using namespace heddle::workloads;
  signal(SIGPIPE, SIG_IGN);
  return run(parse(argc, argv));
}
