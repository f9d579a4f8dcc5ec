#include "bench/runner/run.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <random>
#include <set>

#include "bench/runner/kept.h"
#include "bench/runner/result.h"
#include "bench/runner/rows.h"
#include "bench/runner/setting.h"
#include "bench/runner/stage.h"
#include "bench/runner/table.h"
#include "bench/runner/watch.h"

namespace heddle::bench {
namespace fs = std::filesystem;
namespace {

constexpr double kWarmS = 0.5, kMeasureS = 2.5, kProfileS = 1.5;
constexpr double kProfileReserveS = 6;  // a job: PyTorch's profiler writes and reads its trace
constexpr double kTraceS = 0.2, kTraceBlockS = 2;  // `heddle record` asks NVML before it begins
constexpr int kHashInputs = 3;

// With --apart the repetitions of the second part count on from those of the first.
class Run {
 public:
  // `energy` may be null: none is measured.
  Run(Loop& loop, const RunOptions& options, const scenario::Scenario& scenario,
      const std::vector<Row>& rows, const EnergyMeter* energy, Result& result)
      : loop_(loop),
        options_(options),
        scenario_(scenario),
        all_rows_(rows),
        parts_(parts_of(rows, scenario.apart)),
        energy_(energy),
        result_(result) {}

  uint32_t total() const { return scenario_.repetitions * static_cast<uint32_t>(parts_.size()); }

  // What is left of all parts, each with processes of its own.
  void measure(bool simulated) {
    for (uint32_t part = 0; part < parts_.size(); ++part) {
      end_ = (part + 1) * scenario_.repetitions;
      if (result_.repetitions_done() >= end_ && part + 1 < parts_.size()) continue;
      rows_ = parts_[part];
      const Folder folder(options_.logs);
      Stage stage(loop_, folder.path(), scenario_, rows_, simulated, result_.seed());
      measure(stage, simulated ? scenario_.block_s : std::min(kMeasureS, 4 * scenario_.block_s));
      if (result_.repetitions_done() < end_) return;
    }
    result_.head()["finished"] = true;
  }

  // Figures so far; the file is whole after this.
  void summarize() {
    Json& head = result_.head();
    head.update(figures_of(scenario_, all_rows_, result_.blocks(), head["profile"]));
    result_.save();
  }

  void say(const std::string& text) const {
    char stamp[32];
    snprintf(stamp, sizeof stamp, "[%6.1f s] ", seconds());
    std::cout << stamp << text << std::endl;
  }

  bool failed() const { return failed_; }
  double seconds() const { return monotonic_s() - began_s_; }

 private:
  void measure(Stage& stage, double each_task_s) {
    stage_ = &stage;
    for (const std::string& problem : stage.problems()) fail(problem);
    wait_ready();
    for (const Row* r : warming_rows()) block(*r, std::min(kWarmS, scenario_.block_s), 0, nullptr);
    if (!options_.skip_outputs) compare_outputs();
    measure_tasks(each_task_s);
    measure_rates();
    if (!session().contains("prepared_s")) session()["prepared_s"] = seconds();
    repeat();
    record();
    profile();
  }

  void fail(const std::string& text) {
    failed_ = true;
    result_.error(text);
    say(text);
  }

  // What breaks is given up and said; the rest goes on.
  template <class Body>
  bool surviving(const std::vector<Job*>& jobs, Body&& body) {
    try {
      body();
      return true;
    } catch (const HostError& error) {
      fail(error.what());
      for (Job* job : jobs) job->drain();
      return false;
    }
  }

  void wait_ready() {
    say("loading " + std::to_string(stage_->jobs().size()) + " processes");
    Json& about = session()["processes"];
    for (auto& [variant, job] : stage_->jobs()) {
      surviving({}, [&, &job = job] {
        job->wait_ready();
        about[job->name()] = job->about();
      });
    }
    say("ready");
  }

  Json& session() { return result_.head()["sessions"].back(); }

