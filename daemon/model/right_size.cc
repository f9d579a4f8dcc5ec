#include "daemon/model/right_size.h"

#include <algorithm>
#include <array>

namespace heddle::core {
namespace {

struct Point {
  GroupCount groups;
  double us = 0;
};

struct CurveMetric {
  GroupCount groups;
  size_t metric;
};
constexpr CurveMetric kCurve[] = {{GroupCount(1), ipc::metric_of("us_on_1")},
                                  {GroupCount(2), ipc::metric_of("us_on_2")},
                                  {GroupCount(4), ipc::metric_of("us_on_4")},
                                  {GroupCount(8), ipc::metric_of("us_on_8")},
                                  {GroupCount(12), ipc::metric_of("us_on_12")}};

// The points that were measured, ascending, and all groups last. Nothing is faster on fewer SMs: a
// point that says so is taken for as slow as the next one.
struct Curve {
  std::array<Point, std::size(kCurve) + 1> points;
  size_t count = 0;

  Curve(const ipc::KernelMetrics& metrics, double whole_us, const SmGroups& groups) {
    constexpr size_t kAll = ipc::metric_of("us_on_all");
    if (metrics.has(kAll)) whole_us = metrics.values[kAll];
    if (!(whole_us > 0)) return;
    for (const CurveMetric& at : kCurve) {
      if (at.groups >= groups.count || !metrics.has(at.metric)) continue;
      if (!(metrics.values[at.metric] > 0)) continue;
      points[count++] = {at.groups, metrics.values[at.metric]};
    }
    if (count == 0) return;
    points[count++] = {groups.count, whole_us};
    for (size_t i = count - 1; i > 0; --i)
      points[i - 1].us = std::max(points[i - 1].us, points[i].us);
  }
  double whole_us() const { return points[count - 1].us; }
  // Of what takes 1 on all groups.
  double on(GroupCount on) const {
    const double n = on.get();
    if (on <= points[0].groups) return points[0].us * points[0].groups.get() / n / whole_us();
    for (size_t i = 1; i < count; ++i) {
      const Point &low = points[i - 1], &high = points[i];
      if (on > high.groups) continue;
      const double most = 1.0 / high.groups.get(), span = 1.0 / low.groups.get() - most;
      const double part = span > 0 ? (1 / n - most) / span : 0;
      return (high.us + part * (low.us - high.us)) / whole_us();
    }
    return 1;
  }
};

SmCount sms_of_first(const SmGroups& groups, GroupCount n) {
  return groups.sms_of(ipc::ring_groups(n, {.anchor = 1}, 0, {}, groups.count));
}

}  // namespace

double us_on_groups(const ipc::KernelMetrics& metrics, double whole_us, const SmGroups& groups,
                    GroupCount n) {
  const Curve curve(metrics, whole_us, groups);
  return curve.count == 0 || n.get() == 0 ? 0 : whole_us * curve.on(n);
}

SmCount latency_size(const ipc::KernelMetrics& metrics, double whole_us, const SmGroups& groups) {
  const Curve curve(metrics, whole_us, groups);
  for (size_t i = 0; i < curve.count; ++i) {
    if (curve.points[i].us <= kRightSizeSlack * curve.whole_us()) {
      return sms_of_first(groups, curve.points[i].groups);
    }
  }
  return {};
}

SmCount throughput_size(const ipc::KernelMetrics& metrics, double whole_us, const SmGroups& groups,
                        double lambda) {
  const Curve curve(metrics, whole_us, groups);
  SmCount best;
  double least = 0;
  for (size_t i = 0; i < curve.count; ++i) {
    const SmCount sms = sms_of_first(groups, curve.points[i].groups);
    const double cost = curve.points[i].us * (1 + std::max(0.0, lambda) * sms.get());
    if (best.get() == 0 || cost < least) best = sms, least = cost;
  }
  return best;
}

}  // namespace heddle::core
