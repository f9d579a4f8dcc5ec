// How much longer a kernel takes beside others, if all of them are launched again and again: pure
// functions, no state, no clock; 2 us of CPU time, no allocation. Whatever heddle predicts of
// company is predict()'s: the prices of promises, budget.slowdown, job plans, and the published
// tables (bench/SIZES_AND_BUDGETS.md).
//
// Sources. "SoCC": Elvinger, Strati, Enright Jerger, Klimovic, "Understanding GPU Resource
// Interference One Level Deeper", SoCC 2025. "Measuring": Elvinger et al., "Measuring GPU
// utilization one level deeper", 2025. Both describe the channels and measure them; the formulas
// are ours, and tests/unit/interference_test.cc holds them against both papers' tables.
//
// Two questions, in this order.
// (a) Does the block scheduler let it in (SoCC 4.2, Measuring 4.1.1)? Kernels whose blocks do not
//     all fit take turns, and have one period. Neither paper has that: on an H100 335 of 435 drawn
//     pairs of model kernels did so (both on all SMs).
// (b) If so, how much does each channel stretch it? x is the time that the channel alone would
//     need, in parts of the kernel's time alone; a channel stretches by f(x) / f(x alone), where
//     f(x) = (1 + x^sharpness)^(1/sharpness) is a smooth maximum of 1 and x. SM channels count
//     where SM sets overlap (SoCC 4.4), L2 and DRAM always (SoCC 4.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "daemon/model/sm_groups.h"
#include "ipc/kernel_facts.h"

namespace heddle::core {

// In this order in every array. kSlots has no use of its own: it comes of launch shapes.
enum class Channel : uint8_t {
  kIssue,       // issued instructions, of 4 a cycle and SM (SoCC 4.4.2)
  kFma,         // fp32 pipeline (Measuring 4.3)
  kFp64,        // (SoCC 4.4.3)
  kTensor,      //
  kSmem,        // shared memory wavefronts (SoCC 4.4.1)
  kL1Capacity,  // working set, of the L1 (Measuring 4.2.1)
  kL2Capacity,  // working set, of the L2 (SoCC 4.3, Measuring 4.1.2)
  kL2,          // L2 bandwidth (SoCC 4.3)
  kDram,        // DRAM bandwidth (SoCC 4.3, Measuring 4.1.3)
  kSlots,       // block slots (SoCC 4.2)
};
inline constexpr size_t kChannels = 9;  // with a use of their own
inline constexpr size_t kAllChannels = 10;
inline constexpr std::array<std::string_view, kAllChannels> kChannelNames = {
    "issue", "fma", "fp64", "tensor", "smem", "l1_capacity", "l2_capacity", "l2", "dram", "slots"};
inline constexpr size_t index_of(Channel c) { return static_cast<size_t>(c); }

// What a kernel uses of each channel while it runs alone on all SMs that it can fill: parts of the
// channel's nominal peak, and of the caches parts of their size (so it may exceed 1). kUnknown: not
// measured, and the channel is not judged for it.
inline constexpr float kUnknown = -1;
struct Use {
  std::array<float, kChannels> of = {kUnknown, kUnknown, kUnknown, kUnknown, kUnknown,
                                     kUnknown, kUnknown, kUnknown, kUnknown};
  float smem_ways = 1;               // wavefronts a shared memory request (bank conflicts)
  float l1_reuse = 1, l2_reuse = 1;  // part of its accesses that hit there alone
  // DRAM bandwidth if the L2 held nothing of it. Known: that comes instead of `dram` as far as the
  // working sets do not fit in the L2, and its misses cost what the DRAM makes of them.
  float dram_cold = kUnknown;
  // Mean part of a launch in which an SM has a block of it, of all SMs: blocks may end unevenly.
  float active = kUnknown;

