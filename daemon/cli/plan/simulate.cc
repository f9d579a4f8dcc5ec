// `heddle plan simulate`: the job simulator under several policies, by several seeds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/daemon.h"
#include "daemon/cli/plan/plan.h"
#include "daemon/plan/judges.h"
#include "daemon/plan/policies.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// Student's t, two-sided 95 %, by degrees of freedom.
double t95(size_t freedom) {
  constexpr double kT[] = {0,     12.706, 4.303, 3.182, 2.776, 2.571,
                           2.447, 2.365,  2.306, 2.262, 2.228};
  return freedom < std::size(kT) ? kT[freedom] : 1.96 + 2.4 / static_cast<double>(freedom);
}

json figure(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (double v : values) mean += v / n;
  for (double v : values) squares += (v - mean) * (v - mean);
  json f = {{"mean", mean}};
  if (values.size() > 1) f["ci95"] = t95(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return f;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

struct Name {
  const char* name;
  double (*of)(const plan::Outcome&);
};
constexpr Name kFigures[] = {
    {"jct_s", [](const plan::Outcome& o) { return o.jct_s; }},
    {"online_jct_s", [](const plan::Outcome& o) { return o.online_jct_s; }},
    {"offline_jct_s", [](const plan::Outcome& o) { return o.offline_jct_s; }},
    {"makespan_s", [](const plan::Outcome& o) { return o.makespan_s; }},
    {"stp", [](const plan::Outcome& o) { return o.stp; }},
    {"antt", [](const plan::Outcome& o) { return o.antt; }},
    {"queueing_s", [](const plan::Outcome& o) { return o.queueing_s; }},
    {"run_s", [](const plan::Outcome& o) { return o.run_s; }},
    {"relative_p50", [](const plan::Outcome& o) { return quantile(o.relative_jct, 0.5); }},
    {"relative_p90", [](const plan::Outcome& o) { return quantile(o.relative_jct, 0.9); }},
    {"relative_p99", [](const plan::Outcome& o) { return quantile(o.relative_jct, 0.99); }},
    {"relative_worst", [](const plan::Outcome& o) { return quantile(o.relative_jct, 1); }},
    {"mig_part", [](const plan::Outcome& o) { return o.mig_part; }},
    {"checkpoint_part", [](const plan::Outcome& o) { return o.checkpoint_part; }},
};

std::unique_ptr<plan::Judge> judge_of(const PlanOptions& o, const plan::JobTable& table,
                                      uint64_t seed) {
  if (o.error_pct >= 0) return std::make_unique<plan::ErringJudge>(o.error_pct / 100, seed);
  // A fifth of all (job, neighbours) it has never seen.
  const auto fold = plan::folds(plan::examples(table), plan::Split::kNeighbours, seed).front();
  return std::make_unique<plan::ForestJudge>(
      plan::train(fold.known, plan::features_for(table), plan::Learner::kForest, seed));
}

std::string judge_name(const PlanOptions& o) {
  if (o.error_pct < 0) return "a random forest that has seen four fifths of the table";
  char text[80];
  snprintf(text, sizeof text, "the truth, off by %g %% on average", o.error_pct);
  return text;
}

void print(const json& document) {
  std::cout << document["label"].get<std::string>() << '\n';
  printf("%-14s %9s %8s %9s %9s %6s %7s %8s %6s %6s %7s\n", "policy", "JCT s", "±95 %", "online",
         "makespan", "STP", "ANTT", "queue s", "MIG", "ckpt", "worst");
  for (const json& row : document["policies"]) {
    const auto mean = [&](const char* key) { return row[key]["mean"].get<double>(); };
    printf("%-14s %9.1f %8.1f %9.1f %9.0f %6.3f %7.2f %8.1f %5.1f%% %5.1f%% %7.1f\n",
           row["policy"].get<std::string>().c_str(), mean("jct_s"), row["jct_s"].value("ci95", 0.0),
           mean("online_jct_s"), mean("makespan_s"), mean("stp"), mean("antt"), mean("queueing_s"),
           100 * mean("mig_part"), 100 * mean("checkpoint_part"), mean("relative_worst"));
  }
}

}  // namespace

int plan_simulate(const PlanOptions& o, bool as_json) {
  const auto table = plan::read_jobs(o.data);
  if (!table) return show_error(as_json, {kFailed, "plan: " + table.error().message, {}});
  if (o.online + o.offline == 0) {
    return show_error(as_json, {kUsage, "plan: no jobs; give --online or --offline", {}});
  }
  const std::vector<std::string> names = o.policies.empty() ? plan::job_policy_names() : o.policies;
  std::vector<std::vector<plan::Outcome>> outcomes(names.size());
  for (uint64_t seed = o.seed; seed < o.seed + o.seeds; ++seed) {
    plan::TraceOptions trace;
    trace.online = o.online;
    trace.offline = o.offline;
    trace.gpus = o.gpus;
    trace.interval_s = o.interval_s;
    trace.seed = seed;
    const auto jobs = plan::make_trace(*table, trace);
    const auto judge = judge_of(o, *table, seed);
    for (size_t i = 0; i < names.size(); ++i) {
      const auto policy = plan::job_policy(names[i], *judge, seed);
      if (policy == nullptr) {
        std::string known;
        for (const std::string& name : plan::job_policy_names()) known += " " + name;
        return show_error(as_json,
                          {kUsage, "plan: no policy '" + names[i] + "'; there are" + known, {}});
      }
      outcomes[i].push_back(plan::simulate(jobs, *plan::gpu_model(table->gpu), o.gpus,
                                           {o.mig_s, o.checkpoint_s}, *policy));
    }
  }
  json rows = json::array();
  for (size_t i = 0; i < names.size(); ++i) {
    json row = {{"policy", names[i]}};
    for (const Name& f : kFigures) {
      std::vector<double> values;
      for (const plan::Outcome& outcome : outcomes[i]) values.push_back(f.of(outcome));
      row[f.name] = figure(values);
    }
    rows.push_back(row);
  }
  char label[400];
  snprintf(label, sizeof label,
           "simulated: %u online and %u offline jobs on %u GPUs, an arrival every %g s a GPU, %u "
           "seeds from %llu; true paces: %s; policies judge by %s",
           o.online, o.offline, o.gpus, o.interval_s, o.seeds,
           static_cast<unsigned long long>(o.seed), table->source.c_str(), judge_name(o).c_str());
  const json document = {{"mode", "simulated"},
                         {"label", label},
                         {"source", table->source},
                         {"judge", judge_name(o)},
                         {"interval_s", o.interval_s},
                         {"seeds", o.seeds},
                         {"policies", rows}};
  if (as_json) {
    write_json(document);
  } else {
    print(document);
  }
  return kOk;
}

}  // namespace heddle::cli
