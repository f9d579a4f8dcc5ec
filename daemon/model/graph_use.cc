#include "daemon/model/graph_use.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace heddle::core {
namespace {

struct Measured {
  const ipc::KernelMetrics* metrics;
  Use use;
  double weight;  // of all of them 1
};

bool has_mean(const ipc::KernelMetric& metric) {
  return std::string_view(metric.unit) == "%" ||
         std::string_view(metric.unit) == "instructions/cycle";
}

// kUnknown if one of them lacks it.
template <class Field>
float mean(std::span<const Measured> all, Field&& field) {
  double sum = 0;
  for (const Measured& m : all) {
    const auto value = static_cast<double>(field(m.use));
    if (value < 0) return kUnknown;
    sum += m.weight * value;
  }
  return static_cast<float>(sum);
}

Use mean_use(std::span<const Measured> all) {
  Use use;
  for (size_t i = 0; i < kChannels; ++i) {
    use.of[i] = mean(all, [i](const Use& u) { return u.of[i]; });
  }
  use.smem_ways = mean(all, [](const Use& u) { return u.smem_ways; });
  use.l1_reuse = mean(all, [](const Use& u) { return u.l1_reuse; });
  use.l2_reuse = mean(all, [](const Use& u) { return u.l2_reuse; });
  use.dram_cold = mean(all, [](const Use& u) { return u.dram_cold; });
  return use;
}

ipc::KernelMetrics mean_metrics(std::span<const Measured> all) {
  ipc::KernelMetrics metrics{};
  for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) {
    const auto has = [i](const Measured& m) { return m.metrics->has(i); };
    if (!has_mean(ipc::kKernelMetrics[i]) || !std::all_of(all.begin(), all.end(), has)) continue;
    double sum = 0;
    for (const Measured& m : all) sum += m.weight * m.metrics->values[i];
    metrics.set(i, sum);
  }
  return metrics;
}

// Of a node, on average; 1 if nobody timed any.
double mean_us(std::span<const GraphPart> parts) {
  double us = 0, count = 0;
  for (const GraphPart& part : parts) {
    if (part.us <= 0) continue;
    us += part.us * part.count;
    count += part.count;
  }
  return count > 0 ? us / count : 1;
}

}  // namespace

GraphUse graph_use(std::span<const GraphPart> parts, const DeviceModel& device) {
  const double usual_us = mean_us(parts);
  std::vector<Measured> all;
  double known_us = 0, unknown_us = 0;
  for (const GraphPart& part : parts) {
    const double us = part.count * (part.us > 0 ? part.us : usual_us);
    const Use use = part.metrics != nullptr ? use_of(*part.metrics, part.us, device) : Use{};
    const bool known = us > 0 && use.any_known();
    (known ? known_us : unknown_us) += us;
    if (known) all.push_back({part.metrics, use, us});
  }
  GraphUse graph;
  if (known_us > 0) {
    for (Measured& m : all) m.weight /= known_us;
    graph.metrics = mean_metrics(all);
    graph.use = mean_use(all);
    graph.unknown = unknown_us / (known_us + unknown_us);
  }
  graph.metrics.set(ipc::metric_of("unknown_pct"), 100 * graph.unknown);
  return graph;
}

}  // namespace heddle::core