  // Rows that have every process run once, beside its partners if it has any: heddled has met every
  // kernel then.
  std::vector<const Row*> warming_rows() const {
    std::vector<const Row*> shared_first, out;
    for (const bool alone : {false, true}) {
      for (const Row& row : rows_) {
        if (row.alone == alone) shared_first.push_back(&row);
      }
    }
    std::set<Variant> warm;
    for (const Row* row : shared_first) {
      const size_t before = warm.size();
      warm.insert(row->jobs.begin(), row->jobs.end());
      if (warm.size() > before) out.push_back(row);
    }
    return out;
  }

  // heddled begins anew: what it has learned so far, it learned beside programs that it does not
  // see. Each job's measurement stage follows, alone, as FIKIT's does.
  void measure_tasks(double seconds) {
    surviving({}, [&] { stage_->restart_daemons(); });
    std::set<Variant> measured;
    for (const Row& row : rows_) {
      for (const Variant& variant : row.jobs) {
        if (row.policy.empty() || !measured.insert(variant).second) continue;
        Row alone = row;
        alone.jobs = {variant};
        block(alone, seconds, 0, nullptr);
      }
    }
  }

  // Requests a second of each job whose load is given, by what its bare process serves alone. They
  // are measured once and kept in the result: all rows, parts and sessions have the same.
  void measure_rates() {
    Json& rates = result_.head()["rates"];
    for (size_t i = 0; i < scenario_.jobs.size(); ++i) {
      const scenario::Job& job = scenario_.jobs[i];
      if (job.arrivals.load <= 0 || rates.contains(job.name)) continue;
      const auto [row, variant] = bare_of(i);
      if (row == nullptr) continue;  // nobody runs it here
      Row alone = *row;
      alone.jobs = {*variant};
      Block found;
      if (!block(alone, scenario_.block_s, 0, &found) || found.jobs[job.name].span_s <= 0) {
        throw HostError(job.name +
                        " served nothing alone in a block: its load gives no rate; see " +
                        "--logs, or give a longer block_s");
      }
      const Samples& samples = found.jobs[job.name];
      rates[job.name] =
          rounded(job.arrivals.load * static_cast<double>(samples.us.size()) / samples.span_s);
      say(job.name + " gets " + rates[job.name].dump() + " requests a second");
    }
    result_.save();
  }

  // A row with a process of the job, a bare one if there is such; null if no row has one.
  std::pair<const Row*, const Variant*> bare_of(size_t job) const {
    std::pair<const Row*, const Variant*> found{nullptr, nullptr};
    for (const Row& row : rows_) {
      for (const Variant& v : row.jobs) {
        if (v.job != job) continue;
        if (row.policy.empty() && v.percent == 100 && !v.client_priority) return {&row, &v};
        if (found.first == nullptr) found = {&row, &v};
      }
    }
    return found;
  }

  std::vector<const Row*> order_of(uint32_t repetition) const {
    std::vector<const Row*> out;
    for (const Row& row : rows_) out.push_back(&row);
    std::seed_seq seed{result_.seed(), uint64_t{repetition}};
    std::mt19937_64 random(seed);
    for (size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random() % i]);
    return out;
  }

  void repeat() {
    const size_t profiled = options_.skip_alone ? 0 : scenario_.jobs.size();
    const double reserve_s = 1 + kProfileReserveS * static_cast<double>(profiled);
    double longest_s = 0;
    bool first = true;
    while (result_.repetitions_done() < end_) {
      const uint32_t repetition = result_.repetitions_done();
      const double begin_s = monotonic_s();
      if (!first && options_.budget_s > 0 &&
          seconds() + longest_s + reserve_s > options_.budget_s) {
        return say("time is nearly spent: " + std::to_string(repetition) + " of " +
                   std::to_string(total()) + " repetitions; go on with --resume");
      }
      if (!one_repetition(repetition)) return;
      longest_s = std::max(longest_s, monotonic_s() - begin_s);
      first = false;
    }
  }

