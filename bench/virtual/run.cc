#include "bench/virtual/run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "bench/runner/kept.h"
#include "bench/runner/result.h"
#include "bench/runner/setting.h"
#include "bench/runner/stage.h"
#include "bench/runner/table.h"
#include "bench/virtual/machine.h"
#include "bench/virtual/outcome.h"
#include "bench/virtual/stand_in.h"

namespace heddle::bench {
namespace {

using scenario::Scenario;

constexpr uint64_t kSeeds = 1'000'000;

template <class T>
T must(heddle::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

double seconds_now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// CPU time of this thread: how long the simulation takes, however many threads share the host.
double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Of a result of `run` or `keep`: what it measured, and stand-ins that do as its jobs did.
Scenario twin(VirtualOptions options) {
  const Json measured = figured(read_json(options.scenario), options.scenario);
  if (!measured.contains("scenario")) {
    throw std::runtime_error(options.scenario + ": has no scenario; name a result of `run`");
  }
  options.text = measured.at("scenario");
  Scenario s = load(options);
  do_as_measured(s, measured);
  return s;
}

bool is_result(const std::string& file) {
  return file.ends_with(".json") || file.ends_with(".raw");
}

Scenario read_scenario(const VirtualOptions& options) {
  Scenario s = is_result(options.scenario) ? twin(options) : load(options);
  if (!s.seed) s.seed = std::random_device()() % kSeeds;
  for (const scenario::Job& job : s.jobs) {
    if (!job.sim) {
      throw std::runtime_error(s.file + ":" + std::to_string(job.line) + ": job '" + job.name +
                               "' has no [job.sim]; say what it does, or name its trace");
    }
  }
  return s;
}

// The runner's rows, and the clairvoyant policy on each path.
Plan rows_of(const Scenario& s) {
  Plan all = plan(s), out;
  out.missing = all.missing;
  bool used[2] = {};
  for (Row& row : all.rows) {
    used[row.mps ? 1 : 0] |= !row.alone;
    out.rows.push_back(std::move(row));
  }
  for (const bool mps : {false, true}) {
    const std::string name = std::string(kOracle) + (mps ? "@mps" : "");
    const bool there = std::any_of(out.rows.begin(), out.rows.end(),
                                   [&](const Row& row) { return row.name == name; });
    if (!used[mps ? 1 : 0] || there) continue;
    Row row;
    row.name = name;
    row.mps = mps;
    row.policy = kOracle;
    for (size_t job = 0; job < s.jobs.size(); ++job) {
      row.jobs.push_back(Variant{.job = job, .mps = mps, .managed = true});
    }
    out.rows.push_back(std::move(row));
  }
  return out;
}

void load_inputs(VirtualSetting& setting) {
  const Scenario& s = setting.scenario;
  for (const scenario::Job& job : s.jobs) {
    auto& script = setting.scripts.emplace_back();
    auto& recorded = setting.recorded.emplace_back();
    if (!job.sim->trace.empty()) {
      script = std::make_shared<const TraceScript>(
          must(sim::load_script(scenario::resolve(s, job.sim->trace), job.name)));
    }
    if (job.arrivals.kind != scenario::ArrivalKind::kRecorded) continue;
    recorded = must(scenario::recorded_arrivals(s, job));
  }
}

double metric_of(const Samples& samples, bool latency) {
  if (samples.us.empty()) return 0;
  if (!latency) {
    return samples.span_s > 0 ? static_cast<double>(samples.us.size()) / samples.span_s : 0;
  }
  double sum = 0;
  for (const uint32_t us : samples.us) sum += us;
  return sum / static_cast<double>(samples.us.size());
}

// Rates of the jobs whose load is given, by what each alone serves in a closed loop.
void set_rates(VirtualSetting& setting, const std::vector<Row>& rows, Scenario& s) {
  for (size_t i = 0; i < s.jobs.size(); ++i) {
    scenario::Job& job = s.jobs[i];
    if (job.arrivals.load <= 0) continue;
    const auto alone = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.alone && row.jobs[0].job == i;
    });
    if (alone == rows.end()) continue;  // then no row has the job
    const scenario::Arrivals given = std::exchange(job.arrivals, {});
    const Samples found = run_block(setting, *alone, 0).block.jobs.at(job.name);
    job.arrivals = given;
    if (found.us.empty() || found.span_s <= 0) {
      throw std::runtime_error(s.file + ":" + std::to_string(job.line) + ": job " + job.name +
                               " serves nothing in a block alone; give a longer block_s");
    }
    job.arrivals.per_s = given.load * metric_of(found, false);
  }
}

// All blocks, on several threads; their order does not matter to any of them.
class Pool {
 public:
  Pool(const VirtualSetting& setting, const std::vector<Row>& rows)
      : setting_(setting), rows_(rows) {}

