// The facts and metrics of a kernel ID: one value, which events, traces and profiles carry whole,
// and which policies read as `kn`.
//
// Facts are fixed: they come with the kernel's registration. A profiler or a sweep measures the
// metrics, and any of them may be missing. A new metric is one line in kKernelMetrics: profile
// files, `heddle profile show`, traces and Lua's `kn` read that table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace heddle::ipc {

struct KernelMetric {
  const char* key;  // in files, JSON and Lua
  const char* unit;
  const char* help;
};

// "pct": of the peak that the hardware sustains, 0 to 100. Traces store a metric by its index in
// this table, so a new metric goes to the end.
inline constexpr KernelMetric kKernelMetrics[] = {
    {"ipc", "instructions/cycle", "executed by one SM while it has work, at most 4"},
    {"issue_pct", "%", "cycles in which a scheduler issued, of an SM with work"},
    {"fma_pct", "%", "use of the fp32 pipe"},
    {"fp64_pct", "%", "use of the fp64 pipe"},
    {"tensor_pct", "%", "use of the tensor pipe"},
    {"smem_pct", "%", "shared-memory bandwidth"},
    {"l1_pct", "%", "L1 bandwidth"},
    {"l1_hit_pct", "%", "hits of the L1 cache"},
    {"l2_pct", "%", "L2 bandwidth"},
    {"l2_hit_pct", "%", "hits of the L2 cache"},
    {"dram_pct", "%", "DRAM bandwidth"},
    {"occupancy_pct", "%", "resident warps, of those that an SM can hold"},
    {"us_on_1", "us", "duration on 1 group of SMs"},
    {"us_on_2", "us", "duration on 2 groups of SMs"},
    {"us_on_4", "us", "duration on 4 groups of SMs"},
    {"us_on_8", "us", "duration on 8 groups of SMs"},
    {"us_on_12", "us", "duration on 12 groups of SMs"},
    {"us_on_all", "us", "duration on all SMs, measured with those"},
    {"sm_active_pct", "%", "cycles in which an SM has a resident warp"},
    {"us_profiled", "us", "duration in the profiler's run, which the others are of"},
    {"tensor_active_pct", "%", "cycles in which the tensor pipe works, of an SM with work"},
    {"dram_read_mb", "MB", "read from DRAM by a launch"},
    {"dram_write_mb", "MB", "written to DRAM during a launch"},
    {"l2_write_mb", "MB", "written to the L2 by a launch, fabric included"},
    {"unknown_pct", "%", "time of a graph that is in kernels which nobody measured"},
};
inline constexpr size_t kKernelMetricCount = std::size(kKernelMetrics);
static_assert(kKernelMetricCount <= 32, "KernelMetrics has a bit for each");

// The index of the metric `key`, kKernelMetricCount if there is no such metric.
constexpr size_t metric_of(std::string_view key) {
  return static_cast<size_t>(
      std::find_if(std::begin(kKernelMetrics), std::end(kKernelMetrics),
                   [&](const KernelMetric& metric) { return key == metric.key; }) -
      std::begin(kKernelMetrics));
}

// Values by their index in kKernelMetrics. All zero: no metric is known.
struct KernelMetrics {
  uint32_t there;  // a bit for each known metric
  double values[kKernelMetricCount];

  bool has(size_t metric) const { return (there >> metric & 1) != 0; }
  std::optional<double> get(size_t metric) const {
    return has(metric) ? std::optional(values[metric]) : std::nullopt;
  }
  std::optional<double> get(std::string_view key) const { return get(metric_of(key)); }
  void set(size_t metric, double value) {
    values[metric] = value;
    there |= 1U << metric;
  }
  // Takes over the metrics that `newer` has.
  void merge(const KernelMetrics& newer) {
    for (size_t i = 0; i < kKernelMetricCount; ++i) {
      if (newer.has(i)) set(i, newer.values[i]);
    }
  }
};

struct KernelFacts {
  uint64_t id;             // ipc/kernel_id.h
  uint32_t grid_blocks;    // of a graph: its nodes
  uint32_t block_threads;  // 0: a graph
  uint32_t dynamic_smem_bytes;
  uint32_t static_smem_bytes;
  uint32_t registers;          // per thread, 0 if unknown
  uint32_t max_blocks_per_sm;  // 0 if unknown
  char name[128];              // NUL-terminated
  KernelMetrics metrics;
};

struct KernelFact {
  const char* key;
  uint32_t KernelFacts::*member;
};

// The numbers of a kernel, in the order in which files and traces store them.
inline constexpr KernelFact kKernelFacts[] = {
    {"grid_blocks", &KernelFacts::grid_blocks},
    {"block_threads", &KernelFacts::block_threads},
    {"dynamic_smem_bytes", &KernelFacts::dynamic_smem_bytes},
    {"static_smem_bytes", &KernelFacts::static_smem_bytes},
    {"registers", &KernelFacts::registers},
    {"max_blocks_per_sm", &KernelFacts::max_blocks_per_sm},
};

}  // namespace heddle::ipc
