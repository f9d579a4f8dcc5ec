#include "bench/runner/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace heddle::bench {
namespace {

constexpr double kUsPerMs = 1e3;

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
  std::erase_if(draws, [](double draw) { return std::isnan(draw); });
  if (n < 2 || draws.empty()) return;
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
  for (size_t round = 0; round < kRounds; ++round) {
    for (double& value : copy) value = values[random() % values.size()];
    draws.push_back(statistic(copy));
  }
  set_interval(figure, draws, values.size());
  return figure;
}

using Statistics = std::array<double, kStatistics>;

// The samples of all blocks in one order, each with its slice, so that a resample of slices is a
// weight for each and no new sort.
class Pool {
 public:
  Pool(const std::vector<const Samples*>& blocks, double slo_ms, const Cut& cut)
      : slices_(cut.slices),
        blocks_(blocks.size()),
        closed_(cut.closed),
        parts_(blocks.size() * cut.slices) {
    for (size_t b = 0; b < blocks.size(); ++b) add(*blocks[b], slo_ms, cut.closed, b * slices_);
    std::sort(sorted_.begin(), sorted_.end());
    for (const Part& part : parts_) whole_ms_ += part.sum;
  }

  size_t size() const { return sorted_.size(); }
  size_t filled() const {
    return static_cast<size_t>(std::count_if(parts_.begin(), parts_.end(),
                                             [](const Part& part) { return part.count > 0; }));
  }

  Statistics all() const { return evaluate(std::vector<uint32_t>(parts_.size(), 1)); }

  Statistics of_block(size_t block) const {
    std::vector<uint32_t> weights(parts_.size(), 0);
    std::fill_n(weights.begin() + static_cast<ptrdiff_t>(block * slices_), slices_, 1);
    return evaluate(weights);
  }

  // As many blocks as there are, and of each as many slices as it has.
  Statistics resample(std::mt19937_64& random) const {
    std::vector<uint32_t> weights(parts_.size(), 0);
    for (size_t b = 0; b < blocks_; ++b) {
      const size_t drawn = random() % blocks_;
      for (size_t s = 0; s < slices_; ++s) ++weights[drawn * slices_ + random() % slices_];
    }
    return evaluate(weights);
  }

 private:
  struct Part {
    double count = 0, sum = 0, squares = 0, met = 0, unserved = 0;
  };

  void add(const Samples& block, double slo_ms, bool closed, size_t first) {
    const auto slices = static_cast<double>(slices_);
    const double whole = closed ? std::accumulate(block.us.begin(), block.us.end(), 0.0)
                                : static_cast<double>(block.us.size());
    double passed = 0;
    for (const uint32_t us : block.us) {
      const double at = whole > 0 ? std::min(slices - 1, std::floor(passed / whole * slices)) : 0;
      passed += closed ? us : 1;
      const size_t slice = first + static_cast<size_t>(at);
      sorted_.push_back({us, static_cast<uint32_t>(slice)});
      Part& part = parts_[slice];
      const double ms = us / kUsPerMs;
      part.sum += ms;
      part.squares += ms * ms;
      part.count += 1;
      part.met += ms <= slo_ms ? 1 : 0;
    }
    for (size_t s = 0; s < slices_; ++s) parts_[first + s].unserved = block.unserved / slices;
  }

