// What the CUDA C++ programs of the framework matrix share: rounds with a half-way mark, digests of
// outputs, and the one JSON line that tests/gpu/cells.py reads.
//
//   Program program;
//   for (int round : program.rounds()) { launch(...); program.launched(1); }
//   program.digest("result", device_pointer, bytes);
//   return program.finish();
//
// A program computes the same whatever the pace: HEDDLE_MATRIX_PACE_MS is slept after each round,
// so that work is submitted before, while and after a daemon is gone. "half" is printed once.
#pragma once

#include <cuda_runtime.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    const cudaError_t error_ = (call);                                                         \
    if (error_ != cudaSuccess) {                                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(error_)); \
      exit(2);                                                                                 \
    }                                                                                          \
  } while (false)

namespace matrix {

constexpr int kRounds = 24;

// Prints why the program cannot say anything here, and leaves: reported as skipped.
[[noreturn]] inline void skip(const char* why) {
  printf("{\"skip\": \"%s\"}\n", why);
  exit(77);
}

inline void pause_ms(int milliseconds) { usleep(static_cast<useconds_t>(milliseconds) * 1000); }

class Program {
 public:
  // Iterates 0 .. kRounds - 1; steps do the pacing and the mark.
  class Rounds {
   public:
    explicit Rounds(int pace_ms) : pace_ms_(pace_ms) {}
    Rounds begin() const { return *this; }
    int end() const { return kRounds; }
    int operator*() const { return round_; }
    bool operator!=(int last) const { return round_ != last; }
    void operator++() {
      if (++round_ == kRounds / 2) {
        puts("half");
        fflush(stdout);
      }
      pause_ms(pace_ms_);
    }

   private:
    int pace_ms_;
    int round_ = 0;
  };

  Rounds rounds() const {
    const char* pace = getenv("HEDDLE_MATRIX_PACE_MS");
    return Rounds(pace != nullptr ? atoi(pace) : 0);
  }

  void launched(int count) { launches_ += count; }

  // `data` may be device, managed or host memory.
  void digest(const char* name, const void* data, size_t bytes) {
    std::vector<unsigned char> copy(bytes);
    CHECK(cudaMemcpy(copy.data(), data, bytes, cudaMemcpyDefault));
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const unsigned char byte : copy) hash = (hash ^ byte) * 1099511628211u;
    char text[64];
    snprintf(text, sizeof text, "\": \"%016llx\"", static_cast<unsigned long long>(hash));
    digests_ += (digests_.empty() ? "\"" : ", \"") + std::string(name) + text;
  }

  // Prints the result and stays until the reader has looked at this process: at most two seconds.
  int finish() {
    CHECK(cudaDeviceSynchronize());
    printf("{\"digests\": {%s}, \"launches\": %d}\n", digests_.c_str(), launches_.load());
    fflush(stdout);
    pollfd input{0, POLLIN, 0};
    poll(&input, 1, 2000);
    return 0;
  }

 private:
  std::string digests_;
  std::atomic<int> launches_{0};
};

// One step of a computation whose result depends on the order and the number of its steps: a lost,
// doubled or reordered launch changes the digest.
[[maybe_unused]] static __global__ void step(unsigned* data, unsigned count, unsigned salt) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned value = data[i];
  for (unsigned k = 0; k < 64; ++k) value = (value ^ salt) * 2654435761u + i + k;
  data[i] = value;
}

constexpr unsigned kCount = 1u << 20;
constexpr size_t kBytes = kCount * sizeof(unsigned);

inline dim3 grid(unsigned count = kCount) { return dim3((count + 255) / 256); }

// Zeroed device memory for kCount words.
inline unsigned* words() {
  unsigned* data = nullptr;
  CHECK(cudaMalloc(&data, kBytes));
  CHECK(cudaMemset(data, 0, kBytes));
  return data;
}

}  // namespace matrix
