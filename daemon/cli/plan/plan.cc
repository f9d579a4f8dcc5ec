#include "daemon/cli/plan/plan.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "daemon/base/files.h"
#include "daemon/cli/command_line.h"
#include "daemon/cli/daemon.h"
#include "daemon/plan/jobs.h"
#include "daemon/plan/judges.h"
#include "daemon/plan/partition.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

int problem(bool as_json, const std::string& what) {
  return show_error(as_json, {kFailed, "plan: " + what, {}});
}

const plan::GpuModel* gpu_of(const PlanOptions& o, bool as_json, int& exit_code) {
  const plan::GpuModel* gpu = plan::gpu_model(o.gpu);
  if (gpu == nullptr) {
    exit_code = problem(as_json, "no GPU model '" + o.gpu + "'; there are " + plan::gpu_names());
  }
  return gpu;
}

int layouts(const PlanOptions& o, bool as_json) {
  int exit_code = kOk;
  const plan::GpuModel* gpu = gpu_of(o, as_json, exit_code);
  if (gpu == nullptr) return exit_code;
  json list = json::array();
  for (const plan::Layout& layout :
       plan::layouts(*gpu, o.wide ? plan::Wide::kYes : plan::Wide::kNo)) {
    json slices = json::array();
    for (const plan::Slice& s : layout) {
      slices.push_back({{"profile", s.profile->name},
                        {"start", s.start},
                        {"sms", s.profile->sms},
                        {"memory_gib", s.profile->memory_gib}});
    }
    if (!as_json) std::cout << plan::to_string(layout) << '\n';
    list.push_back(slices);
  }
  if (as_json) write_json({{"gpu", gpu->name}, {"layouts", list}});
  return kOk;
}

int train(const PlanOptions& o, bool as_json) {
  const auto table = plan::read_jobs(o.data);
  if (!table) return problem(as_json, table.error().message);
  const auto examples = plan::examples(*table);
  std::ostringstream out;
  plan::train(examples, plan::features_for(*table), plan::Learner::kForest, o.seed).write(out);
  if (const auto written = replace_file(o.output, out.str(), 0644); !written) {
    return problem(as_json, written.error().message + "; check path and space");
  }
  if (as_json) {
    write_json({{"file", o.output}, {"source", table->source}, {"samples", examples.size()}});
  } else {
    std::cout << o.output << ": learned from " << examples.size() << " samples of " << table->source
              << '\n';
  }
  return kOk;
}

// Errors of each learner on each split, the mean of `seeds`; "models" has one fold a model instead.
json errors_of(const std::vector<plan::Example>& examples, plan::FeatureSet most, uint64_t seed,
               uint32_t seeds) {
  json rows = json::array();
  for (const auto split : {plan::Split::kSamples, plan::Split::kNeighbours, plan::Split::kJobs,
                           plan::Split::kModels}) {
    const uint32_t runs = split == plan::Split::kModels ? 1 : seeds;
    std::vector<std::vector<plan::Fold>> folds;
    for (uint32_t i = 0; i < runs; ++i) folds.push_back(plan::folds(examples, split, seed + i));
    if (folds.front().empty()) continue;  // too few jobs for this split
    const auto add = [&](const std::string& learner, const std::string& features, auto measure) {
      double absolute = 0, relative = 0, count = 0;
      for (uint32_t i = 0; i < runs; ++i) {
        const plan::Errors e = measure(folds[i], seed + i);
        absolute += e.absolute / runs;
        relative += e.relative / runs;
        count += static_cast<double>(e.count) / runs;
      }
      rows.push_back({{"split", plan::kSplitNames[static_cast<size_t>(split)]},
                      {"learner", learner},
                      {"features", features},
                      {"absolute", absolute},
                      {"relative", relative},
                      {"held_out", count}});
    };
    for (const auto set : {plan::FeatureSet::kTableOne, most}) {
      for (size_t l = 0; l < std::size(plan::kLearnerNames); ++l) {
        add(plan::kLearnerNames[l], plan::kFeatureSetNames[static_cast<size_t>(set)],
            [&](const auto& f, uint64_t s) {
              return plan::errors_of(f, set, static_cast<plan::Learner>(l), s);
            });
      }
    }
    add("interpolation", "-",
        [](const auto& f, uint64_t) { return plan::errors_of_interpolation(f); });
    add("mean-curve", "-", [](const auto& f, uint64_t) { return plan::errors_of_mean_curve(f); });
  }
  return rows;
}

