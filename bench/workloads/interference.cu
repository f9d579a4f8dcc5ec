// Microbenchmarks of interference: one kernel for each channel, at a chosen pressure, held for as
// long as asked. The channels and the ways to press on them are those of Elvinger et al. (SoCC
// 2025, "Understanding GPU Resource Interference One Level Deeper", sections 3 and 4).
//
//   nvcc -O2 -arch=sm_90 -std=c++17 interference.cu -o interference -lcuda
//   ./interference SPEC [SPEC]
//
// SPEC is MODE[,KEY=VALUE...]. Two of them run beside each other: in this process, on a stream
// each.
//   sleep    blocks that wait: block slots                       pressure: blocks held
//   issue    fp32 multiplications, ilp=1..4 of them independent  instructions / cycle / SM
//   fp64     the same in double precision                        instructions / cycle / SM
//   tensor   16 x 16 x 16 products of halves                     TFLOP/s
//   smem     loads and stores in shared memory, ways=1..32       wavefronts / cycle / SM
//   l1       copies kb=N of each block's own, again and again    GB/s
//   l2       copies mb=N past the L1, again and again            GB/s
//   dram     copies mb=N (4096), more than any L2                GB/s
// Keys of all: blocks=N (one an SM) threads=N (128; copies 1024) us=N of one launch alone (500)
// sms=FROM-TO (groups of eight SMs of the device's one split, by a Green Context) ilp ways kb mb.
//
// One command a line on stdin, one JSON line back:
//   alone SECONDS   the first SPEC alone
//   beside SECONDS  the first while the second is held
//   hold SECONDS    the second alone, for a victim in another process; 0: until the next line
//   quit
#include <cuda.h>
#include <cuda_runtime.h>
#include <mma.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kUnroll = 64;
constexpr int kQueued = 4;  // launches of the held side that are always on their way
constexpr size_t kL1Apart = 256 * 1024;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "interference: %s\n", what.c_str());
  std::exit(1);
}
void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) die(std::string(what) + ": " + cudaGetErrorString(error));
}
void check(CUresult error, const char* what) {
  const char* text = nullptr;
  if (error != CUDA_SUCCESS && cuGetErrorString(error, &text) != CUDA_SUCCESS) text = "?";
  if (error != CUDA_SUCCESS) die(std::string(what) + ": " + text);
}

double now_s() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// ---- kernels ----------------------------------------------------------------------------------

__global__ void sleep_kernel(long long iterations) {
  for (long long i = 0; i < iterations; ++i) __nanosleep(1000);
}

template <int kIlp>
__global__ void issue_kernel(long long iterations, float factor, float* out) {
  float x[kIlp];
  for (int i = 0; i < kIlp; ++i) x[i] = static_cast<float>(threadIdx.x + i);
  for (long long n = 0; n < iterations; ++n) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kIlp; ++i) x[i] = __fmul_rn(x[i], factor);
    }
  }
  float sum = 0;
  for (int i = 0; i < kIlp; ++i) sum += x[i];
  if (sum == -1) *out = sum;  // never: keeps the work
}

template <int kIlp>
__global__ void fp64_kernel(long long iterations, double factor, double* out) {
  double x[kIlp];
  for (int i = 0; i < kIlp; ++i) x[i] = threadIdx.x + i;
  for (long long n = 0; n < iterations; ++n) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kIlp; ++i) x[i] = __dmul_rn(x[i], factor);
    }
  }
  double sum = 0;
  for (int i = 0; i < kIlp; ++i) sum += x[i];
  if (sum == -1) *out = sum;
}

__global__ void tensor_kernel(long long iterations, float* out) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> a;
  fragment<matrix_b, 16, 16, 16, half, col_major> b;
  fragment<accumulator, 16, 16, 16, float> c[2];
  fill_fragment(a, __float2half(1.0F));
  fill_fragment(b, __float2half(0.5F));
  fill_fragment(c[0], 0.0F);
  fill_fragment(c[1], 0.0F);
  for (long long n = 0; n < iterations; ++n) {
#pragma unroll
    for (int u = 0; u < kUnroll / 2; ++u) {
      mma_sync(c[0], a, b, c[0]);
      mma_sync(c[1], a, b, c[1]);
    }
  }
  if (c[0].x[0] + c[1].x[0] == -1) *out = c[0].x[0];
}

// The threads of a warp are `ways` words apart: so many of them meet in each bank.
__global__ void smem_kernel(long long iterations, int ways, float* out) {
  __shared__ volatile float words[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) words[i] = static_cast<float>(i);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sum = 0;
  for (long long n = 0; n < iterations; ++n) {
#pragma unroll
    for (int u = 0; u < kUnroll / 2; ++u) {
      const int at = (lane * ways + u) % 1024;
      sum += words[at];
      words[at] = sum;
    }
  }
  if (sum == -1) *out = sum;
}

