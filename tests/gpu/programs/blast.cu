// The two programs of tests/gpu/blast_radius.py, a JSON line at a time; times are CLOCK_MONOTONIC.
//
//   blast steady             kernels of about 200 µs and gaps of 300, until standard input closes:
//                            a line every 100 ms; on an error its name, then what a reset gives
//   blast faulty SECONDS     kernels for so long, then one that writes to an illegal address
//
//   nvcc -O2 -arch=sm_90 -std=c++17 blast.cu -o blast
#include <cuda_runtime.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr double kWindow = 0.1;

double now_s() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

__global__ void spin(long long cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {
  }
}

__global__ void write_to(unsigned* address) { *address = 1; }

cudaError_t work() {
  for (int i = 0; i < 2; ++i) spin<<<132, 256>>>(180'000);
  const cudaError_t launched = cudaGetLastError();
  return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

int steady() {
  pollfd input{0, POLLIN, 0};
  double window = now_s();
  int iterations = 0;
  double longest = 0;
  while (poll(&input, 1, 0) == 0) {
    const double begin = now_s();
    const cudaError_t error = work();
    const double end = now_s();
    if (error != cudaSuccess) {
      printf("{\"error\": \"%s\", \"at_s\": %.6f}\n", cudaGetErrorName(error), end);
      fflush(stdout);
      // What a program that catches the error can still do in its own process.
      cudaError_t again = cudaDeviceReset();
      if (again == cudaSuccess) again = work();
      printf("{\"after_reset\": \"%s\", \"at_s\": %.6f}\n", cudaGetErrorName(again), now_s());
      fflush(stdout);
      return 3;
    }
    ++iterations;
    longest = std::max(longest, end - begin);
    if (end - window >= kWindow) {
      printf("{\"at_s\": %.6f, \"iterations\": %d, \"longest_us\": %.0f}\n", end, iterations,
             longest * 1e6);
      fflush(stdout);
      window = end;
      iterations = 0;
      longest = 0;
    }
    usleep(300);
  }
  return 0;
}

int faulty(double seconds) {
  cudaError_t error = work();
  const double end = now_s() + seconds;
  printf("{\"ready\": \"%s\"}\n", cudaGetErrorName(error));
  fflush(stdout);
  while (error == cudaSuccess && now_s() < end) error = work();
  const double at = now_s();
  if (error == cudaSuccess) {
    write_to<<<1, 1>>>(reinterpret_cast<unsigned*>(16));
    error = cudaDeviceSynchronize();
  }
  printf("{\"fault\": \"%s\", \"at_s\": %.6f}\n", cudaGetErrorName(error), at);
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "steady") == 0) return steady();
  if (argc == 3 && strcmp(argv[1], "faulty") == 0) return faulty(atof(argv[2]));
  fprintf(stderr, "usage: blast steady | blast faulty SECONDS\n");
  return 64;
}
