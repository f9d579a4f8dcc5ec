// Cooperative launch: as many blocks as fit, with a barrier across the grid in each of its steps.
#include <cooperative_groups.h>

#include "program.h"

using namespace matrix;

namespace {

__global__ void neighbours(unsigned* data, unsigned* other, unsigned count, unsigned salt) {
  const cooperative_groups::grid_group all = cooperative_groups::this_grid();
  for (unsigned turn = 0; turn < 4; ++turn) {
    for (unsigned i = all.thread_rank(); i < count; i += all.size()) {
      other[i] = data[i] * 2654435761u + data[(i + 12345) % count] + salt;
    }
    all.sync();
    for (unsigned i = all.thread_rank(); i < count; i += all.size()) {
      data[i] = other[(i + 54321) % count] ^ turn;
    }
    all.sync();
  }
}

}  // namespace

int main() {
  Program program;
  unsigned *data = words(), *other = words();
  int blocks = 0, processors = 0;
  CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, neighbours, 256, 0));
  unsigned count = kCount;
  for (const int round : program.rounds()) {
    for (unsigned i = 0; i < 5; ++i) {
      unsigned salt = round * 5 + i;
      void* arguments[] = {&data, &other, &count, &salt};
      CHECK(cudaLaunchCooperativeKernel(neighbours, dim3(blocks * processors), dim3(256), arguments,
                                        0, nullptr));
    }
    CHECK(cudaDeviceSynchronize());
    program.launched(5);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
