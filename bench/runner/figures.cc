#include "bench/runner/figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace heddle::bench {
namespace {

// What the comparisons are made of. Of a rate no time is told.
struct Metric {
  const char* name;
  Statistic statistic;
  std::vector<uint32_t> Samples::*of = &Samples::us;
  double tail = 0;  // of a quantile: the share above it

  bool is_rate() const { return statistic == kCount; }
};
constexpr Metric kMean{"mean", kMeanMs}, kP50{"p50", kP50Ms}, kP95{"p95", kP95Ms},
    kP99{"p99", kP99Ms, &Samples::us, 0.01}, kRate{"per_s", kCount},
    kTbt{"tbt_p99", kP99Ms, &Samples::tbt_us, 0.01},
    kTtft90{"ttft_p90", kP90Ms, &Samples::ttft_us, 0.1},
    kTtft99{"ttft_p99", kP99Ms, &Samples::ttft_us, 0.01};
constexpr Metric kMetrics[] = {kMean, kP50, kP99, kRate, kTbt, kTtft90, kTtft99};

class Summary {
 public:
  Summary(const scenario::Scenario& scenario, const std::vector<Row>& rows,
          const std::vector<Block>& blocks)
      : scenario_(scenario), rows_(rows), slices_(slices_in(scenario.block_s)) {
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

  Repeated paired(const std::string& row, const std::string& over, const std::string& job,
                  const Metric& m) const {
    Repeated out;
    if (blocks_.count(row) == 0) return out;
    for (const auto& [repetition, block] : blocks_.at(row)) {
      const Samples* a = samples(row, repetition, job, !m.is_rate());
      const Samples* b = samples(over, repetition, job);
      if (a == nullptr || b == nullptr) continue;
      const Of mine{block, a, job}, theirs{blocks_.at(over).at(repetition), b, job};
      if (value(theirs, m, 0) <= 0 || (value(mine, m, 0) <= 0 && !m.is_rate())) continue;
      out.n += std::min(slices_of(mine, m), slices_of(theirs, m));
      auto& each = out.each.emplace_back();
      for (size_t round = 0; round <= kRounds; ++round) {
        each.push_back(value(mine, m, round) / value(theirs, m, round));
      }
    }
    return out;
  }

 private:
  static constexpr const char* kTimeslice = "timeslice";
  using ByRepetition = std::map<uint32_t, const Block*>;

  // A job's samples in a block.
  struct Of {
    const Block* block;
    const Samples* samples;
    std::string job;
  };

  Cut cut(const std::string& job, std::vector<uint32_t> Samples::*of) const {
    const auto is_it = [&](const scenario::Job& one) { return one.name == job; };
    const auto found = std::find_if(scenario_.jobs.begin(), scenario_.jobs.end(), is_it);
    return {slices_, of == &Samples::us && found != scenario_.jobs.end() &&
                         found->arrivals.kind == scenario::ArrivalKind::kClosed};
  }

  // All of a repetition is drawn by one seed: jobs that met in a slice stay together, and so do
  // slices of the same requests, which come alike in every row.
  const Drawn& drawn(const Of& of, const Metric& m) const {
    const bool tbt = m.of == &Samples::tbt_us, ttft = m.of == &Samples::ttft_us;
    auto [found, fresh] = drawn_.try_emplace({of.samples, tbt ? 1 : ttft ? 2 : 0});
    if (!fresh) return found->second;
    const Samples picked{of.samples->*m.of, of.samples->span_s};
    return found->second = draw(picked, 0, cut(of.job, m.of), of.block->repetition);
  }

  // 0 where there is no such sample; in a draw that may be no number.
  double value(const Of& of, const Metric& m, size_t round) const {
    const double found = drawn(of, m).of[round][m.statistic];
    if (m.is_rate()) return found > 0 ? found / of.samples->span_s : 0;
    return round == 0 && std::isnan(found) ? 0 : found;
  }

  // A rate is of all of its block.
  size_t slices_of(const Of& of, const Metric& m) const {
    return m.is_rate() ? slices_ : drawn(of, m).n;
  }

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

  static void put(Json& out, const std::string& key, const Repeated& repeated) {
    if (!repeated.each.empty()) out[key] = to_json(median(repeated));
  }

  // What a block has one value of.
  void put(Json& out, const std::string& key, const std::vector<double>& values) const {
    if (!values.empty()) out[key] = to_json(of_blocks(median(values)));
  }

  Figure of_blocks(Figure figure) const { return bench::of_blocks(figure, slices_); }

  Json job_figures(const Row& row, const scenario::Job& job) const {
    std::vector<const Samples*> all;
    std::vector<double> shim_cpu, unserved;
    Repeated rates;
    for (const auto& [repetition, block] : blocks_.at(row.name)) {
      const auto found = block->jobs.find(job.name);
      if (found == block->jobs.end()) continue;
      const Samples& one = found->second;
      all.push_back(&one);
      unserved.push_back(one.unserved);
      if (one.us.empty() || one.span_s > 0) {
        auto& each = rates.each.emplace_back();
        for (size_t round = 0; round <= kRounds; ++round) {
          each.push_back(value({block, &one, job.name}, kRate, round));
        }
        rates.n += slices_;
      }
      const auto cpu = block->shim_cpu.find(job.name);
      if (cpu != block->shim_cpu.end()) shim_cpu.push_back(cpu->second);
    }
    const bool any_unserved = std::accumulate(unserved.begin(), unserved.end(), 0.0) > 0;
    const Pooled p = pool(all, job.slo_ms.value_or(0), cut(job.name, &Samples::us));
    Json out = {{"samples", p.samples}};
    if (p.samples > 0) {
      out["jct_ms"] = {{"mean", to_json(p.mean_ms)},
                       {"p50", to_json(p.p50_ms)},
                       {"p95", to_json(p.p95_ms)},
                       {"p99", enough(p.samples, kP99, p.p99_ms)}};
      out["cv"] = to_json(p.cv);
    }
    if (job.slo_ms && (p.samples > 0 || any_unserved)) {
      out["slo_attainment"] = to_json(p.slo_attainment);  // 0 if nothing was served
    }
    put_tokens(out, all, "tbt_ms", kTbt);
    put_tokens(out, all, "ttft_ms", kTtft99);
    put_cost(out, all);
    put(out, "per_s", rates);
    put(out, "shim_cpu", shim_cpu);
    if (any_unserved) out["unserved"] = to_json(of_blocks(mean(unserved)));
    if (row.alone) {
      const bool served = row.mps && job.role == scenario::Role::kLatency;
      const std::string bare = alone_name(job.name, false);
      if (served) put(out, "mean_over_timesliced", paired(row.name, bare, job.name, kMean));
      return out;
    }
    const std::string alone = alone_name(job.name, row.mps);
    for (const Metric& m : kMetrics) {
      const std::string key = std::string(m.name) + "_over_alone";
      const Repeated each = paired(row.name, alone, job.name, m);
      if (m.tail > 0 && scenario_.p99_requests > 0 && !each.each.empty()) {
        const Json figure = pooled(row.name, alone, job.name, m, each);
        if (!figure.is_null()) out[key] = figure;
      } else {
        put(out, key, each);
      }
    }
    if (row.name != kTimeslice && job.role == scenario::Role::kLatency) {
      put(out, "mean_over_timeslice", paired(row.name, kTimeslice, job.name, kMean));
    }
    if (job.role == scenario::Role::kLatency) {
      for (const auto& [key, times] : {std::pair("in_1.1_p99", 1.1), {"in_1.25_p99", 1.25}}) {
        put_attained(out, key, row, job, times);
      }
    }
    const Row* self = alone_itself(row, job);
    for (const Metric& m : {kMean, kP99}) {
      if (self == nullptr) break;
      put(out, std::string(m.name) + "_over_self", paired(row.name, self->name, job.name, m));
    }
    if ((job.slowdown_max > 0 || job.slowdown_p99_max > 0) && row.jobs.size() > 1) {
      const auto slower = [&](const Metric& m) {
        return paired(row.name, self ? self->name : alone, job.name, m).values();
      };
      put_promise(out, job, slower(kMean), slower(kP99), all);
    }
    return out;
  }

  // The share of requests, or of the times between tokens, within so many times alone's p99 of the
  // same repetition. What was not served was not in time.
  void put_attained(Json& out, const char* key, const Row& row, const scenario::Job& job,
                    double times) const {
    Repeated found;
    size_t requests = 0, bare = 0;
    const bool tokens = out.contains("tbt_ms");
    const Metric& m = tokens ? kTbt : kP99;
    const std::string alone = alone_name(job.name, row.mps);
    for (const auto& [repetition, block] : blocks_.at(row.name)) {
      const Samples* mine = samples(row.name, repetition, job.name, false);
      const Samples* theirs = samples(alone, repetition, job.name);
      if (mine == nullptr || theirs == nullptr) continue;
      const Of over{blocks_.at(alone).at(repetition), theirs, job.name};
      const Samples picked{mine->*m.of, mine->span_s, tokens ? 0 : mine->unserved};
      const Drawn drawn = draw(picked, times * value(over, m, 0), cut(job.name, m.of), repetition);
      if (std::isnan(drawn.of.front()[kMet])) continue;
      auto& each = found.each.emplace_back();
      for (const auto& one : drawn.of) each.push_back(one[kMet]);
      found.n += picked.us.empty() ? slices_ : std::min(drawn.n, slices_of(over, m));
      requests += picked.us.size() + picked.unserved;
      bare += (theirs->*m.of).size();
    }
    if (found.each.empty()) return;
    out[key] = enough(std::min(requests, bare), m, share(median(found)));
  }

  // A repetition in which the job ran nothing broke its promise. `means` and `tails` have a value
  // each for all others.
  void put_promise(Json& out, const scenario::Job& job, const std::vector<double>& means,
                   const std::vector<double>& tails,
                   const std::vector<const Samples*>& blocks) const {
    std::vector<double> kept;
    const auto within = [](double slowdown, double most) { return most == 0 || slowdown <= most; };
    for (size_t i = 0; i < std::min(means.size(), tails.size()); ++i) {
      kept.push_back(within(means[i], job.slowdown_max) && within(tails[i], job.slowdown_p99_max));
    }
    for (const Samples* block : blocks) {
      if (block->us.empty()) kept.push_back(0);
    }
    if (!kept.empty()) out["promise_kept"] = to_json(share(of_blocks(mean(kept))));
  }

  // The row in which the same process of the job runs alone, if there is one and it is another.
  const Row* alone_itself(const Row& row, const scenario::Job& job) const {
    const auto same = [&](const Variant& v) { return scenario_.jobs[v.job].name == job.name; };
    const auto mine = std::find_if(row.jobs.begin(), row.jobs.end(), same);
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& other) {
      return other.name != row.name && other.jobs.size() == 1 && other.jobs[0] == *mine;
    });
    return found != rows_.end() ? &*found : nullptr;
  }

