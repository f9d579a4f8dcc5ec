// How long a hook took: a histogram in powers of two, counted for `heddle metrics`. One call in
// kTimedEvery is timed, and stands for those since the last: on some virtual machines two looks at
// the clock take a third of what a hook takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::policy {

class HookTimes {
 public:
  // Up to 1/8 us, 1/4, 1/2 ... 2^14 us, which is what a hook may take at most; and what is longer.
  static constexpr size_t kBuckets = 19;
  static constexpr uint64_t kTimedEvery = 16;

  // Of all buckets but the last, which has no bound.
  static constexpr int64_t bound_ns(size_t bucket) { return int64_t{125} << bucket; }
  bool times_next() const { return calls_ % kTimedEvery == 0; }
  void pass() { ++calls_; }  // a call that was not timed
  void add(int64_t ns) {
    size_t bucket = 0;
    while (bucket + 1 < kBuckets && ns > bound_ns(bucket)) ++bucket;
    const uint64_t calls = ++calls_ - told_;
    told_ = calls_;
    counts_[bucket] += calls;
    sum_ns_ += ns * static_cast<int64_t>(calls);
  }
  const std::array<uint64_t, kBuckets>& counts() const { return counts_; }
  uint64_t calls() const { return calls_; }
  int64_t sum_ns() const { return sum_ns_; }
  // What `share` of the calls stay below, as if those of a bucket were spread evenly over it.
  double quantile_ns(double share) const {
    double left = share * static_cast<double>(told_);
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
  uint64_t calls_ = 0, told_ = 0;  // told: of those, in counts_
  int64_t sum_ns_ = 0;
};

}  // namespace heddle::policy
