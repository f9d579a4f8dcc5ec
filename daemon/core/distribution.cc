#include "daemon/core/distribution.h"

#include <algorithm>
#include <cmath>

namespace heddle::core {

double Quantile::parabolic(int i, int step) const {
  const auto at = [this](int k) { return static_cast<double>(position_[static_cast<size_t>(k)]); };
  const auto q = [this](int k) { return static_cast<double>(height_[static_cast<size_t>(k)]); };
  const double up = (q(i + 1) - q(i)) / (at(i + 1) - at(i));
  const double down = (q(i) - q(i - 1)) / (at(i) - at(i - 1));
  const double moved =
      q(i) + step / (at(i + 1) - at(i - 1)) *
                 ((at(i) - at(i - 1) + step) * up + (at(i + 1) - at(i) - step) * down);
  if (q(i - 1) < moved && moved < q(i + 1)) return moved;
  return q(i) + (step > 0 ? up : -down);
}

void Quantile::add(double x) {
  const auto value = static_cast<float>(x);
  if (count_ < height_.size()) {
    height_[count_++] = value;
    std::sort(height_.begin(), height_.begin() + count_);
    for (uint32_t i = 0; i < position_.size(); ++i) position_[i] = i + 1;
    return;
  }
  ++count_;
  height_.front() = std::min(height_.front(), value);
  height_.back() = std::max(height_.back(), value);
  size_t cell = 1;  // the first marker above it
  while (cell < 4 && value >= height_[cell]) ++cell;
  for (; cell < 5; ++cell) ++position_[cell];
  const double p = static_cast<double>(share_), last = count_ - 1;
  const double wanted[] = {0, 1 + last * p / 2, 1 + last * p, 1 + last * (1 + p) / 2};
  for (int i = 1; i < 4; ++i) {
    const auto k = static_cast<size_t>(i);
    const double off = wanted[i] - position_[k];
    const bool up = off >= 1 && position_[k + 1] - position_[k] > 1;
    const bool down = off <= -1 && position_[k] - position_[k - 1] > 1;
    if (!up && !down) continue;
    height_[k] = static_cast<float>(parabolic(i, up ? 1 : -1));
    position_[k] += up ? 1u : ~0u;
  }
}

double Quantile::value() const {
  if (count_ == 0) return 0;
  if (count_ > height_.size()) return static_cast<double>(height_[2]);
  const auto rank = static_cast<size_t>(std::ceil(static_cast<double>(share_) * count_));
  return static_cast<double>(height_[std::max<size_t>(rank, 1) - 1]);
}

void Distribution::add(double us) {
  mean_us_ += (us - mean_us_) / ++count_;
  p50_.add(us);
  p90_.add(us);
}

Summary Distribution::summary() const {
  if (restored_.count != 0) return restored_;
  // Two estimates, each with an error of its own, must not contradict each other.
  const double p50_us = p50_.value(), p90_us = std::max(p50_us, p90_.value());
  return {static_cast<float>(mean_us_), static_cast<float>(p50_us), static_cast<float>(p90_us),
          count_};
}

}  // namespace heddle::core
