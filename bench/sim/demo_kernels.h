// The kernels that the simulated driver knows: those of bench/workloads/demo.ptx, and one that
// waits. What a launch costs follows from the launch alone: grid, block, dynamic shared memory and
// `block_ns`.
//
//   heddle_null()
//   heddle_spin(u64 state, u32 block_ns, u64 value)
//     Every block runs for block_ns; then, unless `state` is 0, the word there becomes
//     word * kStateFactor + value, once per launch.
//   heddle_meet(u64 meeting, u32 ranks), and any kernel whose name ends so
//     Every block runs until so many launches with this number are on the GPU, in all processes
//     together; with fewer it never ends. As ncclDevKernel_heddle_meet it is a rank of a
//     collective, else a kernel that waits for what a later launch writes. Simulated only.
#pragma once

#include <cstdint>

namespace heddle::sim {

inline constexpr char kNullKernel[] = "heddle_null";
inline constexpr char kSpinKernel[] = "heddle_spin";
inline constexpr char kMeetKernel[] = "heddle_meet";

inline constexpr int kMaxBlockThreads = 1024;
inline constexpr uint32_t kMaxSharedBytes = 227 * 1024;  // of one block, compute capability 9.0
inline constexpr int kDemoRegisters = 16;                // per thread, ptxas for sm_90

// Where parameters lie in a packed parameter buffer: those of heddle_meet, then of heddle_spin.
inline constexpr int kMeetingOffset = 0;
inline constexpr int kRanksOffset = 8;
inline constexpr int kStateOffset = 0;
inline constexpr int kBlockNsOffset = 8;
inline constexpr int kValueOffset = 16;

}  // namespace heddle::sim