// Each block copies its part of `bytes`, `iterations` times; past the L1 unless `cached`.
// At most 32 registers: two blocks of 1 024 threads fit on an SM, so that others find room.
template <bool kCached>
__global__ void __launch_bounds__(1024, 2)
    copy_kernel(long long iterations, const float4* in, float4* out, size_t words, size_t apart) {
  const size_t first = apart != 0 ? blockIdx.x * apart : size_t{blockIdx.x} * blockDim.x;
  const size_t step = apart != 0 ? blockDim.x : size_t{gridDim.x} * blockDim.x;
  for (long long n = 0; n < iterations; ++n) {
    for (size_t i = threadIdx.x; (apart != 0 ? i : first + i) < words; i += step) {
      const float4 word = kCached ? __ldca(&in[first + i]) : __ldcg(&in[first + i]);
      if (kCached) {
        out[first + i] = word;
      } else {
        __stcg(&out[first + i], word);
      }
    }
  }
}

// ---- one side of a pair -----------------------------------------------------------------------

struct Side {
  std::string mode;
  std::map<std::string, double> keys;
  int sm_from = -1, sm_to = -1;
  int blocks = 0, threads = 0, sms = 0, clock_khz = 0;
  long long iterations = 1;
  float4 *in = nullptr, *out = nullptr;
  size_t words = 0, apart = 0;
  cudaStream_t stream = nullptr;

  double key(const char* name, double otherwise) const {
    const auto it = keys.find(name);
    return it != keys.end() ? it->second : otherwise;
  }
};

Side parse(const std::string& text) {
  Side side;
  std::istringstream parts(text);
  std::getline(parts, side.mode, ',');
  const char* modes[] = {"sleep", "issue", "fp64", "tensor", "smem", "l1", "l2", "dram"};
  if (std::find(std::begin(modes), std::end(modes), side.mode) == std::end(modes)) {
    die("no mode " + side.mode + "; one of sleep issue fp64 tensor smem l1 l2 dram");
  }
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    if (equals == part.npos) die(part + " is not KEY=VALUE");
    const std::string name = part.substr(0, equals);
    if (name == "sms") {
      if (std::sscanf(part.c_str(), "sms=%d-%d", &side.sm_from, &side.sm_to) != 2) {
        die(part + " is not sms=FROM-TO");
      }
      continue;
    }
    const char* names[] = {"blocks", "threads", "us", "ilp", "ways", "kb", "mb"};
    if (std::find(std::begin(names), std::end(names), name) == std::end(names)) {
      die("no key " + name + "; one of blocks threads us sms ilp ways kb mb");
    }
    side.keys[name] = std::atof(part.c_str() + equals + 1);
  }
  return side;
}

// A stream on the groups of the device's one split that lie in the range.
cudaStream_t stream_on(int from, int to, int& sms) {
  CUdevice device;
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  CUdevResource all{};
  check(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
  unsigned count = 0;
  check(cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, 8), "split");
  std::vector<CUdevResource> groups(count);
  CUdevResource rest{};
  check(cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, 8), "split");
  groups.resize(count);
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount > 0) groups.push_back(rest);
  std::vector<CUdevResource> chosen;
  int first = 0;
  sms = 0;
  for (const CUdevResource& group : groups) {
    const int middle = first + static_cast<int>(group.sm.smCount) / 2;
    first += static_cast<int>(group.sm.smCount);
    if (middle < from || middle > to) continue;
    chosen.push_back(group);
    sms += static_cast<int>(group.sm.smCount);
  }
  if (chosen.empty()) die("no group of SMs lies in sms=FROM-TO");
  CUdevResourceDesc description{};
  check(
      cuDevResourceGenerateDesc(&description, chosen.data(), static_cast<unsigned>(chosen.size())),
      "cuDevResourceGenerateDesc");
  CUgreenCtx context{};
  check(cuGreenCtxCreate(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "green");
  CUstream stream{};
  check(cuGreenCtxStreamCreate(&stream, context, CU_STREAM_NON_BLOCKING, 0), "green stream");
  return stream;
}

