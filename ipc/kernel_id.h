// The kernel ID: name, grid, block, dynamic shared memory and cluster size, hashed (FIKIT section
// 3.2, plus the last two). Equal inputs give equal IDs in every process and on every host, so that
// profiles and statistics outlive the process.
#pragma once

#include <cstdint>
#include <string_view>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

namespace heddle::ipc {

// The first CUDA driver that names kernels (cuFuncGetName, 12.3). With an older driver kernels are
// told apart by their shape only, and collectives are not recognized.
inline constexpr int kCudaFloor = 12'030;

struct LaunchShape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_smem_bytes = 0;
  uint32_t cluster_blocks = 1;  // blocks per cluster, 1 without clusters

  bool operator==(const LaunchShape&) const = default;
};

inline uint64_t kernel_id(std::string_view name, const LaunchShape& shape) {
  static_assert(sizeof(LaunchShape) == 8 * sizeof(uint32_t), "hashed as it lies, little endian");
  return XXH3_64bits_withSeed(&shape, sizeof shape, XXH3_64bits(name.data(), name.size()));
}

}  // namespace heddle::ipc