  Statistics evaluate(const std::vector<uint32_t>& weights) const {
    Statistics out;
    out.fill(std::nan(""));
    double count = 0, sum = 0, squares = 0, met = 0, unserved = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      count += weights[p] * parts_[p].count;
      sum += weights[p] * parts_[p].sum;
      squares += weights[p] * parts_[p].squares;
      met += weights[p] * parts_[p].met;
      unserved += weights[p] * parts_[p].unserved;
    }
    // Of a closed loop as many as fit into the time of all: whole iterations do not end with
    // slices.
    out[kCount] = closed_ && sum > 0 ? count * whole_ms_ / sum : count;
    if (count + unserved > 0) out[kMet] = met / (count + unserved);
    if (count == 0) return out;
    const double mean = sum / count;
    const double variance = std::max(0.0, squares / count - mean * mean);
    out[kMeanMs] = mean;
    out[kCv] = mean > 0 ? std::sqrt(variance) / mean : 0;
    constexpr std::pair<Statistic, double> kQuantiles[] = {
        {kP50Ms, 0.5}, {kP90Ms, 0.9}, {kP95Ms, 0.95}, {kP99Ms, 0.99}};
    double passed = 0;
    const auto* next = std::begin(kQuantiles);
    for (const auto& [us, slice] : sorted_) {
      passed += weights[slice];
      while (next != std::end(kQuantiles) &&
             passed > std::min(count - 1, std::floor(next->second * count))) {
        out[next++->first] = us / kUsPerMs;
      }
      if (next == std::end(kQuantiles)) break;
    }
    return out;
  }

  const size_t slices_, blocks_;
  const bool closed_;
  double whole_ms_ = 0;
  std::vector<Part> parts_;                            // by block and slice
  std::vector<std::pair<uint32_t, uint32_t>> sorted_;  // µs, part
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

Figure of_blocks(Figure figure, size_t slices) {
  if (figure.n < kForInterval) {
    figure.lo = 0;
    figure.hi = HUGE_VAL;
  }
  figure.n *= slices;
  return figure;
}

double quantile(const std::vector<uint32_t>& sorted, double q) {
  const auto at = static_cast<size_t>(q * static_cast<double>(sorted.size()));
  return sorted[std::min(sorted.size() - 1, at)];
}

size_t slices_in(double block_s) {
  return static_cast<size_t>(std::max(1.0, std::floor(block_s + 1e-6)));
}

Pooled pool(const std::vector<const Samples*>& blocks, double slo_ms, const Cut& cut) {
  const Pool pool(blocks, slo_ms, cut);
  Pooled out;
  out.samples = pool.size();
  if (out.samples == 0) return out;
  constexpr size_t kFigures = 7;
  Figure* const figures[kFigures] = {&out.mean_ms, &out.p50_ms, &out.p90_ms,        &out.p95_ms,
                                     &out.p99_ms,  &out.cv,     &out.slo_attainment};
  const Statistics values = pool.all();
  std::mt19937_64 random(1);
  std::vector<double> draws[kFigures], each[kFigures];
  for (size_t round = 0; round < kRounds; ++round) {
    const Statistics drawn = pool.resample(random);
    for (size_t i = 0; i < kFigures; ++i) draws[i].push_back(drawn[i]);
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Statistics own = pool.of_block(b);
    for (size_t i = 0; own[kCount] > 0 && i < kFigures; ++i) each[i].push_back(own[i]);
  }
  for (size_t i = 0; i < kFigures; ++i) {
    *figures[i] = {values[i], 0, 0, pool.filled(), interquartile(each[i])};
    set_interval(*figures[i], draws[i], pool.filled());
  }
  out.slo_attainment = share(out.slo_attainment);
  return out;
}

Drawn draw(const Samples& block, double slo_ms, const Cut& cut, uint64_t seed) {
  const Pool pool({&block}, slo_ms, cut);
  Drawn out{{pool.all()}, pool.filled()};
  std::mt19937_64 random(seed);
  for (size_t round = 0; round < kRounds; ++round) out.of.push_back(pool.resample(random));
  return out;
}

std::vector<double> Repeated::values() const {
  std::vector<double> out;
  for (const std::vector<double>& one : each) out.push_back(one.front());
  return out;
}

Figure median(const Repeated& repeated) {
  const size_t count = repeated.each.size();
  std::vector<double> copy = repeated.values(), draws;
  Figure figure{middle(copy), 0, 0, repeated.n, interquartile(copy)};
  std::mt19937_64 random(1);
  for (size_t round = 1; round <= kRounds; ++round) {
    for (double& value : copy) value = repeated.each[random() % count][round];
    const bool whole =
        std::none_of(copy.begin(), copy.end(), [](double v) { return std::isnan(v); });
    draws.push_back(whole ? middle(copy) : std::nan(""));
  }
  set_interval(figure, draws, repeated.n);
  return figure;
}

}  // namespace heddle::bench