  std::vector<VirtualBlock> run(unsigned threads) {
    out_.resize(rows_.size() * setting_.scenario.repetitions);
    if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> all;
    for (unsigned i = 1; i < threads; ++i) all.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : all) thread.join();
    if (!error_.empty()) throw std::runtime_error(error_);
    return std::move(out_);
  }
  double busy_s() const { return busy_s_; }

 private:
  void work() {
    const double begin = cpu_now();
    for (size_t i = next_++; i < out_.size(); i = next_++) {
      const auto repetition = static_cast<uint32_t>(i / rows_.size());
      try {
        out_[i] = run_block(setting_, rows_[i % rows_.size()], repetition);
        out_[i].block.order = static_cast<uint32_t>(i % rows_.size());
      } catch (const std::runtime_error& error) {
        const std::lock_guard lock(mutex_);
        if (error_.empty()) error_ = error.what();
        next_ = out_.size();
      }
      progress(i + 1);
    }
    const std::lock_guard lock(mutex_);
    busy_s_ += cpu_now() - begin;
  }

  // On anything over some seconds.
  void progress(size_t done) {
    const std::lock_guard lock(mutex_);
    const double now = seconds_now();
    if (now - said_s_ < kSayS) return;
    said_s_ = now;
    const double left = (now - began_s_) / static_cast<double>(done) *
                        static_cast<double>(out_.size() - std::min(done, out_.size()));
    std::cerr << done << " of " << out_.size() << " blocks, about " << static_cast<int>(left + 1)
              << " s left" << std::endl;
  }

  static constexpr double kSayS = 5;
  const VirtualSetting& setting_;
  const std::vector<Row>& rows_;
  std::vector<VirtualBlock> out_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::string error_;
  double busy_s_ = 0;
  const double began_s_ = seconds_now();
  double said_s_ = began_s_;
};

std::vector<Distance> distances_of(const Scenario& s, const std::vector<Row>& rows,
                                   const std::vector<Block>& blocks) {
  std::map<std::pair<std::string, uint32_t>, const Block*> by_row;
  for (const Block& block : blocks) by_row[{block.row, block.repetition}] = &block;
  std::vector<Distance> out;
  for (const Row& row : rows) {
    if (row.jobs.size() < s.jobs.size() || row.policy == kOracle) continue;
    const std::string oracle = std::string(kOracle) + (row.mps ? "@mps" : "");
    for (const scenario::Job& job : s.jobs) {
      const bool latency = job.role == scenario::Role::kLatency;
      std::vector<double> ratios;
      for (uint32_t r = 0; r < s.repetitions; ++r) {
        const auto value = [&](const std::string& name) {
          const auto& jobs = by_row.at({name, r})->jobs;
          const auto found = jobs.find(job.name);
          return found != jobs.end() ? metric_of(found->second, latency) : 0;
        };
        const double bound = value(oracle), mine = value(row.name);
        if (bound > 0 && (mine > 0 || !latency)) ratios.push_back(mine / bound);
      }
      if (ratios.empty()) continue;
      out.push_back({row.name, oracle, job.name, latency ? "mean" : "per_s", median(ratios)});
    }
  }
  return out;
}

std::vector<LeftOver> left_over_of(const VirtualSetting& setting, const std::vector<Row>& rows,
                                   const std::vector<VirtualBlock>& blocks) {
  std::map<std::pair<std::string, uint32_t>, const VirtualBlock*> by_row;
  for (const VirtualBlock& b : blocks) by_row[{b.block.row, b.block.repetition}] = &b;
  const double gpus = std::min(setting.gpus, setting.copies);
  std::vector<LeftOver> out;
  for (const Row& row : rows) {
    std::vector<double> used;
    if (row.jobs.size() < setting.scenario.jobs.size()) continue;
    for (uint32_t r = 0; r < setting.scenario.repetitions; ++r) {
      double left = gpus, batch = 0;
      for (const scenario::Job& job : setting.scenario.jobs) {
        const auto& jobs = by_row.at({row.name, r})->block.jobs;
        const auto found = jobs.find(job.name);
        if (found == jobs.end()) continue;
        const double alone_us = by_row.at({alone_name(job.name, row.mps), r})->gpu_us;
        const double busy = metric_of(found->second, false) * alone_us / 1e6;
        (job.role == scenario::Role::kLatency ? left : batch) +=
            job.role == scenario::Role::kLatency ? -busy : busy;
      }
      if (left > 0) used.push_back(batch / left);
    }
    if (!used.empty()) out.push_back({row.name, median(used)});
  }
  return out;
}

// What a profiler would say of each job alone, by the owner's log: of the first block.
Json profiles_of(const Scenario& s, const std::vector<Row>& rows,
                 const std::vector<VirtualBlock>& blocks) {
  Json out = Json::object();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string& job = s.jobs[rows[i].jobs[0].job].name;
    if (!rows[i].alone || out.contains(job)) continue;
    const Samples& samples = blocks[i].block.jobs.at(job);
    const size_t iterations = samples.us.size();
    out[job] = {{"wall_s", samples.span_s},
                {"kernel_s", blocks[i].gpu_us * static_cast<double>(iterations) / 1e6},
                {"iterations", iterations}};
  }
  return out;
}

