// How long a hook took: a histogram in powers of two, counted for `heddle metrics`. Sandbox::call
// reads the clock anyway, so that counting is an increment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::policy {

class HookTimes {
 public:
  // Up to 1/8 us, 1/4, 1/2 ... 2^14 us, which is what a hook may take at most; and what is longer.
  static constexpr size_t kBuckets = 19;

  // Of all buckets but the last, which has no bound.
  static constexpr int64_t bound_ns(size_t bucket) { return int64_t{125} << bucket; }
  void add(int64_t ns) {
    size_t bucket = 0;
    while (bucket + 1 < kBuckets && ns > bound_ns(bucket)) ++bucket;
    ++counts_[bucket];
    ++calls_;
    sum_ns_ += ns;
  }
  const std::array<uint64_t, kBuckets>& counts() const { return counts_; }
  uint64_t calls() const { return calls_; }
  int64_t sum_ns() const { return sum_ns_; }
  // What `share` of the calls stay below, as if those of a bucket were spread evenly over it.
  double quantile_ns(double share) const {
    double left = share * static_cast<double>(calls_);
    for (size_t i = 0; i < kBuckets; ++i) {
      const auto here = static_cast<double>(counts_[i]);
      if (here == 0 || left > here) {
        left -= here;
        continue;
      }
      const double low = i == 0 ? 0 : static_cast<double>(bound_ns(i - 1));
      const double high = i + 1 < kBuckets ? static_cast<double>(bound_ns(i)) : low;
      return low + (high - low) * left / here;
    }
    return 0;
  }

 private:
  std::array<uint64_t, kBuckets> counts_{};
  uint64_t calls_ = 0;
  int64_t sum_ns_ = 0;
};

}  // namespace heddle::policy
