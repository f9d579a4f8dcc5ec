// Order statistics with their intervals. Deterministic: the bootstrap draws from a fixed seed.
#pragma once

#include <vector>

#include "bench/runner/job.h"

namespace heddle::bench {

// `value` of `n` samples with its percentile-bootstrap interval, widened for few of them and
// without bounds for one (hi is null in JSON); the spread is the interquartile range of the
// repetitions, each with a value of its own.
struct Figure {
  double value = 0, lo = 0, hi = 0;
  size_t n = 0;
  double spread = 0;
};
Json to_json(const Figure& figure);
Figure figure_from(const Json& json);

// Over repetitions. `values` is not empty.
Figure median(const std::vector<double>& values);
Figure mean(const std::vector<double>& values);

// Statistics over the samples of all blocks together. The interval is drawn over blocks, not over
// samples, since those of one block move together.
struct Pooled {
  Figure mean_ms, p50_ms, p90_ms, p95_ms, p99_ms, cv, slo_attainment{0, 0, 1};
  size_t samples = 0;
};
Pooled pool(const std::vector<const Samples*>& blocks, double slo_ms);

// Nearest rank: the smallest sample with at least a share q of all at or below it.
double quantile(const std::vector<uint32_t>& sorted, double q);

// A share cannot be more than all.
Figure share(Figure figure);

// To four digits, as results hold numbers; 0 if it is no number.
double rounded(double value);

}  // namespace heddle::bench