Json to_json(const std::vector<Distance>& distances) {
  Json out = Json::array();
  for (const Distance& d : distances) {
    Json one = {{"of", d.row}, {"over", d.oracle}, {"job", d.job}, {"metric", d.metric}};
    one.update(to_json(d.ratio));
    out.push_back(one);
  }
  return out;
}

}  // namespace

VirtualRun run_virtual(const VirtualOptions& options) {
  Scenario s = read_scenario(options);
  VirtualSetting setting{.scenario = s};
  setting.seed = *s.seed;
  setting.gpus = std::max(1u, options.gpus);
  setting.copies = std::max(1u, options.copies);
  setting.host_noise = options.host_noise;
  setting.trace = options.trace;
  if (!options.trace.empty()) std::filesystem::create_directories(options.trace);
  setting.policy_directory = options.policy_directory.empty() ? installed("share/heddle/policies")
                                                              : options.policy_directory;
  check_jobs(s, true);
  load_inputs(setting);
  const std::vector<Missing> unknown = leave_out_unknown(s, setting.policy_directory);
  Plan all = rows_of(s);
  all.missing.insert(all.missing.end(), unknown.begin(), unknown.end());
  for (const Row& row : all.rows) {  // what cannot be loaded is said before anything runs
    const bool loads = !row.policy.empty() && row.policy != kOracle && row.policy != "builtin";
    if (loads) must(load_row_policy(setting, row));
  }
  set_rates(setting, all.rows, s);
  Pool pool(setting, all.rows);
  std::vector<VirtualBlock> blocks = pool.run(options.threads);

  VirtualRun run;
  Result result =
      Result::create("", s, all.rows, true,
                     "virtual time, GPU model of " + std::to_string(sim::facts::kSmCount) + " SMs");
  for (const VirtualBlock& block : blocks) {
    run.virtual_s += block.virtual_s;
    result.add(block.block);
  }
  for (uint32_t i = 0; i < s.repetitions; ++i) result.end_repetition();
  run.busy_s = pool.busy_s();
  run.distances = distances_of(s, all.rows, result.blocks());
  Json& head = result.head();
  head["sessions"].push_back({{"date", today()},
                              {"commit", commit()},
                              {"trees", trees()},
                              {"driver", "none"},
                              {"command", options.command}});
  head["virtual"] = {
      {"gpus", setting.gpus}, {"copies", setting.copies}, {"host_noise", setting.host_noise}};
  for (const Missing& m : all.missing) head["missing"].push_back({{"row", m.row}, {"why", m.why}});
  head["missing"].push_back({{"row", "energy"}, {"why", "no measured fact gives the power"}});
  head["profile"] = profiles_of(s, all.rows, blocks);
  head.update(figures_of(s, all.rows, result.blocks(), head["profile"]));
  head["oracle"] = to_json(run.distances);
  run.left_over = left_over_of(setting, all.rows, blocks);
  for (const LeftOver& l : run.left_over) head["left_over"][l.row] = to_json(l.used);
  if (!options.json.empty()) result.save_as(options.json);
  run.result = head;
  return run;
}

int print_virtual(const VirtualOptions& options) {
  const double begin = seconds_now();
  const VirtualRun run = run_virtual(options);
  const double wall_s = seconds_now() - begin;
  std::cout << table_of(run.result, options.wide)
            << "\n| distance from the clairvoyant policy, same path | job "
            << "| row ÷ oracle [95 %] |\n| --- | --- | ---: |\n";
  const bool bounded = run.result.at("repetitions_done") >= kForInterval;
  const auto text = [bounded](const Figure& figure) {
    char line[96];
    snprintf(line, sizeof line, bounded ? "%.3f [%.3f, %.3f]" : "%.3f", figure.value, figure.lo,
             figure.hi);
    return std::string(line);
  };
  for (const Distance& d : run.distances) {
    std::cout << "| " << d.row << " | " << d.job << " | "
              << (d.metric == "mean" ? "mean JCT " : "rate ") << text(d.ratio) << " |\n";
  }
  std::cout << "\n| of the GPU time that latency jobs left | batch jobs used [95 %] |\n"
            << "| --- | ---: |\n";
  for (const LeftOver& l : run.left_over) {
    std::cout << "| " << l.row << " | " << text(l.used) << " |\n";
  }
  char took[96];
  snprintf(took, sizeof took, "\nSimulated: %.0f virtual s in %.1f s, %.0f x real time a thread.\n",
           run.virtual_s, wall_s, run.virtual_s / std::max(1e-9, run.busy_s));
  std::cout << took;
  return 0;
}

}  // namespace heddle::bench
