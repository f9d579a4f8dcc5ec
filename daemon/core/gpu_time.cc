#include "daemon/core/gpu_time.h"

#include <algorithm>
#include <cmath>

#include "daemon/core/client/on_device.h"
#include "daemon/core/policy.h"

namespace heddle::core {
namespace {

// The core learns too late that a client's work has ended, so parts are left over that others may
// have used. They are kept for as long as a client counts as at work without evidence.
constexpr double kUnusedMaxUs = static_cast<double>(kEvidencePatienceNs) / 1e3;

constexpr double kHalfLifeUs = 1e6;
constexpr double kEnough = 4;

}  // namespace

void GpuTime::collect_part(TimeShare& share) const {
  if (share.resident) share.part_us += share.weight * (part_us_ - share.part_at);
  share.part_at = part_us_;
}

void GpuTime::set_resident(TimeShare& share, bool resident, float weight) {
  if (share.resident == resident && share.weight == weight) return;
  collect_part(share);
  residents_ += (resident ? 1 : 0) - (share.resident ? 1 : 0);
  weights_ += (resident ? weight : 0) - (share.resident ? share.weight : 0);
  if (residents_ == 0) weights_ = 0;  // drops rounding errors
  share.resident = resident;
  share.weight = weight;
}

void GpuTime::charge(TimeShare& share, double us, double left_us) {
  share.worked_us += us;
  collect_part(share);
  const double own = std::min(us, share.part_us);
  const double others = std::min(us - own, unused_us_);
  share.had_us += own + others;
  share.part_us -= own;
  const double left = std::max(0.0, share.part_us - left_us);
  share.part_us -= left;
  unused_us_ = std::min(unused_us_ - others + left, kUnusedMaxUs);
}

GotParts Got::parts(int64_t seconds, double had_us) const {
  const auto at = [&](int64_t ago) {
    const int64_t number = seconds - 1 - ago;
    return number >= last_ ? had_us : at_[static_cast<size_t>((number + kKept) % kKept)];
  };
  return {(at(0) - at(1)) / 1e6, (at(0) - at(10)) / 10e6, (at(0) - at(60)) / 60e6};
}

void BusyTime::note(int highest) {
  for (int p = highest + 1; p <= highest_ && p < kPriorityCount; ++p) {
    pauses_[static_cast<size_t>(p)].add(pause_us(p), passed_);
  }
  highest_ = highest;
}

double BusyTime::pause_us(int priority) const {
  const TimeNs last = *std::max_element(last_.begin(), last_.begin() + std::max(1, priority));
  return priority > 0 && last > 0 ? to_us(passed_ - last) : kUnlimitedUs;
}

double BusyTime::idle_us(int priority) const {
  TimeNs idle = 0;
  for (size_t p = static_cast<size_t>(std::clamp(priority, 0, kPriorityCount)); p < ns_.size();
       ++p) {
    idle += ns_[p];
  }
  return to_us(idle);
}

void PauseLengths::add(double us, TimeNs now) {
  if (us < kLeastUs || us == kUnlimitedUs) return;
  const double kept = std::exp2(-to_us(now - at_) / kHalfLifeUs);
  at_ = now;
  for (Size& size : sizes_) {
    size.count *= kept;
    size.us *= kept;
  }
  const double step = std::log(us / kLeastUs) / std::log(kStep);
  Size& size = sizes_[std::min(kSizes - 1, static_cast<size_t>(step))];
  size.count += 1;
  size.us += us;
}

// For each waiting time, sums what would be left of the pauses that last longer, less the cost.
// Returns the waiting time with the largest sum.
double PauseLengths::wait_us(double cost_us) const {
  double count = 0, us = 0, best = 0, best_us = kUnlimitedUs;
  double from_us = kLeastUs * std::pow(kStep, static_cast<double>(kSizes - 1));
  for (size_t i = kSizes; i-- > 0; from_us /= kStep) {
    count += sizes_[i].count;
    us += sizes_[i].us;
    const double gain = us - count * (from_us + cost_us);
    if (gain <= best) continue;
    best = gain;
    best_us = from_us;
  }
  if (count < kEnough) return kUnlimitedUs;
  return best_us;
}

}  // namespace heddle::core
