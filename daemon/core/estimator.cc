#include "daemon/core/estimator.h"

#include <algorithm>
#include <cmath>

namespace heddle::core {
namespace {

constexpr double kMemory = 1.0 / 16;
// A restored summary counts as so many samples at most: it may be of another machine state or day.
constexpr uint32_t kRestored = 3;
// Durations of a kernel ID differ if their mean deviation is over this part of the mean, and over
// this many µs.
constexpr double kDiffers = 0.25, kDiffersUs = 20;

}  // namespace

void Ewma::add(double x) {
  ++count_;
  const double weight = std::max(1.0 / count_, kMemory);
  const double error = x - mean_;
  mean_ += weight * error;
  deviation_ += weight * (count_ == 1 ? 0 : std::abs(error) - deviation_);
}

void Ewma::restore(const Summary& s) {
  mean_ = static_cast<double>(s.mean_us);
  // In a normal distribution p90 is 1.28 standard deviations above p50, and the mean absolute
  // deviation is 0.80 of one. The next samples correct this.
  deviation_ = std::max(0.0, static_cast<double>(s.p90_us - s.p50_us)) * 0.62;
  count_ = std::min(s.count, kRestored);
}

void DurationEstimate::add(double us, bool exclusive, Context before) {
  if (us <= 0) return;
  if (!exclusive) {
    // Quickly down, slowly up: so a sample that is too short by mistake has no lasting effect.
    const double weight = us < shared_us_ ? 1.0 / 4 : 1.0 / 64;
    shared_us_ = shared_us_ > 0 ? shared_us_ + weight * (us - shared_us_) : us;
    return;
  }
  exclusive_.add(us);
  if (!before.known() || (contexts_.empty() && !differs())) return;
  InContext& c = in(before);
  c.us.add(us);
  ++c.samples;
  told_apart_ += c.known() ? 1 : 0;
}

DurationEstimate::InContext& DurationEstimate::in(Context before) {
  for (InContext& c : contexts_) {
    if (c.before == before) return c;
  }
  if (contexts_.empty()) contexts_.reserve(kContextsMax);
  if (contexts_.size() < kContextsMax) contexts_.emplace_back();
  InContext& c = contexts_[next_];
  next_ = (next_ + 1) % kContextsMax;
  c = {before, {}};
  return c;
}

void DurationEstimate::restore(Context before, const Summary& summary) {
  InContext& c = in(before);
  c.us.restore(summary);
  told_apart_ += summary.count - c.samples;
  c.samples = summary.count;
}

std::vector<DurationAfter> DurationEstimate::after() const {
  std::vector<DurationAfter> all;
  for (const InContext& c : contexts_) {
    all.push_back({c.before.last(), static_cast<float>(c.us.mean()), c.samples});
  }
  return all;
}

bool DurationEstimate::differs() const {
  return exclusive_.deviation() > std::max(kDiffersUs, kDiffers * exclusive_.mean());
}

double DurationEstimate::us() const {
  if (exclusive_.count() > 0) return exclusive_.mean();
  return shared_us_ > 0 ? shared_us_ : inferred_us_;
}

double DurationEstimate::us(Context before) const {
  for (const InContext& c : contexts_) {
    if (c.before == before && c.known()) return c.us.mean();
  }
  return us();
}

double DurationEstimate::longest_us() const {
  double longest = us();
  for (const InContext& c : contexts_) {
    if (c.known()) longest = std::max(longest, c.us.mean());
  }
  return longest;
}

// True if this gap is the last of kPhaseGaps in a row that mean a new phase.
bool GapEstimate::phase_changed(double us) {
  int side = 0;
  if (known() && us * kPhaseFactor < low_us_) side = -1;
  if (known() && us > kPhaseFactor * low_us_) side = 1;
  if (side == 0 || side * strange_ < 0) strange_ = 0;
  if (side == 0) return false;
  strange_low_us_ = strange_ == 0 ? us : std::min(strange_low_us_, us);
  strange_ += side;
  return std::abs(strange_) >= kPhaseGaps;
}

void GapEstimate::add(double us) {
  if (phase_changed(us)) {
    gaps_ = {};
    strange_ = 0;
    for (uint32_t i = 0; i < kSamplesMin; ++i) gaps_.add(strange_low_us_);
    low_us_ = strange_low_us_;
    return;
  }
  gaps_.add(us);
  if (gaps_.count() <= kSamplesMin) {
    low_us_ = gaps_.count() == 1 ? us : std::min(low_us_, us);
    return;
  }
  // Stochastic approximation of the kMissShare quantile; at equilibrium the two steps balance.
  const double step = gaps_.deviation() * 0.5;
  low_us_ += us < low_us_ ? -step * (1 - kMissShare) : step * kMissShare;
  low_us_ = std::clamp(low_us_, 0.0, gaps_.mean());
}

void GapEstimate::restore(const Summary& s) {
  gaps_.restore(s);
  // The kMissShare quantile of a normal distribution with this p50 and p90.
  const double spread_us = std::max(0.0, static_cast<double>(s.p90_us - s.p50_us));
  low_us_ = std::max(0.0, static_cast<double>(s.p50_us) - 0.3 * spread_us);
  low_us_ = std::min(low_us_, gaps_.mean());
}

double GapEstimate::high_us() const {
  // Four mean deviations are about three standard deviations of a normal distribution.
  return known() ? gaps_.mean() + 4 * gaps_.deviation() : 0;
}

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
  // The two estimates have errors of their own: p90 must not be below p50.
  const double p50_us = p50_.value(), p90_us = std::max(p50_us, p90_.value());
  return {static_cast<float>(mean_us_), static_cast<float>(p50_us), static_cast<float>(p90_us),
          count_};
}

}  // namespace heddle::core
