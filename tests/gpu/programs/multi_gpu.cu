// One process, several GPUs: each computes on its own part and hands it to its neighbour by peer
// copies, from one thread and from a thread per GPU.
#include <thread>

#include "program.h"

using namespace matrix;

int main() {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) skip("needs 2 GPUs");
  Program program;
  std::vector<unsigned*> data(devices), inbox(devices);
  std::vector<cudaStream_t> streams(devices);
  for (int d = 0; d < devices; ++d) {
    CHECK(cudaSetDevice(d));
    data[d] = words();
    inbox[d] = words();
    CHECK(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
  }
  const auto work = [&](int d, unsigned salt) {
    CHECK(cudaSetDevice(d));
    for (unsigned i = 0; i < 5; ++i) {
      step<<<grid(), 256, 0, streams[d]>>>(data[d], kCount, salt + i + d);
    }
    const int next = (d + 1) % devices;
    CHECK(cudaMemcpyPeerAsync(inbox[next], next, data[d], d, kBytes, streams[d]));
    program.launched(5);
  };
  for (const int round : program.rounds()) {
    std::vector<std::thread> threads;
    for (int d = 0; d < devices; ++d) {
      if (round % 2 == 0) {
        work(d, round * 5);
      } else {
        threads.emplace_back(work, d, round * 5);
      }
    }
    for (std::thread& thread : threads) thread.join();
    for (int d = 0; d < devices; ++d) {
      CHECK(cudaSetDevice(d));
      CHECK(cudaStreamSynchronize(streams[d]));
    }
    for (int d = 0; d < devices; ++d) {
      CHECK(cudaSetDevice(d));
      CHECK(cudaMemcpy(data[d], inbox[d], kBytes / 2, cudaMemcpyDeviceToDevice));
      CHECK(cudaDeviceSynchronize());  // a copy within a device does not wait for its end
    }
  }
  for (int d = 0; d < devices; ++d) {
    program.digest(("gpu" + std::to_string(d)).c_str(), data[d], kBytes);
  }
  return program.finish();
}
