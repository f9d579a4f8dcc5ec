// One side of a program that is stopped in the middle of its kernels, and one that has it stopped.
// Prints `ready`, waits for a line, runs until its input ends or its requests are done, and prints
// JSON.
//
//   standing long FILE MS [alloc | managed]  kernels of MS that fill the GPU, one behind the other;
//                                            the progress of the one that runs is in FILE
//   standing sleep MS                        kernels of one block that sleep for MS
//   standing request FILE MS PAUSE_MS COUNT  requests of one kernel of MS; when that of FILE last
//                                            got on, in µs after the launch
//   standing allocate PAUSE_MS COUNT         cudaMalloc and cudaFree of 1 MiB
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr unsigned kThreads = 1024, kPerTold = 256;

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "standing: %s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

// Counts, so that a stop takes nothing of it; every block adds to its own sums once. What it tells
// begins with `number`.
__global__ void count(unsigned turns, unsigned long long number, volatile unsigned long long* told,
                      unsigned* sums) {
  unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned at = x;
  for (unsigned i = 0; i < turns; ++i) {
    x = x * 1664525u + 1013904223u;
    if (at == 0 && told != nullptr && i % kPerTold == 0) *told = (number << 32) + i;
  }
  sums[at] += x;
}

__global__ void rest(long long ns) {
  long long from, at;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(at));
  } while (at - from < ns);
}

volatile unsigned long long* shared(const char* file) {
  const int fd = open(file, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, 4096) != 0) exit(2);
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) exit(2);
  return static_cast<volatile unsigned long long*>(at);
}

bool ended() {
  pollfd in{0, POLLIN, 0};
  char byte;
  return poll(&in, 1, 0) == 1 && read(0, &byte, 1) <= 0;
}

struct Kernel {
  explicit Kernel(double ms, bool managed = false) {
    int sms = 0, per_sm = 0;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "SMs");
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, count, kThreads, 0), "blocks");
    blocks = static_cast<unsigned>(sms * per_sm);
    const size_t bytes = size_t{4} * blocks * kThreads;
    check(managed ? cudaMallocManaged(&sums, bytes) : cudaMalloc(&sums, bytes), "memory");
    check(cudaMemset(sums, 0, bytes), "memset");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "event");
    for (int i = 0; i < 3; ++i) {  // a first launch says nothing
      const double from = now_us();
      run(nullptr);
      check(cudaStreamSynchronize(stream), "a kernel");
      if (i < 2) turns = static_cast<unsigned>(turns * ms * 1e3 / (now_us() - from));
    }
    check(cudaMemset(sums, 0, bytes), "memset");
    run(nullptr);
    one = read_sums();
    kernels = 1;
  }
  void run(volatile unsigned long long* told) {
    count<<<blocks, kThreads, 0, stream>>>(turns, kernels, told, sums);
    check(cudaEventRecord(done, stream), "a kernel");
    ++kernels;
  }
  std::vector<unsigned> read_sums() {
    check(cudaStreamSynchronize(stream), "a kernel");
    std::vector<unsigned> out(size_t{blocks} * kThreads);
    check(cudaMemcpy(out.data(), sums, 4 * out.size(), cudaMemcpyDefault), "copy");
    return out;
  }
  bool right() {
    const auto all = read_sums();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != one[i] * static_cast<unsigned>(kernels)) return false;
    }
    return true;
  }
  unsigned blocks = 0, turns = 100'000, *sums = nullptr;
  unsigned long long kernels = 0;
  cudaStream_t stream;
  cudaEvent_t done;
  std::vector<unsigned> one;
};

double quantile(std::vector<double>& of, double part) {
  if (of.empty()) return 0;
  std::sort(of.begin(), of.end());
  return of[std::min(of.size() - 1, static_cast<size_t>(part * static_cast<double>(of.size())))];
}

double mean(const std::vector<double>& of) {
  double sum = 0;
  for (const double v : of) sum += v;
  return of.empty() ? 0 : sum / static_cast<double>(of.size());
}

void await_go() {
  printf("ready\n");
  fflush(stdout);
  for (char byte = 0; byte != '\n';) {
    if (read(0, &byte, 1) <= 0) exit(0);
  }
}

