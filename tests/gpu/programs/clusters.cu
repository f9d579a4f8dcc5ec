// Thread-block clusters of eight: each block reads its neighbour's shared memory.
#include <cooperative_groups.h>

#include "program.h"

using namespace matrix;

namespace {

constexpr unsigned kCluster = 8;

__global__ void rotate(unsigned* data, unsigned salt) {
  __shared__ unsigned mine[256];
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  mine[threadIdx.x] = data[i] * 2654435761u + salt;
  cluster.sync();
  const unsigned* next = cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % kCluster);
  data[i] = next[(threadIdx.x + 1) % 256] ^ i;
  cluster.sync();
}

}  // namespace

int main() {
  Program program;
  unsigned* data = words();
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kCluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid();
  config.blockDim = dim3(256);
  config.attrs = &attribute;
  config.numAttrs = 1;
  for (const int round : program.rounds()) {
    for (unsigned i = 0; i < 20; ++i) {
      CHECK(cudaLaunchKernelEx(&config, rotate, data, round * 20 + i));
    }
    CHECK(cudaDeviceSynchronize());
    program.launched(20);
  }
  program.digest("data", data, kBytes);
  return program.finish();
}