  // False if no row is left that could be measured.
  bool one_repetition(uint32_t repetition) {
    const auto order = order_of(repetition);
    bool any = false;
    for (uint32_t place = 0; place < order.size(); ++place) {
      Block block{repetition, place, order[place]->name, {}, -1, Json::object()};
      if (!this->block(*order[place], scenario_.block_s, repetition, &block)) continue;
      any = true;
      result_.add(block);
      ++measured_;
      const size_t later = (total() - repetition - 1) * rows_.size();
      say(line(block, order.size() - place - 1 + later));
    }
    session()["wall_s"] = seconds();
    if (any) result_.end_repetition();
    return any;
  }

  std::string line(const Block& block, size_t blocks_left) const {
    const double each_s = (monotonic_s() - measuring_since_s_) / measured_;
    char text[160];
    double left_s = each_s * static_cast<double>(blocks_left);
    if (options_.budget_s > 0) {
      left_s = std::min(left_s, options_.budget_s - seconds());
    }
    snprintf(text, sizeof text, "%u/%u, %s left  %-20s", block.repetition + 1, total(),
             duration_text(std::max(0.0, left_s)).c_str(), block.row.c_str());
    return text + block_text(block, scenario_);
  }

  // One row for `seconds`; false if it cannot be had. `out` may be null: nothing is kept.
  bool block(const Row& row, double seconds, uint32_t repetition, Block* out) {
    if (out != nullptr && measured_ == 0) measuring_since_s_ = monotonic_s();
    const std::vector<Job*> jobs = stage_->jobs_of(row);
    if (jobs.empty()) return false;
    return surviving(jobs, [&] {
      Daemon* daemon = use_policy(row);
      std::vector<std::pair<std::string, const Job*>> named;
      for (size_t i = 0; i < jobs.size(); ++i) {
        named.emplace_back(scenario_.jobs[row.jobs[i].job].name, jobs[i]);
      }
      if (daemon != nullptr && out != nullptr && scenario_.settle_s > 0) {
        begin(row, jobs, scenario_.settle_s, repetition);
        for (Job* job : jobs) job->samples();
      }
      std::optional<Watch> watch;
      if (daemon != nullptr && out != nullptr) watch.emplace(*daemon, named);
      const Window window = begin(row, jobs, seconds, repetition);
      const double energy_j = out != nullptr ? energy_of(window) : -1;
      std::map<std::string, Samples> answers;
      for (size_t i = 0; i < jobs.size(); ++i) answers[named[i].first] = jobs[i]->samples();
      if (out == nullptr) return;
      out->jobs = std::move(answers);
      out->energy_j = energy_j;
      if (watch) watch->end(*out);
    });
  }

  Window begin(const Row& row, const std::vector<Job*>& jobs, double seconds, uint32_t repetition) {
    Window window{monotonic_s() + kLeadS + kSendS, seconds, kLeadS, kTailS, ""};
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Variant& variant = row.jobs[i];
      const std::string& name = scenario_.jobs[variant.job].name;
      const double per_s = result_.head().at("rates").value(name, 0.0);
      window.arrivals = requests_of(scenario_, variant, per_s, {result_.seed(), repetition});
      jobs[i]->go(window);
    }
    return window;
  }

  // --trace: a block more of each row with a policy, not measured, since recording is not free.
  void record() {
    if (options_.trace.empty()) return;
    fs::create_directories(options_.trace);
    for (const Row& row : rows_) {
      const std::vector<Job*> jobs = stage_->jobs_of(row);
      if (row.policy.empty() || jobs.empty()) continue;
      surviving(jobs, [&] {
        Daemon* daemon = use_policy(row);
        begin(row, jobs, kTraceBlockS, 0);
        loop_.sleep(kLeadS + kSendS);
        std::string name = row.name + ".trace";
        std::replace(name.begin(), name.end(), '/', '_');  // of a policy given as a path
        const std::string file = (fs::path(options_.trace) / name).string();
        daemon->record(file, kTraceS);
        for (Job* job : jobs) job->samples();
        say("recorded " + file);
      });
    }
  }

