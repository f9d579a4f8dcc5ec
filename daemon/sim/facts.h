// The constants of the sharing model. Each was measured on an H200, as quoted above
// it; other measurements are held out, so that they can judge it
// (tests/unit/gpu_model_test.cc).
#pragma once

#include <cstdint>

namespace heddle::sim::facts {

// Opening line: "one NVIDIA H200 (132 SMs, driver 580.159.04, CUDA 13.0, ...)".
inline constexpr uint32_t kSmCount = 132;
inline constexpr int kDriverVersion = 13000;

// The opportunity, "small kernel + sync every 200 µs": "slice is 2 ms; about 70 µs a switch when
// the other side's queue is one deep". The row's latencies are held out, and so is a newer
// measurement with slices of 1 us: taking the GPU from a kernel that runs costs about 180 us.
inline constexpr int64_t kSliceNs = 2'000'000;
inline constexpr int64_t kSwitchNs = 70'000;

// Slices of a client's own: "two contexts at 1 us beside each other make no progress at all". What
// lies between 1 and 100 us is not measured, and is taken to be the same.
inline constexpr int64_t kSliceLeastNs = 100'000;

// Channels off, the 8 of the compute group: "its last progress after the call began, p50" 340 us,
// "the call" 626 us; "enabled: it goes on after" 355 us. That call was not measured, and is taken
// to return then.
inline constexpr int64_t kStopNs = 340'000;
inline constexpr int64_t kStopCallNs = 626'000;
inline constexpr int64_t kGoOnNs = 355'000;
inline constexpr int64_t kGoOnCallNs = kGoOnNs;

// Setting a slice: "0.16 to 0.55 ms a call"; their middle.
inline constexpr int64_t kSliceCallNs = 355'000;

// Green Contexts, "min 8, flags 0: **15 groups of 8 + a remainder of 12**".
inline constexpr uint32_t kGroups = 15;
inline constexpr uint32_t kGroupSms = 8;

// Costs, "`cuLaunchKernel`, empty kernel, back to back": "2.84 µs". From a kernel's submission.
inline constexpr int64_t kLaunchNs = 2'840;

// Measured on an H200, a pace of 64 in a queue: 6.55 µs, of which the kernel spins
// 10 000 cycles at the H200's 1980 MHz, 5.05 µs. From the end of one kernel of a stream to the
// next.
inline constexpr int64_t kQueueNs = 1'500;

// Measured beside ResNet-101: latency-critical kernels, far smaller than the GPU, "take
// 10.4 µs on average while best effort is on the GPU, 3.7 µs otherwise".
inline constexpr float kSaturation = 3.7F / 10.4F;

// Stream priority and MPS: "There are 6 levels for ten queues" and "`CU_LAUNCH_ATTRIBUTE_PRIORITY`
// −5": 0 is the least, -5 the greatest.
inline constexpr int kPriorityLeast = 0;
inline constexpr int kPriorityGreatest = -5;

// Limits of one SM of compute capability 9.0: the architecture's own,
// from NVIDIA's table of technical specifications per compute capability.
inline constexpr uint32_t kThreadsPerSm = 2048;
inline constexpr uint32_t kRegistersPerSm = 65536;
inline constexpr uint32_t kSharedBytesPerSm = 228 * 1024;
inline constexpr uint32_t kBlocksPerSm = 32;

}  // namespace heddle::sim::facts