int predict(const PlanOptions& o, bool as_json) {
  const auto table = plan::read_jobs(o.data);
  if (!table) return problem(as_json, table.error().message);
  const auto examples = plan::examples(*table);
  const json rows = errors_of(examples, plan::features_for(*table), o.seed, o.seeds);
  if (as_json) {
    write_json({{"source", table->source},
                {"samples", examples.size()},
                {"seed", o.seed},
                {"seeds", o.seeds},
                {"errors", rows}});
    return kOk;
  }
  std::cout << table->source << ": " << examples.size()
            << " samples; a split holds out a fifth, or "
            << "one model after the other\n";
  printf("%-11s %-14s %-10s %9s %9s\n", "split", "learner", "features", "absolute", "relative");
  for (const json& r : rows) {
    printf("%-11s %-14s %-10s %8.2f%% %8.2f%%\n", r["split"].get<std::string>().c_str(),
           r["learner"].get<std::string>().c_str(), r["features"].get<std::string>().c_str(),
           100 * r["absolute"].get<double>(), 100 * r["relative"].get<double>());
  }
  return kOk;
}

// What the planner predicts by: a saved forest, or one that is learned now.
Result<plan::Predictor> predictor_of(const PlanOptions& o, const std::optional<plan::JobTable>& t) {
  if (!o.predictor.empty()) {
    const auto text = read_file(o.predictor, "write it with `heddle plan train`");
    if (!text) return tl::unexpected<Error>(text.error());
    std::istringstream in(*text);
    return plan::Predictor::read(in, o.predictor);
  }
  if (!t) return fail("nothing to predict by; give --data DIR, or --predictor FILE");
  return plan::train(plan::examples(*t), plan::features_for(*t), plan::Learner::kForest, o.seed);
}

// The policy that gives these shares, of those that were measured on a GPU (bench/JOBS.md): with
// `shares` mean JCT is that of MPS alone, and online jobs end sooner. With `mmk` it is longer.
constexpr const char* kShares = "shares";
constexpr const char* kNoPolicy = "none";

json plan_json(const plan::Plan& p, const std::vector<plan::PlannedJob>& jobs) {
  json list = json::array(), waiting = json::array();
  bool limited = false;
  for (const plan::Assigned& a : p.jobs) {
    const plan::Slice& slice = p.layout[a.slice];
    limited = limited || a.share < 1;
    list.push_back({{"job", jobs[a.job].name},
                    {"kind", jobs[a.job].online ? "online" : "offline"},
                    {"slice", slice.profile->name},
                    {"start", slice.start},
                    {"share", a.share},
                    {"pace", a.pace}});
  }
  for (size_t job : p.waiting) waiting.push_back(jobs[job].name);
  return {{"layout", plan::to_string(p.layout)},
          {"jobs", list},
          {"waiting", waiting},
          {"throughput", p.throughput},
          {"policy", limited ? kShares : kNoPolicy},
          {"why", p.why}};
}

void print_plan(const json& p, bool explain) {
  std::cout << "layout " << p["layout"].get<std::string>() << ", predicted throughput ";
  printf("%.2f (1: a job alone on the whole GPU)\n", p["throughput"].get<double>());
  fflush(stdout);
  printf("%-20s %-8s %-9s %5s %6s %6s\n", "job", "kind", "slice", "start", "share", "pace");
  for (const json& j : p["jobs"]) {
    printf("%-20s %-8s %-9s %5d %5.0f%% %6.2f\n", j["job"].get<std::string>().c_str(),
           j["kind"].get<std::string>().c_str(), j["slice"].get<std::string>().c_str(),
           j["start"].get<int>(), 100 * j["share"].get<double>(), j["pace"].get<double>());
  }
  for (const json& job : p["waiting"]) printf("%-20s waits\n", job.get<std::string>().c_str());
  printf("policy %s\n", p["policy"] == kShares ? "shares: heddle policy load shares, then --apply"
                                               : "none is needed: MPS alone");
  if (!explain) return;
  printf("\n");
  for (const json& line : p["why"]) printf("- %s\n", line.get<std::string>().c_str());
}

