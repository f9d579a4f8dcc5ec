#include "daemon/plan/truth.h"

#include <algorithm>

namespace heddle::plan {

double pace_among(const JobCurve& job, uint32_t compute, double n) {
  const auto& row = job.pace[size_index(compute)];
  if (row[0] <= 0) return 0;
  // Times grow in a line with the number: between two measured ones, and in proportion beyond.
  double at = 1, time = 1 / row[0];
  for (size_t i = 1; i < kProcessesMost; ++i) {
    if (row[i] <= 0) continue;
    const auto count = static_cast<double>(i + 1);
    const double next = 1 / row[i];
    if (n <= count) return 1 / (time + (next - time) * std::max(n - at, 0.0) / (count - at));
    at = count;
    time = next;
  }
  if (at > 1) return 1 / (time * std::max(n / at, 1.0));
  return 1 / (time * std::max(n * wants(job, compute), 1.0));  // no company was measured
}

double pace_of_share(const JobCurve& job, uint32_t compute, double share) {
  const double size = compute * share;
  const double whole = pace_among(job, compute, 1);
  // Times fall in a line with 1 / size; below the smallest that fits, in proportion.
  double at = 0, pace = 0;
  for (size_t i = 0; i < kSliceSizes.size(); ++i) {
    if (!job.fits(i)) continue;
    const double next = job.pace[i][0], next_at = kSliceSizes[i];
    if (size <= next_at) {
      if (at == 0) return std::min(whole, next * size / next_at);
      const double part = (1 / at - 1 / size) / (1 / at - 1 / next_at);
      return std::min(whole, 1 / (1 / pace + (1 / next - 1 / pace) * part));
    }
    at = next_at;
    pace = next;
  }
  return std::min(whole, pace);
}

double wants(const JobCurve& job, uint32_t compute) {
  const auto& row = job.pace[size_index(compute)];
  double room = 1;
  bool company = false;
  for (size_t n = 2; n <= kProcessesMost; ++n) {
    if (row[n - 1] <= 0) continue;
    company = true;
    room = std::max(room, static_cast<double>(n) * row[n - 1] / row[0]);
  }
  if (company || job.use.sm < 0) return 1 / room;
  // No company was measured in this slice: its SM use alone, at the rate that it has there.
  const double pace = row[0];
  return std::clamp(job.use.sm * pace * 7.0 / compute, 0.05, 1.0);
}

double true_pace(std::span<const Tenant> tenants, size_t which, uint32_t compute, Sharing sharing) {
  const Tenant& self = tenants[which];
  const double alone = pace_among(*self.job, compute, 1);
  if (alone <= 0) return 0;
  if (sharing == Sharing::kTimeSliced) return alone / static_cast<double>(tenants.size());
  const double own = wants(*self.job, compute);
  double online = 0, offline = 0;  // what the others want, within their shares
  bool any_offline = false;
  for (size_t i = 0; i < tenants.size(); ++i) {
    any_offline |= !tenants[i].online;
    if (i == which) continue;
    const double want = std::min(wants(*tenants[i].job, compute), tenants[i].share);
    (tenants[i].online ? online : offline) += want;
  }
  double copies = 1 + (online + offline) / own;
  if (sharing == Sharing::kPriority && self.online) {
    copies = (1 + online / own) / (any_offline ? 1 - kOfflineLeast : 1);
  } else if (sharing == Sharing::kPriority && online > 0) {
    copies = (1 + offline / own) / std::max(1 - online, kOfflineLeast);
  }
  const double among = pace_among(*self.job, compute, copies);
  // Copies may measure a little faster than one alone: without a limit that stands.
  return self.share >= 1 ? among : std::min(pace_of_share(*self.job, compute, self.share), among);
}

}  // namespace heddle::plan
