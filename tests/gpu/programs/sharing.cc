// heddle-sharing: how the kernels of two processes meet on one GPU, checked on whatever
// libcuda.so.1 the loader finds. The simulated GPU and a real one must give the same answers.
//
//   heddle-sharing mps         under MPS
//   heddle-sharing timeslice   without it
//
// Prints PASS or FAIL for each check with what was measured; exit status 1 if any failed, 2 if it
// could not run. Kernels spin by a clock for tens of milliseconds, so that neither what SMs have to
// share nor a busy host decides. tests/gpu/conformance.sh runs it both ways.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <string>

#include "bench/workloads/driver.h"

namespace heddle::workloads {
namespace {

constexpr unsigned kBlockThreads = 1024;
constexpr int64_t kMs = 1'000'000;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

[[noreturn]] void give_up(const char* what) {
  fprintf(stderr, "heddle-sharing: %s\n", what);
  exit(2);
}

// The process that launches: `AT BLOCKS BLOCK_NS` a line, answered by how long the kernel took from
// its launch to its end, in ns.
void serve() {
  const Driver cu = Driver::load();
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  int sms = 0, per_sm = 0;
  const auto check = [](CUresult result) {
    if (result != CUDA_SUCCESS) give_up("the driver failed; run heddle-conformance first");
  };
  check(cu.cuInit(0));
  check(cu.cuDeviceGet(&device, 0));
  check(cu.cuDevicePrimaryCtxRetain(&context, device));
  check(cu.cuCtxSetCurrent(context));
  check(cu.cuModuleLoadData(&module, heddle_demo_ptx));
  check(cu.cuModuleGetFunction(&spin, module, "heddle_spin"));
  check(cu.cuStreamCreate(&stream, 1));
  check(cu.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  check(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, spin, kBlockThreads, 0));
  const auto run = [&](unsigned blocks, uint32_t block_ns) {
    CUdeviceptr state = 0;
    uint64_t value = 0;
    void* params[] = {&state, &block_ns, &value};
    check(cu.cuLaunchKernel(spin, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream, params, nullptr));
    check(cu.cuStreamSynchronize(stream));
  };
  run(1, 1000);  // whatever is loaded late is loaded now
  printf("%d\n", sms * per_sm);
  fflush(stdout);
  int64_t at = 0;
  for (unsigned blocks, block_ns; scanf("%" SCNd64 " %u %u", &at, &blocks, &block_ns) == 3;) {
    while (now_ns() < at) usleep(50);
    const int64_t begin = now_ns();
    run(blocks, block_ns);
    printf("%" PRId64 "\n", now_ns() - begin);
    fflush(stdout);
  }
}

class Child {
 public:
  // `below_normal`: CUDA_MPS_CLIENT_PRIORITY=1.
  explicit Child(bool below_normal) {
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0) give_up("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      if (below_normal) setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (const int fd : {in[0], in[1], out[0], out[1]}) close(fd);
      execl("/proc/self/exe", "heddle-sharing", "serve", nullptr);
      _exit(2);
    }
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
    wave_ = static_cast<unsigned>(answer());
  }
  ~Child() {
    fclose(to_);
    fclose(from_);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;

  unsigned wave() const { return wave_; }  // blocks that the GPU holds at once
  void start(int64_t at, unsigned blocks, int64_t block_ns) {
    fprintf(to_, "%" PRId64 " %u %" PRId64 "\n", at, blocks, block_ns);
    fflush(to_);
  }
  int64_t answer() {
    int64_t value = 0;
    if (fscanf(from_, "%" SCNd64, &value) != 1) give_up("a process that launches ended early");
    return value;
  }

 private:
  pid_t pid_ = -1;
  FILE *to_ = nullptr, *from_ = nullptr;
  unsigned wave_ = 0;
};

bool report(const char* what, double ms, double least_ms, double most_ms) {
  const bool holds = ms >= least_ms && ms <= most_ms;
  printf("%s %s: %.1f ms, want %.0f to %.0f\n", holds ? "PASS" : "FAIL", what, ms, least_ms,
         most_ms);
  fflush(stdout);
  return holds;
}

// How long the slower of two kernels takes that fill half of the GPU each, of 100 ms alone.
double halves_ms(Child& one, Child& two) {
  const int64_t at = now_ns() + 20 * kMs;
  for (Child* child : {&one, &two}) child->start(at, child->wave() / 2, 100 * kMs);
  const int64_t first = one.answer(), second = two.answer();
  return static_cast<double>(std::max(first, second)) / kMs;
}

// How long a block of 1 ms takes that comes 20 ms after a kernel of two and a half waves of 60 ms.
double behind_ms(Child& small, Child& large) {
  const int64_t at = now_ns() + 20 * kMs;
  large.start(at, 5 * large.wave() / 2, 60 * kMs);
  small.start(at + 20 * kMs, 1, 1 * kMs);
  const auto took = static_cast<double>(small.answer()) / kMs;
  large.answer();
  return took;
}

int run(bool mps) {
  Child important(false), other(false), below(true);
  bool ok = true;
  if (mps) {
    ok &= report("two halves run side by side", halves_ms(important, other), 99, 150);
    ok &= report("a small kernel waits until a large one's last wave has begun",
                 behind_ms(important, other), 85, 140);
    ok &= report("with client priority it waits for the first blocks that end",
                 behind_ms(important, below), 30, 60);
  } else {
    ok &= report("two halves take turns", halves_ms(important, other), 185, 260);
    ok &= report("a small kernel waits for a slice", behind_ms(important, other), 1, 15);
    ok &= report("client priority is MPS's alone", behind_ms(important, below), 1, 15);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace heddle::workloads

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode == "serve") return heddle::workloads::serve(), 0;
  if (mode == "mps" || mode == "timeslice") return heddle::workloads::run(mode == "mps");
  heddle::workloads::give_up("usage: heddle-sharing mps | timeslice");
}