  // What heddle costs, as a share: `typical` by medians, `mean` by means, which see rare costs too.
  void put_cost(Json& out, const std::vector<const Samples*>& blocks) const {
    const auto sum = [](const std::vector<double>& of) {
      return std::accumulate(of.begin(), of.end(), 0.0);
    };
    const auto middle = [](std::vector<double> of) {
      std::sort(of.begin(), of.end());
      return (of[(of.size() - 1) / 2] + of[of.size() / 2]) / 2;
    };
    std::vector<double> typical, average;
    for (const Samples* block : blocks) {
      if (block->bypassed_us.empty() || block->bypassed_us.size() != block->us.size()) continue;
      const std::vector<double> with(block->us.begin(), block->us.end());
      const std::vector<double> past(block->bypassed_us.begin(), block->bypassed_us.end());
      std::vector<double> more;
      for (size_t i = 0; i < past.size(); ++i) more.push_back(with[i] - past[i]);
      typical.push_back(1 + middle(more) / middle(past));
      average.push_back(1 + sum(more) / sum(past));
    }
    if (typical.empty()) return;
    const auto above_one =
        [&](const std::vector<double>& ratios) {  // bounds end at 0, costs do not
          Figure figure = of_blocks(median(ratios));
          for (double* value : {&figure.value, &figure.lo, &figure.hi}) *value -= 1;
          return to_json(figure);
        };
    out["cost"] = {{"typical", above_one(typical)}, {"mean", above_one(average)}};
  }