void launch(const Side& s) {
  const dim3 grid(static_cast<unsigned>(s.blocks)), block(static_cast<unsigned>(s.threads));
  auto* f = reinterpret_cast<float*>(s.out);
  auto* d = reinterpret_cast<double*>(s.out);
  const int ilp = static_cast<int>(s.key("ilp", 4));
  if (s.mode == "sleep") {
    sleep_kernel<<<grid, block, 0, s.stream>>>(s.iterations);
  } else if (s.mode == "issue") {
    const auto kernel = ilp <= 1   ? issue_kernel<1>
                        : ilp == 2 ? issue_kernel<2>
                        : ilp == 3 ? issue_kernel<3>
                                   : issue_kernel<4>;
    kernel<<<grid, block, 0, s.stream>>>(s.iterations, 1.0000001F, f);
  } else if (s.mode == "fp64") {
    const auto kernel = ilp <= 1   ? fp64_kernel<1>
                        : ilp == 2 ? fp64_kernel<2>
                        : ilp == 3 ? fp64_kernel<3>
                                   : fp64_kernel<4>;
    kernel<<<grid, block, 0, s.stream>>>(s.iterations, 1.0000001, d);
  } else if (s.mode == "tensor") {
    tensor_kernel<<<grid, block, 0, s.stream>>>(s.iterations, f);
  } else if (s.mode == "smem") {
    smem_kernel<<<grid, block, 0, s.stream>>>(s.iterations, static_cast<int>(s.key("ways", 1)), f);
  } else if (s.mode == "l1") {
    copy_kernel<true><<<grid, block, 0, s.stream>>>(s.iterations, s.in, s.out, s.words, s.apart);
  } else {
    copy_kernel<false><<<grid, block, 0, s.stream>>>(s.iterations, s.in, s.out, s.words, s.apart);
  }
  check(cudaGetLastError(), "launch");
}

double timed_us(const Side& s) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  check(cudaEventRecord(begin, s.stream), "record");
  launch(s);
  check(cudaEventRecord(end, s.stream), "record");
  check(cudaEventSynchronize(end), "synchronize");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(ms) * 1e3;
}

void prepare(Side& s) {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  check(cudaDeviceGetAttribute(&s.clock_khz, cudaDevAttrClockRate, 0), "clock rate");
  s.sms = device.multiProcessorCount;
  if (s.sm_from >= 0) {
    s.stream = stream_on(s.sm_from, s.sm_to, s.sms);
  } else {
    check(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), "stream");
  }
  const bool copies = s.mode == "l1" || s.mode == "l2" || s.mode == "dram";
  s.blocks = static_cast<int>(s.key("blocks", s.sms));
  s.threads = static_cast<int>(s.key("threads", s.mode == "l1" ? 64 : copies ? 1024 : 128));
  size_t bytes = 4096;
  if (s.mode == "l1") {
    s.words = static_cast<size_t>(s.key("kb", 32) * 1024) / sizeof(float4);
    s.apart = kL1Apart / sizeof(float4);
    bytes = kL1Apart * static_cast<size_t>(s.blocks);
    if (s.words > s.apart) die("kb is more than the 256 of an L1");
  } else if (copies) {
    bytes = static_cast<size_t>(s.key("mb", s.mode == "l2" ? 8 : 4096) * 1024 * 1024);
    s.words = bytes / sizeof(float4);
  }
  check(cudaMalloc(&s.in, bytes), "cudaMalloc");
  check(cudaMalloc(&s.out, bytes), "cudaMalloc");
  check(cudaMemset(s.in, 0, bytes), "cudaMemset");
  // So many iterations take the wanted time alone. The least of several: the host may be held up
  // between the first event and the launch.
  const double wanted_us = s.key("us", 500);
  timed_us(s);
  for (int i = 0; i < 40; ++i) {
    const double us = std::min({timed_us(s), timed_us(s), timed_us(s)});
    if (us >= wanted_us || s.iterations > (1LL << 40)) break;
    const double factor = std::clamp(wanted_us / std::max(us, 1.0), 1.1, 8.0);
    s.iterations = static_cast<long long>(static_cast<double>(s.iterations) * factor) + 1;
  }
}

// What a launch that took so long pressed with, in the channel's own unit.
void pressure(const Side& s, double us, double& value, const char*& unit) {
  const double cycles = us * s.clock_khz / 1e3;
  const double warps_per_sm = static_cast<double>(s.blocks) * s.threads / 32 / s.sms;
  const double n = static_cast<double>(s.iterations) * kUnroll;
  if (s.mode == "sleep") {
    value = s.blocks, unit = "blocks";
  } else if (s.mode == "issue" || s.mode == "fp64") {
    value = warps_per_sm * n * std::clamp(s.key("ilp", 4), 1.0, 4.0) / cycles;
    unit = "instructions/cycle/SM";
  } else if (s.mode == "tensor") {
    value = warps_per_sm * s.sms * n * 2 * 16 * 16 * 16 / us / 1e6, unit = "TFLOP/s";
  } else if (s.mode == "smem") {
    value = warps_per_sm * n * s.key("ways", 1) / cycles, unit = "wavefronts/cycle/SM";
  } else {
    const double blocks = s.mode == "l1" ? s.blocks : 1;
    const double bytes = 2.0 * static_cast<double>(s.words) * sizeof(float4) * blocks;
    value = bytes * static_cast<double>(s.iterations) / us / 1e3, unit = "GB/s";
  }
}

