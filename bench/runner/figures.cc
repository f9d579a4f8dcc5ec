#include "bench/runner/figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <set>

namespace heddle::bench {
namespace {

constexpr int kRounds = 1000;  // of the bootstrap
constexpr double kUsPerMs = 1e3;

double rounded(double value) { return std::isfinite(value) ? std::round(value * 1e4) / 1e4 : 0; }

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

Figure share(Figure figure) {
  figure.hi = std::min(1.0, figure.hi);
  return figure;
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

  // mean, p50, p95, p99, cv, slo by blocks' weights; nothing if the resample has no sample.
  std::optional<std::array<double, 6>> evaluate(const std::vector<uint32_t>& weights) const {
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
    std::array<double, 6> out = {
        mean, 0, 0, 0, mean > 0 ? std::sqrt(variance) / mean : 0, met / (count + unserved)};
    constexpr double kQuantiles[] = {0.5, 0.95, 0.99};
    double passed = 0;
    size_t next = 0;
    for (const auto& [us, block] : sorted_) {
      passed += weights[block];
      while (next < 3 && passed > std::min(count - 1, std::floor(kQuantiles[next] * count))) {
        out[++next] = us / kUsPerMs;
      }
      if (next == 3) break;
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

double mean_us(const Samples& samples) {
  return std::accumulate(samples.us.begin(), samples.us.end(), 0.0) /
         static_cast<double>(samples.us.size());
}

double p99_of(std::vector<uint32_t> us) {
  std::sort(us.begin(), us.end());
  return us.empty() ? 0 : quantile(us, 0.99);
}

double p99_us(const Samples& samples) { return p99_of(samples.us); }
double tbt_p99_us(const Samples& samples) { return p99_of(samples.tbt_us); }

// A job that began nothing in a block has no time, but a rate: starving is not hidden.
double rate(const Samples& samples) {
  return samples.us.empty() ? 0 : static_cast<double>(samples.us.size()) / samples.span_s;
}

using Value = double (*)(const Samples&);

// What the comparisons are made of, and of which role's jobs.
struct Metric {
  const char* name;
  Value value;
};
constexpr Metric kMean{"mean", mean_us}, kP99{"p99", p99_us}, kRate{"per_s", rate},
    kTbt{"tbt_p99", tbt_p99_us};

class Summary {
 public:
  Summary(const scenario::Scenario& scenario, const std::vector<Row>& rows,
          const std::vector<Block>& blocks)
      : scenario_(scenario), rows_(rows) {
    for (const Block& block : blocks) blocks_[block.row][block.repetition] = &block;
  }

  Json make() const {
    Json figures = Json::object(), ratios = Json::array();
    for (const Row& row : rows_) {
      if (blocks_.count(row.name) == 0) continue;
      figures[row.name] = row_figures(row);
      compare(row, ratios);
    }
    return {{"figures", figures}, {"ratios", ratios}};
  }

  std::vector<double> paired(const std::string& row, const std::string& over,
                             const std::string& job, Value value) const {
    std::vector<double> out;
    if (blocks_.count(row) == 0) return out;
    for (const auto& [repetition, block] : blocks_.at(row)) {
      const Samples* a = samples(row, repetition, job, value != rate);
      const Samples* b = samples(over, repetition, job);
      if (a == nullptr || b == nullptr || value(*b) <= 0) continue;
      if (value(*a) <= 0 && value != rate) continue;
      out.push_back(value(*a) / value(*b));
    }
    return out;
  }

 private:
  using ByRepetition = std::map<uint32_t, const Block*>;

  // A job's samples in a block, if it ran in it; with `some`, if there are any.
  const Samples* samples(const std::string& row, uint32_t repetition, const std::string& job,
                         bool some = true) const {
    const auto found = blocks_.find(row);
    if (found == blocks_.end()) return nullptr;
    const auto block = found->second.find(repetition);
    if (block == found->second.end()) return nullptr;
    const auto one = block->second->jobs.find(job);
    if (one == block->second->jobs.end()) return nullptr;
    if (one->second.us.empty()) return some ? nullptr : &one->second;
    return one->second.span_s > 0 ? &one->second : nullptr;
  }

  static void put(Json& out, const std::string& key, const std::vector<double>& values) {
    if (!values.empty()) out[key] = to_json(median(values));
  }

  Json job_figures(const Row& row, const scenario::Job& job) const {
    std::vector<const Samples*> all;
    std::vector<double> rates, shim_cpu, unserved;
    for (const auto& [repetition, block] : blocks_.at(row.name)) {
      const auto found = block->jobs.find(job.name);
      if (found == block->jobs.end()) continue;
      const Samples& one = found->second;
      all.push_back(&one);
      unserved.push_back(one.unserved);
      if (one.us.empty() || one.span_s > 0) rates.push_back(rate(one));
      const auto cpu = block->shim_cpu.find(job.name);
      if (cpu != block->shim_cpu.end()) shim_cpu.push_back(cpu->second);
    }
    const bool any_unserved = std::accumulate(unserved.begin(), unserved.end(), 0.0) > 0;
    const Pooled p = pool(all, job.slo_ms.value_or(0));
    Json out = {{"samples", p.samples}};
    if (p.samples > 0) {
      out["jct_ms"] = {{"mean", to_json(p.mean_ms)},
                       {"p50", to_json(p.p50_ms)},
                       {"p95", to_json(p.p95_ms)},
                       {"p99", to_json(p.p99_ms)}};
      out["cv"] = to_json(p.cv);
    }
    if (job.slo_ms && (p.samples > 0 || any_unserved)) {
      out["slo_attainment"] = to_json(p.slo_attainment);  // 0 if nothing was served
    }
    put_tokens(out, all);
    put(out, "per_s", rates);
    put(out, "shim_cpu", shim_cpu);
    if (any_unserved) out["unserved"] = to_json(mean(unserved));
    if (row.alone) return out;
    const std::string alone = alone_name(job.name, row.mps);
    for (const Metric& m : {kMean, kP99, kRate, kTbt}) {
      put(out, std::string(m.name) + "_over_alone", paired(row.name, alone, job.name, m.value));
    }
    return out;
  }

  static void put_tokens(Json& out, const std::vector<const Samples*>& blocks) {
    std::vector<Samples> tokens;
    for (const Samples* block : blocks) tokens.push_back({block->tbt_us});
    std::vector<const Samples*> all;
    for (const Samples& block : tokens) all.push_back(&block);
    const Pooled p = pool(all, 0);
    if (p.samples == 0) return;
    out["tbt_ms"] = {
        {"mean", to_json(p.mean_ms)}, {"p50", to_json(p.p50_ms)}, {"p99", to_json(p.p99_ms)}};
  }

  Json row_figures(const Row& row) const {
    const ByRepetition& mine = blocks_.at(row.name);
    Json out = {{"repetitions", mine.size()}, {"jobs", Json::object()}};
    for (const Variant& v : row.jobs) {
      const scenario::Job& job = scenario_.jobs[v.job];
      out["jobs"][job.name] = job_figures(row, job);
    }
    if (!row.alone) system_figures(row, out);
    energy_figures(row, out);
    std::vector<double> cpu, decisions, faults;
    std::map<std::string, double> counters;
    for (const auto& [repetition, block] : mine) {
      if (block->daemon_cpu >= 0) cpu.push_back(block->daemon_cpu);
      for (const auto& [key, value] : block->counters.items()) counters[key] += value.get<double>();
      if (block->counted_s <= 0) continue;
      decisions.push_back(block->counters.value("granted", 0.0) / block->counted_s);
      faults.push_back(block->counters.value("policy_faults", 0.0));
    }
    put(out, "daemon_cpu", cpu);
    put(out, "decisions_per_s", decisions);
    if (!faults.empty()) out["faults"] = to_json(mean(faults));
    if (!counters.empty()) out["counters"] = counters;
    return out;
  }

  // Of a block; negative if unknown.
  double energy_j(const std::string& row, uint32_t repetition) const {
    const auto found = blocks_.find(row);
    if (found == blocks_.end() || found->second.count(repetition) == 0) return -1;
    return found->second.at(repetition)->energy_j;
  }

  void energy_figures(const Row& row, Json& out) const {
    std::vector<double> watts, each_j, over_alone;
    for (const auto& [repetition, block] : blocks_.at(row.name)) {
      if (block->energy_j < 0) continue;
      const double power_w = block->energy_j / scenario_.block_s;
      watts.push_back(power_w);
      double per_s = 0, alone_j = 0;
      bool whole = true;
      for (const Variant& v : row.jobs) {
        const std::string& job = scenario_.jobs[v.job].name;
        const std::string bare = alone_name(job, row.mps);
        const Samples* here = samples(row.name, repetition, job);
        const Samples* alone = samples(bare, repetition, job);
        const double bare_j = energy_j(bare, repetition);
        per_s += here != nullptr ? rate(*here) : 0;
        whole = whole && here != nullptr && alone != nullptr && bare_j > 0;
        if (whole) alone_j += rate(*here) / rate(*alone) * bare_j;
      }
      if (per_s > 0) each_j.push_back(power_w / per_s);
      if (whole && !row.alone) over_alone.push_back(block->energy_j / alone_j);
    }
    put(out, "power_w", watts);
    put(out, "energy_per_iteration_j", each_j);
    put(out, "energy_over_alone", over_alone);
  }

  void system_figures(const Row& row, Json& out) const {
    std::vector<double> stp, antt, makespan;
    for (const auto& [repetition, block] : blocks_.at(row.name)) {
      double progress = 0, slowdown = 0, longest = 0;
      bool whole = true;
      for (const Variant& v : row.jobs) {
        const std::string& job = scenario_.jobs[v.job].name;
        const Samples* shared = samples(row.name, repetition, job);
        const Samples* alone = samples(alone_name(job, row.mps), repetition, job);
        whole = whole && shared != nullptr && alone != nullptr;
        if (!whole) break;
        progress += mean_us(*alone) / mean_us(*shared);
        slowdown += mean_us(*shared) / mean_us(*alone);
        longest = std::max(longest, rate(*alone) / rate(*shared));
      }
      if (!whole) continue;
      stp.push_back(progress);
      antt.push_back(slowdown / static_cast<double>(row.jobs.size()));
      makespan.push_back(longest * scenario_.block_s);
    }
    put(out, "stp", stp);
    put(out, "antt", antt);
    put(out, "makespan_s", makespan);
  }

  void compare(const Row& row, Json& ratios) const {
    const std::string over = rival(row, rows_);
    if (over.empty()) return;
    for (const Variant& v : row.jobs) {
      const scenario::Job& job = scenario_.jobs[v.job];
      const bool latency = job.role == scenario::Role::kLatency;
      for (const Metric& m : latency ? std::vector{kMean, kP99, kTbt} : std::vector{kRate, kTbt}) {
        const std::vector<double> each = paired(row.name, over, job.name, m.value);
        if (each.empty()) continue;
        Json ratio = {{"of", row.name}, {"over", over}, {"job", job.name}, {"metric", m.name}};
        ratio.update(to_json(median(each)));
        ratios.push_back(ratio);
      }
    }
  }

  const scenario::Scenario& scenario_;
  const std::vector<Row>& rows_;
  std::map<std::string, ByRepetition> blocks_;
};

}  // namespace

Json to_json(const Block& block) {
  Json jobs = Json::object();
  for (const auto& [name, samples] : block.jobs) {
    jobs[name] = {{"us", samples.us}, {"span_s", samples.span_s}};
    if (samples.unserved > 0) jobs[name]["unserved"] = samples.unserved;
    if (!samples.tbt_us.empty()) jobs[name]["tbt_us"] = samples.tbt_us;
  }
  Json out = {{"rep", block.repetition}, {"order", block.order}, {"row", block.row}};
  out["jobs"] = jobs;
  if (block.daemon_cpu >= 0) out["daemon_cpu"] = rounded(block.daemon_cpu);
  if (!block.counters.empty()) out["counters"] = block.counters;
  if (block.counted_s > 0) out["counted_s"] = rounded(block.counted_s);
  for (const auto& [job, cores] : block.shim_cpu) out["shim_cpu"][job] = rounded(cores);
  if (block.energy_j >= 0) out["energy_j"] = rounded(block.energy_j);
  return out;
}

Block block_from(const Json& json) {
  Block block{json.at("rep"), json.at("order"), json.at("row"), {}, -1, Json::object()};
  for (const auto& [name, one] : json.at("jobs").items()) {
    block.jobs[name] = {one.at("us").get<std::vector<uint32_t>>(), one.at("span_s"),
                        one.value("unserved", 0U), one.value("tbt_us", std::vector<uint32_t>())};
  }
  block.daemon_cpu = json.value("daemon_cpu", -1.0);
  block.counters = json.value("counters", Json::object());
  block.counted_s = json.value("counted_s", 0.0);
  block.shim_cpu = json.value("shim_cpu", block.shim_cpu);
  block.energy_j = json.value("energy_j", -1.0);
  return block;
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
  Figure* const figures[] = {&out.mean_ms, &out.p50_ms, &out.p95_ms,
                             &out.p99_ms,  &out.cv,     &out.slo_attainment};
  std::vector<uint32_t> weights(blocks.size(), 1);
  const auto values = *all.evaluate(weights);
  std::mt19937_64 random(1);
  std::vector<double> draws[6];
  for (int round = 0; round < kRounds; ++round) {
    std::fill(weights.begin(), weights.end(), 0);
    for (size_t i = 0; i < blocks.size(); ++i) ++weights[random() % blocks.size()];
    const auto drawn = all.evaluate(weights);
    for (size_t i = 0; drawn && i < 6; ++i) draws[i].push_back((*drawn)[i]);
  }
  std::vector<double> each[6];
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::fill(weights.begin(), weights.end(), 0);
    weights[b] = 1;
    const auto own = all.evaluate(weights);
    for (size_t i = 0; own && i < 6; ++i) each[i].push_back((*own)[i]);
  }
  for (size_t i = 0; i < 6; ++i) {
    *figures[i] = {values[i], 0, 0, out.samples, interquartile(each[i])};
    set_interval(*figures[i], draws[i], blocks.size());
  }
  out.slo_attainment = share(out.slo_attainment);
  return out;
}

Json summarize(const scenario::Scenario& scenario, const std::vector<Row>& rows,
               const std::vector<Block>& blocks) {
  return Summary(scenario, rows, blocks).make();
}

std::vector<double> paired(const scenario::Scenario& scenario, const std::vector<Row>& rows,
                           const std::vector<Block>& blocks, const Paired& wanted) {
  for (const Metric& m : {kMean, kP99, kRate, kTbt}) {
    if (m.name != wanted.metric) continue;
    return Summary(scenario, rows, blocks).paired(wanted.row, wanted.over, wanted.job, m.value);
  }
  return {};
}

Json idle_fractions(const scenario::Scenario& scenario, const std::vector<Block>& blocks,
                    const Json& profiles) {
  Json out = Json::object();
  for (const scenario::Job& job : scenario.jobs) {
    const Json p = profiles.value(job.name, Json::object());
    const double kernel_s = p.value("kernel_s", 0.0), wall_s = p.value("wall_s", 0.0);
    const double iterations = p.value("iterations", 0.0);
    if (wall_s <= 0 || iterations <= 0) continue;
    // The profiler's run is a closed loop, whatever the arrivals.
    const bool closed = job.arrivals.kind == scenario::ArrivalKind::kClosed;
    if (closed) out[job.name]["traced"] = rounded(std::max(0.0, 1 - kernel_s / wall_s));
    for (const bool mps : {false, true}) {
      std::vector<double> idle;
      for (const Block& block : blocks) {
        if (block.row != alone_name(job.name, mps)) continue;
        const Samples& samples = block.jobs.at(job.name);
        if (samples.span_s <= 0) continue;
        idle.push_back(std::max(0.0, 1 - kernel_s / iterations * rate(samples)));
      }
      if (idle.empty()) continue;
      out[job.name]["untraced"] = to_json(share(median(idle)));
      break;
    }
  }
  return out;
}

double idle_of(const Json& job) {
  return job.contains("traced") ? job["traced"].get<double>() : figure_from(job["untraced"]).value;
}

}  // namespace heddle::bench
