// What a kernel uses of each channel, of what a profiler measured of it (interference.h).
#include <algorithm>
#include <array>

#include "daemon/model/interference.h"

namespace heddle::core {
namespace {

// Nsight Compute counts a write to the L2 once more where it crosses between the L2's two halves:
// 18.9 MB of 12.6 in a kernel that writes each byte once (an H100).
constexpr double kFabric = 1.5;
// Part of the L2 that holds data of models' kernels: some is there twice, once in each half. Fitted
// to 870 pairs of kernels on an H100 (bench/SIZES_AND_BUDGETS.md).
constexpr double kL2Usable = 0.75;

// What a profiler measures of each channel, and how much of it is the whole.
struct Measured {
  Channel channel;
  std::string_view key;
  double whole;
};
std::array<Measured, 7> measured_on(const DeviceModel& device) {
  return {{{Channel::kIssue, "ipc", device.issue_per_cycle},
           {Channel::kFma, "fma_pct", 100},
           {Channel::kFp64, "fp64_pct", 100},
           {Channel::kTensor, "tensor_pct", 100},
           {Channel::kSmem, "smem_pct", device.smem_peak_pct},
           {Channel::kL2, "l2_pct", device.l2_peak_pct},
           {Channel::kDram, "dram_pct", device.dram_peak_pct}}};
}

}  // namespace

Use use_of(const ipc::KernelMetrics& metrics, const DeviceModel& device) {
  Use use;
  const auto set = [&](float& out, std::string_view key, double whole) {
    if (const auto value = metrics.get(key)) out = static_cast<float>(*value / whole);
  };
  for (const Measured& m : measured_on(device)) set(use[m.channel], m.key, m.whole);
  set(use[Channel::kTensor], "tensor_active_pct", 100);  // a Hopper instruction takes many cycles
  set(use.l1_reuse, "l1_hit_pct", 100);
  set(use.l2_reuse, "l2_hit_pct", 100);
  return use;
}

Use use_of(const ipc::KernelMetrics& metrics, double alone_us, const DeviceModel& device) {
  Use use = use_of(metrics, device);
  const double profiled_us = metrics.get("us_profiled").value_or(0);
  if (profiled_us <= 0 || alone_us <= 0) return use;
  const auto longer = static_cast<float>(profiled_us / alone_us);
  for (const Channel channel : {Channel::kIssue, Channel::kFma, Channel::kFp64, Channel::kTensor,
                                Channel::kSmem, Channel::kL2}) {
    float& part = use[channel];
    const auto most = static_cast<float>(device.limits[index_of(channel)].capacity);
    if (part > 0) part = std::max(part, std::min(most, part * longer));
  }
  if (const auto active = metrics.get("sm_active_pct")) {
    use.active = static_cast<float>(*active / 100) * longer;
  }
  if (const auto read = metrics.get("dram_read_mb")) {
    const double kept = metrics.get("l2_write_mb").value_or(0) / kFabric;  // and written back later
    const double written = std::max(metrics.get("dram_write_mb").value_or(0), kept);
    const double gb_s = (*read + written) / alone_us * 1e3;
    use.dram_cold = static_cast<float>(gb_s / device.dram_gb_s);
    use[Channel::kDram] = use.dram_cold;
    const double touched_mb = *read + written;
    use[Channel::kL2Capacity] = static_cast<float>(touched_mb / (kL2Usable * device.l2_mb));
  }
  return use;
}

ipc::KernelMetrics metrics_of(const Use& use, const DeviceModel& device) {
  ipc::KernelMetrics all{};
  for (const Measured& m : measured_on(device)) {
    const auto part = static_cast<double>(use[m.channel]);
    if (part >= 0) all.set(ipc::metric_of(m.key), part * m.whole);
  }
  return all;
}

bool Use::any_known() const {
  return std::any_of(of.begin(), of.end(), [](float u) { return u >= 0; });
}

}  // namespace heddle::core
