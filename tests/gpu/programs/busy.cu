// The latency-critical neighbour of the programs under test: kernels of about 300 µs with gaps of
// about 700 µs, for as long as its standard input stays open. Every 200 of them it rests,
// so that exclusive.lua lets others run too. With "at-random" it works for 900 µs some 20 times a
// second. Prints "ready" after the first.

#include "program.h"

using namespace matrix;

namespace {

__global__ void spin(long long cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {
  }
}

}  // namespace

int main(int argc, char**) {
  const bool at_random = argc > 1;
  int processors = 0;
  CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  pollfd input{0, POLLIN, 0};
  for (int round = 0; poll(&input, 1, 0) == 0; ++round) {
    for (int i = 0; i < 3; ++i) spin<<<processors, 128>>>(180'000);
    CHECK(cudaDeviceSynchronize());
    if (round == 0) {
      puts("ready");
      fflush(stdout);
    }
    usleep(at_random ? random() % 100'000 : round % 200 == 199 ? 100'000 : 600);
  }
  return 0;
}