// Rules that give the shares of a whole GPU, by label: SMs that do not overlap, as long as there
// are any, and the share that policies such as mmk ask for.
std::string rules_of(const json& p) {
  double from = 0;
  std::string rules;
  for (const json& j : p["jobs"]) {
    const double share = j["share"].get<double>();
    if (share >= 1) continue;
    const double begin = std::min(from, 1 - share);
    from = begin + share;
    char text[200];
    snprintf(text, sizeof text, "sms = \"%.0f%%-%.0f%%\"\nshare = %.1f\n\n", 100 * begin,
             100 * from, share);
    const std::string name = json(j["job"]).dump();
    rules += "[[rule]]\nname = " + name + "\nlabel = " + name + "\n" + text;
  }
  return rules;
}

int jobs(const PlanOptions& o, const std::string& socket, bool as_json) {
  int exit_code = kOk;
  const plan::GpuModel* gpu = gpu_of(o, as_json, exit_code);
  if (gpu == nullptr) return exit_code;
  std::optional<plan::JobTable> table;
  if (!o.data.empty()) {
    auto read = plan::read_jobs(o.data);
    if (!read) return problem(as_json, read.error().message);
    table = std::move(*read);
  }
  const auto entries = plan::read_job_set(o.file, table ? &*table : nullptr);
  if (!entries) return problem(as_json, entries.error().message);
  auto predictor = predictor_of(o, table);
  if (!predictor) return problem(as_json, predictor.error().message);
  plan::PlanOptions options;
  options.repartition = o.allow_mig;
  if (o.ours) options.method = plan::Method::kOurs;
  if (!o.layout.empty()) {
    auto current = plan::place(*gpu, o.layout);
    if (!current) return problem(as_json, current.error().message);
    options.current = *current;
  }
  std::vector<plan::PlannedJob> list;
  for (const plan::JobEntry& e : *entries) {
    list.push_back({e.name, e.online, e.curve.memory_gib, e.curve.alone_ms, e.curve.use});
  }
  plan::ForestJudge judge(std::move(*predictor));
  const plan::Estimate estimate = [&](const plan::SliceProfile& slice,
                                      std::span<const plan::Member> members) {
    std::vector<plan::Tenant> tenants;
    for (const plan::Member& m : members) {
      tenants.push_back({&(*entries)[m.job].curve, list[m.job].online, m.share});
    }
    return judge.pace(tenants, 0, slice.compute);
  };
  const plan::Plan made = plan::plan(list, *gpu, estimate, options);
  const json answer = plan_json(made, list);
  if (o.rules && made.layout.size() > 1) {
    return problem(as_json,
                   "rules share a whole GPU, and this plan has slices; leave out "
                   "--allow-mig and --layout");
  }
  if (o.apply) {
    return plan_apply(o, socket, {made.layout, answer, rules_of(answer), gpu->sms}, as_json);
  }
  if (as_json) {
    write_json(answer);
  } else if (o.rules) {
    std::cout << rules_of(answer);
  } else {
    print_plan(answer, o.explain);
  }
  return kOk;
}

void add_jobs(CLI::App& plan, PlanOptions& o, const std::string& socket, const bool& as_json,
              int& exit_code) {
  CLI::App* sub = plan.add_subcommand("jobs",
                                      "Slices and shares for the jobs of one GPU that FILE "
                                      "describes (share/doc/heddle/daemon/plan/README.md)");
  sub->add_option("file", o.file,
                  "TOML: [[job]] name, kind, like or memory_gib, sm_pct, "
                  "iteration_ms")
      ->required();
  sub->add_option("--gpu", o.gpu, plan::gpu_names() + " (a100-80gb)");
  sub->add_option("--data", o.data,
                  "a directory of measured tables, such as profiles/jobs/parvagpu");
  sub->add_option("--predictor", o.predictor,
                  "a file of `heddle plan train`, instead of learning now");
  sub->add_option("--layout", o.layout,
                  "what the GPU has now, such as 4g.40gb+3g.40gb; it stays "
                  "while an online job runs");
  sub->add_flag(
      "--ours", o.ours,
      "not MMK's first fit and SM use: each job where most is gained, with its right size");
  sub->add_flag("--explain", o.explain, "a reason for each decision");
  sub->add_flag("--rules", o.rules,
                "print the shares as [[rule]]s by label, for heddled.toml; with "
                "--apply: write them there");
  sub->add_flag("--allow-mig", o.allow_mig,
                "another MIG layout may be planned; with --apply it is made, while "
                "nothing runs on the GPU");
  sub->add_option("--device", o.device, "the GPU whose slices --apply makes, of several");
  sub->add_flag("--apply", o.apply,
                "set the shares through the running heddled, live by the policy `shares`; with "
                "--rules from each program's next start on");
  sub->callback([&] { exit_code = jobs(o, socket, as_json); });
}

