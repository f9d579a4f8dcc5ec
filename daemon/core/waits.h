// How long launches waited for their grants: a histogram in powers of two, for percentiles.
// Histograms can be added and subtracted, and counting is an increment.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace heddle::core {

class Waits {
 public:
  // Up to 1 µs, 2, 4 ... 2^20 µs (about a second), and longer.
  static constexpr size_t kBuckets = 22;
  using Counts = std::array<uint64_t, kBuckets>;

  // The upper bound of any bucket but the last, which has none.
  static constexpr double bound_us(size_t bucket) {
    return static_cast<double>(uint64_t{1} << bucket);
  }
  static constexpr size_t bucket_of(double us) {
    if (!(us > 1)) return 0;
    if (us > bound_us(kBuckets - 2)) return kBuckets - 1;
    const auto whole = static_cast<uint64_t>(us);
    const bool exact = static_cast<double>(whole) == us && std::has_single_bit(whole);
    return static_cast<size_t>(std::bit_width(whole)) - (exact ? 1 : 0);
  }
  void add(double us) {
    ++counts_[bucket_of(us)];
    sum_us_ += us;
  }
  const Counts& counts() const { return counts_; }
  double sum_us() const { return sum_us_; }

 private:
  Counts counts_{};
  double sum_us_ = 0;
};

// The wait that the part `share` of launches stay below, interpolated within a bucket; 0: there
// were none. Beyond the last bound it is that bound.
inline double quantile_us(const Waits::Counts& counts, double share) {
  uint64_t total = 0;
  for (const uint64_t count : counts) total += count;
  double left = share * static_cast<double>(total);
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here == 0 || left > here) {
      left -= here;
      continue;
    }
    const double low = i == 0 ? 0 : Waits::bound_us(i - 1);
    const double high = i + 1 < counts.size() ? Waits::bound_us(i) : low;
    return low + (high - low) * left / here;
  }
  return 0;
}

}  // namespace heddle::core