  // Of the times between tokens, or to the first one.
  void put_tokens(Json& out, const std::vector<const Samples*>& blocks, const char* key,
                  const Metric& p99) const {
    std::vector<Samples> tokens;
    for (const Samples* block : blocks) tokens.push_back({block->*p99.of});
    std::vector<const Samples*> all;
    for (const Samples& block : tokens) all.push_back(&block);
    const Pooled p = pool(all, 0, {slices_});
    if (p.samples == 0) return;
    out[key] = {{"samples", p.samples},
                {"mean", to_json(p.mean_ms)},
                {"p50", to_json(p.p50_ms)},
                {"p90", enough(p.samples, kTtft90, p.p90_ms)},
                {"p99", enough(p.samples, kP99, p.p99_ms)}};
  }

  // The figure, or how few requests there are for it.
  Json enough(size_t requests, const Metric& m, const Figure& figure) const {
    constexpr double kTail = 0.01;  // what p99_requests is of
    const double least = scenario_.p99_requests * kTail / m.tail;
    if (static_cast<double>(requests) >= least) return to_json(figure);
    return {{"few", requests}};
  }

  // A quantile over another row's: of all repetitions together, for one block has too few requests.
  // Its interval is that of the repetitions' own ratios (`each`). Null if the other row's is zero.
  Json pooled(const std::string& row, const std::string& over, const std::string& job,
              const Metric& m, const Repeated& each) const {
    std::vector<uint32_t> mine, theirs;
    for (const auto& [repetition, block] : blocks_.at(row)) {
      const Samples* a = samples(row, repetition, job);
      const Samples* b = samples(over, repetition, job);
      if (a == nullptr || b == nullptr) continue;
      mine.insert(mine.end(), (a->*m.of).begin(), (a->*m.of).end());
      theirs.insert(theirs.end(), (b->*m.of).begin(), (b->*m.of).end());
    }
    if (mine.empty() || theirs.empty()) return nullptr;
    for (auto* of : {&mine, &theirs}) std::sort(of->begin(), of->end());
    const double alone = quantile(theirs, 1 - m.tail);
    if (alone <= 0) return nullptr;
    Figure figure = median(each);
    figure.value = quantile(mine, 1 - m.tail) / alone;
    figure.lo = std::min(figure.lo, figure.value);
    figure.hi = std::max(figure.hi, figure.value);
    return enough(std::min(mine.size(), theirs.size()), m, figure);
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
    std::vector<double> cpu, decisions, faults, hooks;
    std::map<std::string, double> counters;
    double added_us_max = 0, exceeded_us_max = 0;
    for (const auto& [repetition, block] : mine) {
      added_us_max = std::max(added_us_max, block->added_us_max);
      exceeded_us_max = std::max(exceeded_us_max, block->exceeded_us_max);
      if (block->daemon_cpu >= 0) cpu.push_back(block->daemon_cpu);
      for (const auto& [key, value] : block->counters.items()) counters[key] += value.get<double>();
      if (block->counted_s <= 0) continue;
      decisions.push_back(block->counters.value("granted", 0.0) / block->counted_s);
      faults.push_back(block->counters.value("policy_faults", 0.0));
      if (block->counters.contains("hooks_us")) {
        hooks.push_back(block->counters["hooks_us"].get<double>() / 1e6 / block->counted_s);
      }
    }
    put(out, "daemon_cpu", cpu);
    put(out, "decisions_per_s", decisions);
    put(out, "in_hooks", hooks);
    if (!faults.empty()) out["faults"] = to_json(of_blocks(mean(faults)));
    if (!counters.empty()) out["counters"] = counters;
    if (added_us_max > 0) out["added_us_max"] = rounded(added_us_max);
    if (exceeded_us_max > 0) out["exceeded_us_max"] = rounded(exceeded_us_max);
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
    constexpr const char* kNames[] = {"stp", "antt", "makespan_s", "throughput_over_alone",
                                      "worst_p95_over_alone"};
    Repeated found[std::size(kNames)];
    for (const auto& [repetition, block] : blocks_.at(row.name)) {
      std::vector<std::pair<Of, Of>> jobs;  // shared, alone
      for (const Variant& v : row.jobs) {
        const std::string& job = scenario_.jobs[v.job].name;
        const std::string bare = alone_name(job, row.mps);
        const Samples* shared = samples(row.name, repetition, job);
        const Samples* alone = samples(bare, repetition, job);
        if (shared == nullptr || alone == nullptr) break;
        jobs.push_back({{block, shared, job}, {blocks_.at(bare).at(repetition), alone, job}});
      }
      if (jobs.size() < row.jobs.size()) continue;
      for (Repeated& one : found) {
        one.each.emplace_back();
        one.n += slices_;
      }
      for (size_t round = 0; round <= kRounds; ++round) {
        const auto values = system_values(jobs, round);
        for (size_t i = 0; i < values.size(); ++i) found[i].each.back().push_back(values[i]);
      }
    }
    for (size_t i = 0; i < std::size(kNames); ++i) put(out, kNames[i], found[i]);
  }