  // Joules from the window's start to its end, as far as we are on time; -1 without a counter.
  double energy_of(const Window& window) {
    if (energy_ == nullptr) return -1;
    loop_.sleep(std::max(0.0, window.start_s - monotonic_s()));
    const auto before = energy_->joules();
    const double from_s = monotonic_s();
    loop_.sleep(std::max(0.0, window.start_s + window.seconds - from_s));
    const auto after = energy_->joules();
    if (!before || !after) return -1;
    return (*after - *before) * window.seconds / (monotonic_s() - from_s);
  }

  Daemon* use_policy(const Row& row) {
    Daemon* daemon = stage_->daemon_of(row);
    if (daemon == nullptr) return nullptr;
    try {
      daemon->use(row.policy, row.params);
    } catch (const HostError&) {
      if (!daemon->running()) stage_->give_up_daemon(row);
      throw;
    }
    return daemon;
  }

  // Digests of bare and of heddle's processes, each beside its busy partners. As the control a bare
  // one that has no like runs twice, at the beginning and the end.
  void compare_outputs() {
    std::vector<std::pair<const Row*, bool>> order;
    for (const auto& [managed, again] : {std::pair(false, false), {true, false}, {false, true}}) {
      for (const Row& row : rows_) {
        if (!row.alone && row.policy.empty() != managed) order.emplace_back(&row, again);
      }
    }
    std::set<std::pair<std::vector<Variant>, bool>> seen;
    std::map<std::pair<size_t, uint32_t>, int> bare;  // by job and thread percentage
    const auto alike = [&](const Variant& v) -> int& { return bare[{v.job, v.percent}]; };
    for (const auto& [row, again] : order) {
      const auto& all = row->jobs;
      if (again && std::all_of(all.begin(), all.end(), [&](auto& v) { return alike(v) > 1; })) {
        continue;
      }
      if (!seen.emplace(row->jobs, again).second) continue;
      if (row->policy.empty()) {
        for (const Variant& v : all) ++alike(v);
      }
      const std::vector<Job*> jobs = stage_->jobs_of(*row);
      surviving(jobs, [&, row = row] {
        use_policy(*row);
        std::vector<size_t> asked;
        for (size_t i = 0; i < jobs.size(); ++i) {
          if (!jobs[i]->can("hash")) continue;
          jobs[i]->tell("hash " + std::to_string(kHashInputs));
          asked.push_back(i);
        }
        for (const size_t i : asked) {
          Json digest = {{"job", scenario_.jobs[row->jobs[i].job].name},
                         {"process", jobs[i]->name()},
                         {"managed", !row->policy.empty()},
                         {"thread_pct", row->jobs[i].percent}};
          digest["sha256"] = jobs[i]->answer().value("sha256", Json());
          digests_.push_back(digest);
        }
      });
    }
    result_.head()["digests"] = digests_;
    result_.head()["outputs"] = outputs(digests_);
    say("outputs compared");
  }

  // Last, since a traced process keeps its tracer.
  void profile() {
    Json& profiles = result_.head()["profile"];
    for (const Row& row : rows_) {
      const std::string& name = scenario_.jobs[row.jobs[0].job].name;
      if (!row.alone || profiles.contains(name)) continue;
      const std::vector<Job*> jobs = stage_->jobs_of(row);
      if (jobs.empty() || !jobs[0]->can("profile")) continue;
      surviving(jobs, [&] {
        jobs[0]->tell("profile " + std::to_string(kProfileS));
        profiles[name] = jobs[0]->answer();
      });
    }
  }

  Loop& loop_;
  const RunOptions& options_;
  const scenario::Scenario& scenario_;
  const std::vector<Row>& all_rows_;
  const std::vector<std::vector<Row>> parts_;
  std::vector<Row> rows_;  // of the part that is measured ...
  uint32_t end_ = 0;       // ... up to this repetition
  const EnergyMeter* const energy_;
  Result& result_;
  Stage* stage_ = nullptr;
  Json digests_ = Json::array();  // of all parts
  const double began_s_ = monotonic_s();
  double measuring_since_s_ = 0;
  double measured_ = 0;  // blocks
  bool failed_ = false;
};

}  // namespace

