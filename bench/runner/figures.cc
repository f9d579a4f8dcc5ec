#include "bench/runner/figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace heddle::bench {
namespace {

double mean_us(const Samples& samples) {
  return std::accumulate(samples.us.begin(), samples.us.end(), 0.0) /
         static_cast<double>(samples.us.size());
}

double quantile_of(std::vector<uint32_t> us, double q) {
  std::sort(us.begin(), us.end());
  return us.empty() ? 0 : quantile(us, q);
}

double p50_us(const Samples& samples) { return quantile_of(samples.us, 0.5); }
double p95_us(const Samples& samples) { return quantile_of(samples.us, 0.95); }
double p99_us(const Samples& samples) { return quantile_of(samples.us, 0.99); }
double tbt_p99_us(const Samples& samples) { return quantile_of(samples.tbt_us, 0.99); }
double ttft_p90_us(const Samples& samples) { return quantile_of(samples.ttft_us, 0.9); }
double ttft_p99_us(const Samples& samples) { return quantile_of(samples.ttft_us, 0.99); }

// A job that began nothing in a block has no time, but a rate: starving is not hidden.
double rate(const Samples& samples) {
  return samples.us.empty() ? 0 : static_cast<double>(samples.us.size()) / samples.span_s;
}

using Value = double (*)(const Samples&);

// What the comparisons are made of, and of which role's jobs.
struct Metric {
  const char* name;
  Value value;
  std::vector<uint32_t> Samples::*of = nullptr;  // what a quantile is of ...
  double tail = 0;                               // ... and the share of that above it
};
constexpr Metric kMean{"mean", mean_us}, kP50{"p50", p50_us},
    kP99{"p99", p99_us, &Samples::us, 0.01}, kRate{"per_s", rate},
    kTbt{"tbt_p99", tbt_p99_us, &Samples::tbt_us, 0.01},
    kTtft90{"ttft_p90", ttft_p90_us, &Samples::ttft_us, 0.1},
    kTtft99{"ttft_p99", ttft_p99_us, &Samples::ttft_us, 0.01};
constexpr Metric kMetrics[] = {kMean, kP50, kP99, kRate, kTbt, kTtft90, kTtft99};

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
  static constexpr const char* kTimeslice = "timeslice";
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
    if (any_unserved) out["unserved"] = to_json(mean(unserved));
    if (row.alone) return out;
    const std::string alone = alone_name(job.name, row.mps);
    for (const Metric& m : kMetrics) {
      const std::string key = std::string(m.name) + "_over_alone";
      const std::vector<double> each = paired(row.name, alone, job.name, m.value);
      if (m.tail > 0 && scenario_.p99_requests > 0 && !each.empty()) {
        const Json figure = pooled(row.name, alone, job.name, m, each);
        if (!figure.is_null()) out[key] = figure;
      } else {
        put(out, key, each);
      }
    }
    if (row.name != kTimeslice && job.role == scenario::Role::kLatency) {
      put(out, "mean_over_timeslice", paired(row.name, kTimeslice, job.name, mean_us));
    }
    const Row* self = alone_itself(row, job);
    for (const Metric& m : {kMean, kP99}) {
      if (self == nullptr) break;
      put(out, std::string(m.name) + "_over_self", paired(row.name, self->name, job.name, m.value));
    }
    if ((job.slowdown_max > 0 || job.slowdown_p99_max > 0) && row.jobs.size() > 1) {
      const auto slower = [&](const Metric& m) {
        return paired(row.name, self ? self->name : alone, job.name, m.value);
      };
      put_promise(out, job, slower(kMean), slower(kP99), all);
    }
    return out;
  }

  // A repetition in which the job ran nothing broke its promise. `means` and `tails` have a value
  // each for all others.
  static void put_promise(Json& out, const scenario::Job& job, const std::vector<double>& means,
                          const std::vector<double>& tails,
                          const std::vector<const Samples*>& blocks) {
    std::vector<double> kept;
    const auto within = [](double slowdown, double most) { return most == 0 || slowdown <= most; };
    for (size_t i = 0; i < std::min(means.size(), tails.size()); ++i) {
      kept.push_back(within(means[i], job.slowdown_max) && within(tails[i], job.slowdown_p99_max));
    }
    for (const Samples* block : blocks) {
      if (block->us.empty()) kept.push_back(0);
    }
    if (!kept.empty()) out["promise_kept"] = to_json(share(mean(kept)));
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
  static void put_cost(Json& out, const std::vector<const Samples*>& blocks) {
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
    const auto above_one = [](const std::vector<double>& ratios) {  // bounds end at 0, costs do not
      Figure figure = median(ratios);
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
    const Pooled p = pool(all, 0);
    if (p.samples == 0) return;
    out[key] = {{"mean", to_json(p.mean_ms)},
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
              const Metric& m, const std::vector<double>& each) const {
    Samples mine, theirs;
    for (const auto& [repetition, block] : blocks_.at(row)) {
      const Samples* a = samples(row, repetition, job);
      const Samples* b = samples(over, repetition, job);
      if (a == nullptr || b == nullptr) continue;
      const auto add = [&](const Samples* from, Samples& to) {
        (to.*m.of).insert((to.*m.of).end(), (from->*m.of).begin(), (from->*m.of).end());
      };
      add(a, mine);
      add(b, theirs);
    }
    if (m.value(theirs) <= 0) return nullptr;
    Figure figure = median(each);
    figure.n = std::min((mine.*m.of).size(), (theirs.*m.of).size());
    figure.value = m.value(mine) / m.value(theirs);
    figure.lo = std::min(figure.lo, figure.value);
    figure.hi = std::max(figure.hi, figure.value);
    return enough(figure.n, m, figure);
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
    if (!faults.empty()) out["faults"] = to_json(mean(faults));
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
    std::vector<double> stp, antt, makespan, throughput, worst_p95;
    for (const auto& [repetition, block] : blocks_.at(row.name)) {
      double progress = 0, slowdown = 0, longest = 0, rates = 0, p95 = 0;
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
        rates += rate(*shared) / rate(*alone);
        p95 = std::max(p95, p95_us(*shared) / p95_us(*alone));
      }
      if (!whole) continue;
      stp.push_back(progress);
      antt.push_back(slowdown / static_cast<double>(row.jobs.size()));
      makespan.push_back(longest * scenario_.block_s);
      throughput.push_back(rates);
      worst_p95.push_back(p95);
    }
    put(out, "stp", stp);
    put(out, "antt", antt);
    put(out, "makespan_s", makespan);
    put(out, "throughput_over_alone", throughput);
    put(out, "worst_p95_over_alone", worst_p95);
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
    if (!samples.ttft_us.empty()) jobs[name]["ttft_us"] = samples.ttft_us;
    if (!samples.bypassed_us.empty()) jobs[name]["bypassed_us"] = samples.bypassed_us;
  }
  Json out = {{"rep", block.repetition}, {"order", block.order}, {"row", block.row}};
  out["jobs"] = jobs;
  if (block.daemon_cpu >= 0) out["daemon_cpu"] = rounded(block.daemon_cpu);
  if (!block.counters.empty()) out["counters"] = block.counters;
  if (block.counted_s > 0) out["counted_s"] = rounded(block.counted_s);
  for (const auto& [job, cores] : block.shim_cpu) out["shim_cpu"][job] = rounded(cores);
  if (block.energy_j >= 0) out["energy_j"] = rounded(block.energy_j);
  if (block.added_us_max > 0) out["added_us_max"] = rounded(block.added_us_max);
  if (block.exceeded_us_max > 0) {
    out["exceeded_us_max"] = rounded(block.exceeded_us_max);
    out["exceeded_by"] = block.exceeded_by;
  }
  if (!block.said.is_null()) out["said"] = block.said;
  return out;
}

Block block_from(const Json& json) {
  Block block{json.at("rep"), json.at("order"), json.at("row"), {}, -1, Json::object()};
  for (const auto& [name, one] : json.at("jobs").items()) {
    block.jobs[name] = {one.at("us").get<std::vector<uint32_t>>(),
                        one.at("span_s"),
                        one.value("unserved", 0U),
                        one.value("tbt_us", std::vector<uint32_t>()),
                        one.value("bypassed_us", std::vector<uint32_t>()),
                        one.value("ttft_us", std::vector<uint32_t>())};
  }
  block.daemon_cpu = json.value("daemon_cpu", -1.0);
  block.counters = json.value("counters", Json::object());
  block.counted_s = json.value("counted_s", 0.0);
  block.shim_cpu = json.value("shim_cpu", block.shim_cpu);
  block.energy_j = json.value("energy_j", -1.0);
  block.added_us_max = json.value("added_us_max", 0.0);
  block.exceeded_us_max = json.value("exceeded_us_max", 0.0);
  block.exceeded_by = json.value("exceeded_by", Json());
  block.said = json.value("said", Json());
  return block;
}

Json summarize(const scenario::Scenario& scenario, const std::vector<Row>& rows,
               const std::vector<Block>& blocks) {
  return Summary(scenario, rows, blocks).make();
}

std::vector<double> paired(const scenario::Scenario& scenario, const std::vector<Row>& rows,
                           const std::vector<Block>& blocks, const Paired& wanted) {
  for (const Metric& m : kMetrics) {
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
  return job.contains("traced") ? job["traced"].get<double>()
                                : job["untraced"].at("value").get<double>();
}

}  // namespace heddle::bench
