#include "bench/runner/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

namespace heddle::bench {
namespace {

constexpr int kRounds = 1000;  // of the bootstrap
constexpr double kUsPerMs = 1e3;
constexpr size_t kFigures = 7;  // of Pooled

// How much too narrow a percentile interval of n values is, were they normal: resamples spread by
// sqrt((n - 1) / n) less than samples do, and Student's t is wider than the normal distribution
// (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015).
double too_narrow(size_t n) {
  constexpr double kNormal = 1.96;
  constexpr double kStudent[] = {12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  const double freedom = static_cast<double>(n) - 1;
  const double student = n < 2 + std::size(kStudent) ? kStudent[n - 2] : kNormal + 2.5 / freedom;
  return student / kNormal * std::sqrt((freedom + 1) / freedom);
}

// lo and hi of `draws`, the statistic of as many resamples of n values, one of which says nothing;
// no figure is negative.
void set_interval(Figure& figure, std::vector<double>& draws, size_t n) {
  figure.hi = HUGE_VAL;
  if (n < 2) return;
  std::sort(draws.begin(), draws.end());
  const auto at = [&](double q) {
    return draws[std::min(draws.size() - 1,
                          static_cast<size_t>(q * static_cast<double>(draws.size())))];
  };
  figure.lo = std::max(0.0, figure.value - too_narrow(n) * (figure.value - at(0.025)));
  figure.hi = figure.value + too_narrow(n) * (at(0.975) - figure.value);
}

double middle(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double average(std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double interquartile(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() * 3 / 4] - values[values.size() / 4];
}

Figure bootstrap(const std::vector<double>& values, double (*statistic)(std::vector<double>&)) {
  std::mt19937_64 random(1);
  std::vector<double> copy = values, draws;
  Figure figure{statistic(copy), 0, 0, values.size(), interquartile(values)};
  for (int round = 0; round < kRounds; ++round) {
    for (double& value : copy) value = values[random() % values.size()];
    draws.push_back(statistic(copy));
  }
  set_interval(figure, draws, values.size());
  return figure;
}

// The samples of all blocks in one order, each with its block, so that a resample of blocks is a
// weight for each and no new sort.
class Pool {
 public:
  Pool(const std::vector<const Samples*>& blocks, double slo_ms) : parts_(blocks.size()) {
    for (uint32_t b = 0; b < blocks.size(); ++b) {
      Part& part = parts_[b];
      part.unserved = blocks[b]->unserved;
      for (const uint32_t us : blocks[b]->us) {
        sorted_.push_back({us, b});
        const double ms = us / kUsPerMs;
        part.sum += ms;
        part.squares += ms * ms;
        part.count += 1;
        part.met += ms <= slo_ms ? 1 : 0;
      }
    }
    std::sort(sorted_.begin(), sorted_.end());
  }

  size_t size() const { return sorted_.size(); }

  // mean, p50, p90, p95, p99, cv, slo by blocks' weights; nothing if the resample has no sample.
  std::optional<std::array<double, kFigures>> evaluate(const std::vector<uint32_t>& weights) const {
    double count = 0, sum = 0, squares = 0, met = 0, unserved = 0;
    for (size_t b = 0; b < parts_.size(); ++b) {
      count += weights[b] * parts_[b].count;
      sum += weights[b] * parts_[b].sum;
      squares += weights[b] * parts_[b].squares;
      met += weights[b] * parts_[b].met;
      unserved += weights[b] * parts_[b].unserved;
    }
    if (count == 0) return std::nullopt;
    const double mean = sum / count;
    const double variance = std::max(0.0, squares / count - mean * mean);
    std::array<double, kFigures> out = {
        mean, 0, 0, 0, 0, mean > 0 ? std::sqrt(variance) / mean : 0, met / (count + unserved)};
    constexpr double kQuantiles[] = {0.5, 0.9, 0.95, 0.99};
    double passed = 0;
    size_t next = 0;
    for (const auto& [us, block] : sorted_) {
      passed += weights[block];
      while (next < std::size(kQuantiles) &&
             passed > std::min(count - 1, std::floor(kQuantiles[next] * count))) {
        out[++next] = us / kUsPerMs;
      }
      if (next == std::size(kQuantiles)) break;
    }
    return out;
  }

 private:
  struct Part {
    double count = 0, sum = 0, squares = 0, met = 0, unserved = 0;
  };
  std::vector<Part> parts_;
  std::vector<std::pair<uint32_t, uint32_t>> sorted_;  // µs, block
};

}  // namespace

double rounded(double value) { return std::isfinite(value) ? std::round(value * 1e4) / 1e4 : 0; }

Figure share(Figure figure) {
  figure.hi = std::min(1.0, figure.hi);
  return figure;
}

Json to_json(const Figure& figure) {
  return {{"value", rounded(figure.value)},
          {"lo", rounded(figure.lo)},
          {"hi", std::isinf(figure.hi) ? Json() : Json(rounded(figure.hi))},
          {"spread", rounded(figure.spread)},
          {"n", figure.n}};
}

Figure figure_from(const Json& json) {
  const Json& hi = json.at("hi");
  return {json.at("value"), json.at("lo"), hi.is_null() ? HUGE_VAL : hi.get<double>(), json.at("n"),
          json.value("spread", 0.0)};
}

Figure median(const std::vector<double>& values) { return bootstrap(values, middle); }
Figure mean(const std::vector<double>& values) { return bootstrap(values, average); }

double quantile(const std::vector<uint32_t>& sorted, double q) {
  const auto at = static_cast<size_t>(q * static_cast<double>(sorted.size()));
  return sorted[std::min(sorted.size() - 1, at)];
}

Pooled pool(const std::vector<const Samples*>& blocks, double slo_ms) {
  const Pool all(blocks, slo_ms);
  Pooled out;
  out.samples = all.size();
  if (out.samples == 0) return out;
  Figure* const figures[kFigures] = {&out.mean_ms, &out.p50_ms, &out.p90_ms,        &out.p95_ms,
                                     &out.p99_ms,  &out.cv,     &out.slo_attainment};
  std::vector<uint32_t> weights(blocks.size(), 1);
  const auto values = *all.evaluate(weights);
  std::mt19937_64 random(1);
  std::vector<double> draws[kFigures];
  for (int round = 0; round < kRounds; ++round) {
    std::fill(weights.begin(), weights.end(), 0);
    for (size_t i = 0; i < blocks.size(); ++i) ++weights[random() % blocks.size()];
    const auto drawn = all.evaluate(weights);
    for (size_t i = 0; drawn && i < kFigures; ++i) draws[i].push_back((*drawn)[i]);
  }
  std::vector<double> each[kFigures];
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::fill(weights.begin(), weights.end(), 0);
    weights[b] = 1;
    const auto own = all.evaluate(weights);
    for (size_t i = 0; own && i < kFigures; ++i) each[i].push_back((*own)[i]);
  }
  for (size_t i = 0; i < kFigures; ++i) {
    *figures[i] = {values[i], 0, 0, out.samples, interquartile(each[i])};
    set_interval(*figures[i], draws[i], blocks.size());
  }
  out.slo_attainment = share(out.slo_attainment);
  return out;
}

}  // namespace heddle::bench
