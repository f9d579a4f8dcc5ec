// Order statistics with their intervals. Deterministic: the bootstrap draws from a fixed seed.
#pragma once

#include <array>
#include <vector>

#include "bench/runner/job.h"

namespace heddle::bench {

// Fewer slices than this bound nothing: no table has a figure of them.
constexpr size_t kForInterval = 5;

// `value` of `n` slices with its percentile-bootstrap interval, widened for few of them and without
// bounds for one (hi is null in JSON); the spread is the interquartile range of the repetitions,
// each with a value of its own.
struct Figure {
  double value = 0, lo = 0, hi = 0;
  size_t n = 0;
  double spread = 0;
};
Json to_json(const Figure& figure);
Figure figure_from(const Json& json);

// Of values that a block has one of, over repetitions: drawn over those. `values` is not empty, and
// n is their number.
Figure median(const std::vector<double>& values);
Figure mean(const std::vector<double>& values);
// Such a figure of blocks of so many slices: n counts those, and fewer than kForInterval values
// bound nothing.
Figure of_blocks(Figure figure, size_t slices);

// How a job's samples of a block are cut into slices of a second: those of a closed loop by the
// time that they took, others, which come by themselves, into equally many.
struct Cut {
  size_t slices = 1;
  bool closed = false;
};
size_t slices_in(double block_s);  // one at least

// Statistics over the samples of all blocks together. The interval is drawn over blocks, and over
// the slices of each that is drawn: samples of one second move together, and so do those of one
// block.
struct Pooled {
  Figure mean_ms, p50_ms, p90_ms, p95_ms, p99_ms, cv, slo_attainment{0, 0, 1};
  size_t samples = 0;
};
Pooled pool(const std::vector<const Samples*>& blocks, double slo_ms, const Cut& cut = {});

// What a block's samples say, and what each of kRounds resamples of its slices does. Statistics of
// no sample are no number, but for the count.
enum Statistic : size_t { kMeanMs, kP50Ms, kP90Ms, kP95Ms, kP99Ms, kCv, kMet, kCount, kStatistics };
constexpr size_t kRounds = 1000;  // of the bootstrap
struct Drawn {
  std::vector<std::array<double, kStatistics>> of;  // first as measured, then the resamples
  size_t n = 0;                                     // slices with a sample
};
Drawn draw(const Samples& block, double slo_ms, const Cut& cut, uint64_t seed);

// A figure that each repetition has a value of: as measured, and one for each of kRounds draws.
struct Repeated {
  std::vector<std::vector<double>> each;
  size_t n = 0;

  std::vector<double> values() const;
};
// Drawn over repetitions, and over the draws of each that is drawn. There is one at least.
Figure median(const Repeated& repeated);

// Nearest rank: the smallest sample with at least a share q of all at or below it.
double quantile(const std::vector<uint32_t>& sorted, double q);

// A share cannot be more than all.
Figure share(Figure figure);

// To four digits, as results hold numbers; 0 if it is no number.
double rounded(double value);

}  // namespace heddle::bench
