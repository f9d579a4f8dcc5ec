// Eight threads launch at once, each into two streams tied by events, and all into the default
// stream. Built with --default-stream per-thread too: then each thread has its own default stream.
#include <thread>

#include "program.h"

using namespace matrix;

namespace {

constexpr int kThreads = 8;
constexpr unsigned kPart = kCount / kThreads;

struct Worker {
  unsigned* data = words();
  unsigned* plain = words();
  cudaStream_t streams[2];
  cudaEvent_t ready[2];

  Worker() {
    for (int s = 0; s < 2; ++s) {
      CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&ready[s], cudaEventDisableTiming));
    }
    CHECK(cudaDeviceSynchronize());
  }

  // The streams take turns on `data`; each waits for the other's last step.
  void round(Program& program, unsigned salt) {
    for (unsigned i = 0; i < 10; ++i) {
      const int mine = i % 2;
      CHECK(cudaStreamWaitEvent(streams[mine], ready[1 - mine]));
      step<<<grid(kPart), 256, 0, streams[mine]>>>(data, kPart, salt + i);
      CHECK(cudaEventRecord(ready[mine], streams[mine]));
      step<<<grid(kPart), 256>>>(plain, kPart, salt + i);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(streams[1]));
    CHECK(cudaStreamSynchronize(nullptr));
    program.launched(20);
  }
};

}  // namespace

int main() {
  Program program;
  std::vector<Worker> workers(kThreads);
  for (const int round : program.rounds()) {
    std::vector<std::thread> threads;
    for (Worker& worker : workers) {
      threads.emplace_back([&] { worker.round(program, round * 10); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(cudaDeviceSynchronize());
  for (int w = 0; w < kThreads; ++w) {
    program.digest(("streams" + std::to_string(w)).c_str(), workers[w].data, kBytes);
    program.digest(("default" + std::to_string(w)).c_str(), workers[w].plain, kBytes);
  }
  return program.finish();
}