  float operator[](Channel c) const { return of[index_of(c)]; }
  float& operator[](Channel c) { return of[index_of(c)]; }
  bool any_known() const;
};

struct DeviceModel;
// Of what was measured of a kernel, kUnknown for the rest. Nsight Compute understates DRAM use
// (Measuring 4.1.3): it is taken against the most that was ever seen on this GPU model. It counts
// every store as an L2 hit, so that the hit rate is an upper bound of what can be lost.
Use use_of(const ipc::KernelMetrics& metrics, const DeviceModel& device);
// The same of a kernel that takes `alone_us` here, again and again. A profiler's launch is longer
// and a cold one: its DRAM traffic is all that the kernel touches.
Use use_of(const ipc::KernelMetrics& metrics, double alone_us, const DeviceModel& device);
// The metrics that say so: use_of() of them has the same bandwidths and pipes.
ipc::KernelMetrics metrics_of(const Use& use, const DeviceModel& device);

// What a launch asks of the block scheduler. No threads: unknown, and it is taken to be let in.
struct LaunchShape {
  uint32_t blocks = 0;
  uint32_t threads = 0;        // per block
  uint32_t registers = 0;      // per thread
  uint32_t smem_bytes = 0;     // per block, static and dynamic
  uint32_t blocks_per_sm = 0;  // most that fit on an SM, if the driver said; 0: computed
};

// One GPU model: profiles/gpu/*.toml (daemon/profile/gpu_model.h). The defaults are an H100's.
struct DeviceModel {
  struct Limit {
    double capacity = 1;   // of the nominal peak that can be had
    double sharpness = 8;  // how suddenly the channel binds
  };
  std::string gpu;
  uint32_t sm_total = 132;
  uint32_t sm_groups = 16;  // that Mix::sm_set has bits of
  uint32_t threads_per_sm = 2048;
  uint32_t registers_per_sm = 65536;
  uint32_t smem_bytes_per_sm = 233472;
  uint32_t smem_bytes_reserved = 1024;  // of each block
  uint32_t blocks_per_sm = 32;
  double issue_per_cycle = 4;  // and SM
  double l1_kb = 216, l2_mb = 50;
  double dram_gb_s = 2300;  // that kernels of models get at most
  // What Nsight Compute says of a kernel that has all that it can have.
  double l2_peak_pct = 126, smem_peak_pct = 44;
  double dram_peak_pct = 61;  // what Nsight Compute says of the most that is ever reached
  // How many times as long a kernel takes all of whose hits become misses.
  double l1_miss_cost = 2, l2_miss_cost = 2;
  double launch_gap_us = 1;  // from a kernel's end to the first block of the next in its stream
  // Exponent of the sum by which the channels' stretches add up: 1 their sum, large their maximum.
  double together = 2;
  std::array<Limit, kChannels> limits = {};  // by Channel
};

// A kernel, or what stands for a client's kernels, on its SMs.
struct Mix {
  LaunchShape shape;
  double duration_us = 0;  // of one launch, alone on its SMs
  double whole_us = 0;     // and alone on all SMs, which `use` is of; 0: by the number of SMs
  Use use;
  SmSet sm_set{};  // that it may use; empty: all
};

// A resource of an SM that lets no further block in.
enum class SlotLimit : uint8_t { kNone, kThreads, kRegisters, kSmem, kBlocks };
inline constexpr std::array<std::string_view, 5> kSlotLimitNames = {"none", "threads", "registers",
                                                                    "shared memory", "blocks"};

struct Company {
  uint32_t alone = 0;                  // blocks of it that an SM holds, if nobody else is there
  uint32_t beside = 0;                 // and beside the other
  SlotLimit limit = SlotLimit::kNone;  // what allows no more than `beside`, if that is fewer
};

// How many blocks of `kernel` an SM holds on which `resident`, launched on `sms` SMs, came first.
Company company(const LaunchShape& kernel, const LaunchShape& resident, SmCount sms,
                const DeviceModel& device);

// The resource of an SM that blocks of this shape use up first, or of which so little is left that
// not even a block of 128 threads, 32 registers and 4 KB of shared memory finds room: kNone if one
// does.
inline constexpr LaunchShape kModestBlock{1, 128, 32, 4096, 0};
SlotLimit forbids_company(const LaunchShape& kernel, const DeviceModel& device);

struct Prediction {
  double slowdown = 1;  // of the kernel's time alone on its SMs, in all
  std::array<double, kAllChannels> by = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};  // by each channel alone
  Channel binds = Channel::kSlots;  // the channel of the largest
  double waits_for_us = 0;          // until it is let in, at worst: the others' launches
  // False: nobody can say, and `slowdown` is a guess. So it is beside a kernel of one wave that
  // leaves it some slots, but too few, for four of its launches or more, both on the same SMs. Of
  // 92 such predictions on an H100 34 were 1.4 times off or more (bench/SIZES_AND_BUDGETS.md).
  bool known = true;
};

// Of `mixes[victim]` beside all the others, one or more. What is not known of one slows nobody.
Prediction predict(std::span<const Mix> mixes, size_t victim, const DeviceModel& device);

// The use that, added to a neighbour's own, stretches it as measured: what a workload does to the
// microbenchmark of a channel, where nobody knows its metrics (a probe). Of bandwidths and pipes;
// kUnknown if the neighbour cannot tell.
float use_from_probe(Channel channel, double neighbour_use, double stretched,
                     const DeviceModel& device);

}  // namespace heddle::core