int run_scenario(const RunOptions& options) {
  scenario::Scenario scenario = load(options);
  const std::vector<Missing> unknown = find_policies(scenario);
  Plan plan = bench::plan(scenario);
  plan.missing.insert(plan.missing.end(), unknown.begin(), unknown.end());
  if (options.skip_alone) std::erase_if(plan.rows, [](const Row& row) { return row.alone; });
  if (options.plan) {
    std::cout << plan_json(scenario, plan.rows).dump() << '\n';
    return 0;
  }
  Loop loop;
  const auto gpu = options.device == "sim" ? std::nullopt : find_gpu(loop);
  const bool simulated = !gpu;
  check_jobs(scenario, simulated);
  std::optional<EnergyMeter> energy;
  if (!simulated) energy.emplace();
  const std::string no_energy =
      simulated ? "the simulated GPU has no energy counter" : energy->problem();
  if (!no_energy.empty()) plan.missing.push_back({"energy", no_energy});
  for (const Missing& m : plan.missing) std::cout << m.row << ": not available: " << m.why << '\n';
  if (plan.rows.empty()) throw std::runtime_error(scenario.file + ": no row is left to measure");

  // The rows' daemons find a GPU that is in use, and so would not ask it.
  const Json stops = simulated ? Json() : ask_stops(loop);
  if (!simulated) {
    std::cout << "kernels that run can be stopped: " << stops.dump() << '\n';
    // Without a driver there is no GPU to be asked: rows are as on one that stops nothing.
    const bool there = !stops.value("gpu", "").empty();
    set_stops(plan.rows, there ? stops.value("answer", "") : "no", stops.value("why", ""));
  }
  const std::string path = options.json.empty() ? scenario.name + ".json" : options.json;
  const std::string device = simulated ? "simulated" : gpu->name;
  Result result = (options.resume ? Result::resume : Result::create)(path, scenario, plan.rows,
                                                                     simulated, device);
  Run run(loop, options, scenario, plan.rows, no_energy.empty() ? &*energy : nullptr, result);
  if (result.head().value("finished", false) && result.repetitions_done() >= run.total()) {
    std::cout << path << " is finished: nothing is left to measure\n\n"
              << table_of(result.head(), options.wide);
    return 0;
  }
  result.head()["sessions"].push_back(
      new_session(options, simulated ? "-" : gpu->driver, scenario.jobs.size()));
  if (!simulated) result.head()["sessions"].back()["stops"] = stops;
  Json missing = Json::array();
  for (const Missing& m : plan.missing) missing.push_back({{"row", m.row}, {"why", m.why}});
  result.head()["missing"] = missing;
  std::cout << scenario.name << " on " << (simulated ? "the simulated GPU" : gpu->name) << ": seed "
            << result.seed() << ", " << plan.rows.size() << " rows, repetitions "
            << result.repetitions_done() << " of " << run.total() << " done, about "
            << duration_text(blocks_s(scenario, plan.rows) *
                             (run.total() - result.repetitions_done()) / run.total())
            << '\n';

  int status = 0;
  try {
    run.measure(simulated);
  } catch (const Interrupted&) {
    std::cout << "interrupted; what was measured is in " << path << ", go on with --resume\n";
    status = 130;
  } catch (const HostError& error) {
    result.error(error.what());
    std::cerr << "heddle-bench: " << error.what() << '\n';
    status = 1;
  }
  run.summarize();
  result.head()["sessions"].back()["wall_s"] = run.seconds();
  result.save();
  std::cout << '\n' << table_of(result.head(), options.wide);
  return status != 0 ? status : run.failed() ? 1 : 0;
}

}  // namespace heddle::bench
