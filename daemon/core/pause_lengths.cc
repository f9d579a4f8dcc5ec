#include "daemon/core/pause_lengths.h"

#include <algorithm>
#include <cmath>

namespace heddle::core {
namespace {

constexpr double kHalfLifeUs = 1e6;
constexpr double kEnough = 4;

}  // namespace

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

// Of all that last until then, what would be left: it gains most where the sum is largest.
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
