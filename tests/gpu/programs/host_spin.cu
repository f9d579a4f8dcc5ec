// A kernel runs until the host says so, and the host says so only when another thread's launches
// are done: whoever holds those back until the kernel has ended waits for itself. Every second
// round has more work behind the kernel. No round may take seconds.
#include <chrono>
#include <thread>

#include "program.h"

using namespace matrix;

static __global__ void wait_for(volatile unsigned* flag, unsigned value, unsigned* gave_up) {
  for (const long long begin = clock64(); *flag < value;) {
    if (clock64() - begin > 20'000'000'000) {  // some 10 s: nothing may hang the GPU
      *gave_up = 1;
      return;
    }
  }
}

int main() {
  Program program;
  unsigned *waits = words(), *works = words(), *gave_up = words(), *flag = nullptr;
  CHECK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
  volatile unsigned* const host_flag = flag;
  *host_flag = 0;
  cudaStream_t waiting, working;
  CHECK(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&working, cudaStreamNonBlocking));
  wait_for<<<1, 1, 0, waiting>>>(flag, 0, gave_up);  // code is loaded before anything waits
  step<<<grid(), 256, 0, working>>>(works, kCount, 0);
  program.launched(2);
  CHECK(cudaDeviceSynchronize());
  double longest_s = 0;
  for (const int round : program.rounds()) {
    const auto begin = std::chrono::steady_clock::now();
    const auto value = static_cast<unsigned>(round + 1);
    wait_for<<<1, 1, 0, waiting>>>(flag, value, gave_up);
    program.launched(1);
    for (unsigned i = 0; round % 2 == 1 && i < 3; ++i) {
      step<<<grid(), 256, 0, waiting>>>(waits, kCount, value + i);
      program.launched(1);
    }
    std::thread worker([&] {
      usleep(1000);  // the other is in its synchronizing call by then
      for (unsigned i = 0; i < 6; ++i) {
        step<<<grid(), 256, 0, working>>>(works, kCount, value + i);
        program.launched(1);
      }
      CHECK(cudaStreamSynchronize(working));
      *host_flag = value;
    });
    CHECK(cudaStreamSynchronize(waiting));
    worker.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    longest_s = took.count() > longest_s ? took.count() : longest_s;
  }
  unsigned given_up = 0;
  CHECK(cudaMemcpy(&given_up, gave_up, sizeof given_up, cudaMemcpyDeviceToHost));
  if (given_up != 0 || longest_s > 3) {
    fprintf(stderr, "a round took %.1f s\n", longest_s);
    return 3;
  }
  program.digest("waits", waits, kBytes);
  program.digest("works", works, kBytes);
  return program.finish();
}
