// What Nsight Compute wrote (ncu --csv), by kernel: the metrics that the interference estimator
// wants, under the keys that policies and profiles know. Pure: text in, values out. Both layouts
// are read: one row for each metric (details), and one column for each (--page raw).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/core/scheduler.h"

namespace heddle::profiles {

// A key, the metric of Nsight Compute that it stands for, the unit that it must have, and what
// makes the key's unit of it. The list begins with that of "Measuring GPU utilization one level
// deeper", section 2.2, and of "Understanding GPU Resource Interference One Level Deeper",
// section 2.2. Two of its metrics say too little on an H100: a tensor instruction of Hopper's takes
// many cycles, so that instructions issued to that pipe are a few per cent of what it could take
// while it is busy, and DRAM throughput lacks what is written back after the launch. The last five
// make up for that.
struct NcuMetric {
  std::string_view key, ncu, unit;
  double factor = 1;
};
std::span<const NcuMetric> ncu_metrics();

// A kernel in one launch configuration. Of several launches the one of the middle duration.
struct NcuKernel {
  std::string name;  // as the driver has it: mangled
  uint32_t grid_blocks = 0, block_threads = 0;
  int64_t dynamic_smem_bytes = -1;  // -1: not collected
  uint32_t registers = 0, static_smem_bytes = 0;
  double duration_us = 0;  // 0: not collected
  double shortest_us = 0, longest_us = 0;
  uint32_t launches = 0;
  std::map<std::string, double, std::less<>> metrics;  // by key
  std::vector<std::string> missing;                    // keys of ncu_metrics()
};

struct NcuReport {
  std::vector<NcuKernel> kernels;    // as they first came
  std::vector<std::string> missing;  // keys that none of them has
};

// Errors are "FILE:LINE: what; remedy": no header, demangled names, another unit or locale, a value
// that is no number.
Result<NcuReport> parse_ncu(std::string_view text, const std::string& file);

// Puts the report's metrics into the profile's kernels of the same name and launch configuration;
// how many got some.
size_t add_metrics(core::TaskProfile& into, const NcuReport& report);

// The command that collects them: unattached, one launch for each configuration after `skip`
// others, clocks and caches as the program finds them, graphs by node.
std::vector<std::string> ncu_command(const std::string& ncu, const std::string& output,
                                     uint32_t skip, std::span<const std::string> command);

}  // namespace heddle::profiles