// Keeps a few launches of a side on their way.
class Held {
 public:
  explicit Held(const Side* side) : side_(side) {
    if (side_ == nullptr) return;
    for (cudaEvent_t& e : ends_) {
      check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
      push(e);
    }
    begin_ = now_s();
  }
  // To be called often: one that ended is replaced.
  void keep() {
    if (side_ == nullptr || cudaEventQuery(ends_[oldest_]) != cudaSuccess) return;
    ++done_;
    push(ends_[oldest_]);
    oldest_ = (oldest_ + 1) % kQueued;
  }
  double mean_us() const { return done_ > 0 ? (now_s() - begin_) * 1e6 / done_ : 0; }
  ~Held() {
    if (side_ != nullptr) cudaStreamSynchronize(side_->stream);
    for (cudaEvent_t e : ends_) {
      if (e != nullptr) cudaEventDestroy(e);
    }
  }

 private:
  void push(cudaEvent_t end) {
    launch(*side_);
    check(cudaEventRecord(end, side_->stream), "record");
  }
  const Side* side_;
  cudaEvent_t ends_[kQueued] = {};
  int oldest_ = 0;
  double begin_ = 0, done_ = 0;
};

void say(const Side& victim, std::vector<double>& us, const Side* held, double held_us) {
  std::sort(us.begin(), us.end());
  double sum = 0;
  for (const double u : us) sum += u;
  const double mean = us.empty() ? 0 : sum / static_cast<double>(us.size());
  double value = 0, held_value = 0;
  const char *unit = "", *held_unit = "";
  if (mean > 0) pressure(victim, mean, value, unit);
  if (held != nullptr && held_us > 0) pressure(*held, held_us, held_value, held_unit);
  std::printf(
      "{\"launches\": %zu, \"mean_us\": %.3f, \"p50_us\": %.3f, \"pressure\": %.4f, \"unit\": "
      "\"%s\", \"held_us\": %.3f, \"held_pressure\": %.4f, \"held_unit\": \"%s\"}\n",
      us.size(), mean, us.empty() ? 0 : us[us.size() / 2], value, unit, held_us, held_value,
      held_unit);
  std::fflush(stdout);
}

// Launches of the victim, one by one, while the other is held.
void run(const Side& victim, const Side* held, double seconds) {
  Held beside(held);
  std::vector<double> us;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  for (const double until = now_s() + seconds; now_s() < until;) {
    check(cudaEventRecord(begin, victim.stream), "record");
    launch(victim);
    check(cudaEventRecord(end, victim.stream), "record");
    while (cudaEventQuery(end) == cudaErrorNotReady) beside.keep();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    us.push_back(static_cast<double>(ms) * 1e3);
  }
  const double held_us = beside.mean_us();
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  say(victim, us, held, held_us);
}

bool line_waits() {
  pollfd in{0, POLLIN, 0};
  return std::cin.rdbuf()->in_avail() > 0 || poll(&in, 1, 0) > 0;
}

void hold(const Side& side, double seconds) {
  Held held(&side);
  const double until = seconds > 0 ? now_s() + seconds : 1e300;
  while (now_s() < until && (seconds > 0 || !line_waits())) held.keep();
  const double us = held.mean_us();
  std::vector<double> none;
  say(side, none, &side, us);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) die("usage: interference SPEC [SPEC]");
  check(cuInit(0), "cuInit");
  check(cudaFree(nullptr), "context");
  // Green Contexts are made while nothing runs: they wait for what does.
  std::vector<Side> sides;
  for (int i = 1; i < argc; ++i) {
    sides.push_back(parse(argv[i]));
    prepare(sides.back());
  }
  std::printf("{\"ready\": true}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    double seconds = 1;
    words >> command >> seconds;
    if (command == "alone") {
      run(sides[0], nullptr, seconds);
    } else if (command == "beside" && sides.size() == 2) {
      run(sides[0], &sides[1], seconds);
    } else if (command == "hold") {
      hold(sides.back(), seconds);
    } else if (command == "quit") {
      break;
    } else {
      die("no command " + line + "; alone, beside (with two SPECs), hold or quit");
    }
  }
  return 0;
}