void add_simulate(CLI::App& plan, PlanOptions& o, const bool& as_json, int& exit_code) {
  CLI::App* sub = plan.add_subcommand(
      "simulate", "Jobs on many GPUs under several policies; simulated, true paces from --data");
  sub->add_option("--data", o.data, "measured tables: every true pace is theirs")->required();
  sub->add_option("--policy", o.policies, "these alone, by comma (all)")->delimiter(',');
  sub->add_option("--online", o.online, "online jobs (800)")->check(CLI::Range(0, 100'000));
  sub->add_option("--offline", o.offline, "offline jobs (400)")->check(CLI::Range(0, 100'000));
  sub->add_option("--gpus", o.gpus, "(8)")->check(CLI::Range(1, 1000));
  sub->add_option("--interval", o.interval_s, "mean seconds between arrivals for each GPU (40)")
      ->check(between(0.001, 1e6));
  sub->add_option("--seed", o.seed, "the first (1)");
  sub->add_option("--seeds", o.seeds, "how many traces (5)")->check(CLI::Range(1, 1000));
  sub->add_option("--error", o.error_pct, "policies know the truth, off by so many percent")
      ->check(between(0, 100));
  sub->add_option("--mig-s", o.mig_s, "seconds to make other slices (4)")->check(between(0, 1e6));
  sub->add_option("--checkpoint-s", o.checkpoint_s, "seconds to restart a job (2)")
      ->check(between(0, 1e6));
  sub->callback([&] { exit_code = plan_simulate(o, as_json); });
}

}  // namespace

void add_plan(CLI::App& app, PlanOptions& o, const std::string& socket, const bool& as_json,
              int& exit_code) {
  CLI::App* plan = app.add_subcommand(
      "plan",
      "Which job goes to which MIG slice, at which share; only --apply needs a daemon. Tables of "
      "your own jobs: `heddle-bench collect`");
  plan->require_subcommand(1)->fallthrough();
  add_jobs(*plan, o, socket, as_json, exit_code);
  CLI::App* list = plan->add_subcommand("layouts", "Every full MIG layout of a GPU model");
  list->add_option("--gpu", o.gpu, plan::gpu_names() + " (a100-80gb)");
  list->add_flag("--wide", o.wide, "also slices of one compute slice with twice the memory");
  list->callback([&] { exit_code = layouts(o, as_json); });
  CLI::App* learn = plan->add_subcommand("train", "Learn a predictor from measured tables");
  learn->add_option("--data", o.data, "such as profiles/jobs/parvagpu")->required();
  learn->add_option("--output", o.output, "the file; what is there is replaced")->required();
  learn->add_option("--seed", o.seed, "(1)");
  learn->callback([&] { exit_code = train(o, as_json); });
  CLI::App* errors = plan->add_subcommand(
      "predict",
      "How wrong four learners and two baselines are on what they have not seen; splits "
      "that the table is too small for are left out");
  errors->add_option("--data", o.data, "such as profiles/jobs/parvagpu")->required();
  errors->add_option("--seed", o.seed, "the first (1)");
  errors->add_option("--seeds", o.seeds, "how many splits (5)")->check(CLI::Range(1, 1000));
  errors->callback([&] { exit_code = predict(o, as_json); });
  CLI::App* placements = plan->add_subcommand(
      "placements",
      "How good the pairs of jobs are that judges choose: the pairs at other shares, a forest "
      "that has seen them there, or not at all, the simulator's rule; by what was measured of all "
      "pairs");
  placements->add_option("--data", o.data, "such as profiles/jobs/h100")->required();
  placements->add_option("--seed", o.seed, "of the forest (1)");
  placements->callback([&] { exit_code = plan_placements(o, as_json); });
  add_simulate(*plan, o, as_json, exit_code);
  for (CLI::App* sub : plan->get_subcommands({})) sub->fallthrough();
}

}  // namespace heddle::cli