  // STP, ANTT, makespan, throughput, worst p95.
  std::array<double, 5> system_values(const std::vector<std::pair<Of, Of>>& jobs,
                                      size_t round) const {
    std::array<double, 5> out{};
    for (const auto& [shared, alone] : jobs) {
      const auto over = [&, &shared = shared, &alone = alone](const Metric& m) {
        return value(shared, m, round) / value(alone, m, round);
      };
      out[0] += 1 / over(kMean);
      out[1] += over(kMean) / static_cast<double>(jobs.size());
      out[2] = std::max(out[2], scenario_.block_s / over(kRate));
      out[3] += over(kRate);
      out[4] = std::max(out[4], over(kP95));
    }
    return out;
  }

  void compare(const Row& row, Json& ratios) const {
    const std::string over = rival(row, rows_);
    if (over.empty()) return;
    for (const Variant& v : row.jobs) {
      const scenario::Job& job = scenario_.jobs[v.job];
      const bool latency = job.role == scenario::Role::kLatency;
      for (const Metric& m : latency ? std::vector{kMean, kP99, kTbt} : std::vector{kRate, kTbt}) {
        const Repeated each = paired(row.name, over, job.name, m);
        if (each.each.empty()) continue;
        Json ratio = {{"of", row.name}, {"over", over}, {"job", job.name}, {"metric", m.name}};
        ratio.update(to_json(median(each)));
        ratios.push_back(ratio);
      }
    }
  }

  const scenario::Scenario& scenario_;
  const std::vector<Row>& rows_;
  const size_t slices_;  // of a block
  std::map<std::string, ByRepetition> blocks_;
  mutable std::map<std::pair<const Samples*, int>, Drawn> drawn_;
};

}  // namespace

double rate(const Samples& samples) {
  return samples.us.empty() ? 0 : static_cast<double>(samples.us.size()) / samples.span_s;
}

Json summarize(const scenario::Scenario& scenario, const std::vector<Row>& rows,
               const std::vector<Block>& blocks) {
  return Summary(scenario, rows, blocks).make();
}

Repeated paired(const scenario::Scenario& scenario, const std::vector<Row>& rows,
                const std::vector<Block>& blocks, const Paired& wanted) {
  for (const Metric& m : kMetrics) {
    if (m.name != wanted.metric) continue;
    return Summary(scenario, rows, blocks).paired(wanted.row, wanted.over, wanted.job, m);
  }
  return {};
}

}  // namespace heddle::bench