void pause_ms(double ms) {
  for (const double until = now_us() + ms * 1e3; now_us() < until;) {
  }
}

int run_long(const char* file, double ms, const std::string& how) {
  volatile unsigned long long* const told = shared(file);
  Kernel kernel(ms, how == "managed");
  check(cudaHostRegister(const_cast<unsigned long long*>(told), 4096, cudaHostRegisterMapped),
        "cudaHostRegister");
  cudaEvent_t before;
  check(cudaEventCreateWithFlags(&before, cudaEventDisableTiming), "event");
  bool quit = false;
  unsigned long long allocations = 0;
  std::thread allocates([&] {
    while (how == "alloc" && !quit) {
      void* p;
      check(cudaMalloc(&p, 1 << 20), "cudaMalloc");
      check(cudaFree(p), "cudaFree");
      ++allocations;
    }
  });
  await_go();
  const double from = now_us();
  const unsigned long long first = kernel.kernels;
  while (!ended()) {
    kernel.run(told);
    std::swap(kernel.done, before);  // two are under way
    check(cudaEventSynchronize(kernel.done), "a kernel");
  }
  check(cudaStreamSynchronize(kernel.stream), "a kernel");
  const double seconds = (now_us() - from) / 1e6;
  quit = true;
  allocates.join();
  printf("{\"per_s\":%.2f,\"kernels\":%llu,\"allocations\":%llu,\"right\":%s}\n",
         static_cast<double>(kernel.kernels - first) / seconds, kernel.kernels - first, allocations,
         kernel.right() ? "true" : "false");
  return 0;
}

int run_sleep(double ms) {
  await_go();
  unsigned long long kernels = 0;
  const double from = now_us();
  while (!ended()) {
    rest<<<1, 1>>>(static_cast<long long>(ms * 1e6));
    check(cudaDeviceSynchronize(), "a kernel");
    ++kernels;
  }
  printf("{\"per_s\":%.2f}\n", static_cast<double>(kernels) / (now_us() - from) * 1e6);
  return 0;
}

int run_requests(const char* file, double ms, double between_ms, int number) {
  volatile unsigned long long* const told = shared(file);
  Kernel kernel(ms);
  await_go();
  std::vector<double> took, last_progress;
  srand(1);
  for (int i = 0; i < number; ++i) {
    pause_ms(between_ms * (0.5 + rand() / (1.0 + RAND_MAX)));
    unsigned long long seen = *told;
    const double from = now_us();
    double at = from, progress = from;
    kernel.run(nullptr);
    do {
      at = now_us();
      if (const unsigned long long now = *told; now != seen) {
        seen = now;
        progress = at;
      }
    } while (cudaEventQuery(kernel.done) == cudaErrorNotReady);
    took.push_back(at - from);
    last_progress.push_back(progress - from);
  }
  const double all = mean(took);
  printf(
      "{\"requests\":%d,\"mean_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
      "\"progress_p50_us\":%.1f,\"progress_p99_us\":%.1f,\"right\":%s}\n",
      number, all, quantile(took, 0.5), quantile(took, 0.99), quantile(last_progress, 0.5),
      quantile(last_progress, 0.99), kernel.right() ? "true" : "false");
  return 0;
}

int run_allocate(double between_ms, int number) {
  check(cudaFree(nullptr), "a context");
  await_go();
  std::vector<double> took;
  for (int i = 0; i < number; ++i) {
    pause_ms(between_ms);
    void* p;
    const double from = now_us();
    check(cudaMalloc(&p, 1 << 21), "cudaMalloc");
    took.push_back(now_us() - from);
    check(cudaFree(p), "cudaFree");
  }
  printf("{\"calls\":%d,\"mean_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n", number, mean(took),
         quantile(took, 0.5), quantile(took, 0.99));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "long" && argc > 3) return run_long(argv[2], atof(argv[3]), argc > 4 ? argv[4] : "");
  if (role == "sleep" && argc > 2) return run_sleep(atof(argv[2]));
  if (role == "request" && argc > 5)
    return run_requests(argv[2], atof(argv[3]), atof(argv[4]), atoi(argv[5]));
  if (role == "allocate" && argc > 3) return run_allocate(atof(argv[2]), atoi(argv[3]));
  fprintf(stderr, "standing: see its first lines\n");
  return 2;
}
