#include "bench/runner/stage.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

namespace heddle::bench {
namespace fs = std::filesystem;
namespace {

constexpr double kQuitS = 10;

std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string argument(const scenario::Distribution& d) {
  return number(d.median_us) + ":" + number(d.sigma);
}

// A trace is played as it is, unless something else is said for the simulated GPU.
bool replays(const scenario::Job& job) {
  return job.workload == "replay" || !(job.sim->kernel.median_us > 0);
}

std::vector<std::string> replay(const scenario::Scenario& scenario, const scenario::Job& job) {
  std::vector<std::string> words = {installed("libexec/heddle/heddle-synthetic"), "--trace",
                                    resolve(scenario, job.sim->trace), "--job", job.name};
  if (job.sim->tokens > 0) {
    words.insert(words.end(), {"--tokens", std::to_string(job.sim->tokens)});
  }
  return words;
}

std::vector<std::string> synthetic(const scenario::SimJob& sim, uint64_t seed) {
  std::vector<std::string> words = {installed("libexec/heddle/heddle-synthetic")};
  const std::pair<const char*, std::string> options[] = {{"--kernels", std::to_string(sim.kernels)},
                                                         {"--kernel-us", argument(sim.kernel)},
                                                         {"--gap-us", argument(sim.gap)},
                                                         {"--pause-us", argument(sim.pause)},
                                                         {"--blocks", std::to_string(sim.blocks)},
                                                         {"--syncs", std::to_string(sim.syncs)},
                                                         {"--seed", std::to_string(seed)}};
  for (const auto& [name, value] : options) words.insert(words.end(), {name, value});
  if (sim.tokens > 0) words.insert(words.end(), {"--tokens", std::to_string(sim.tokens)});
  if (sim.block.median_us <= 0) return words;
  std::string launches;
  for (const scenario::SimLaunch& launch : launches_of(sim)) {
    if (!launches.empty()) launches += ',';
    launches.append(number(launch.us)).append("/").append(std::to_string(launch.blocks));
  }
  words.insert(words.end(), {"--launches", launches});
  return words;
}

std::string script(const std::string& name) {
  return installed("libexec/heddle/workloads/" + name + ".py");
}

bool built_in(const scenario::Job& job) {
  return job.workload == "synthetic" || job.workload == "replay";
}

// On the simulated GPU the stand-in, where there is one.
bool plays(const scenario::Job& job, bool simulated) {
  return built_in(job) || (simulated && job.sim);
}

// heddled's rules for jobs with a promise, which are known by their label: variant_name().
std::string promises(const scenario::Scenario& scenario) {
  std::string rules;
  for (const scenario::Job& job : scenario.jobs) {
    if (job.slowdown_max <= 0 && job.slowdown_p99_max <= 0) continue;
    rules.append("[[rule]]\nclaim = 0\nlabel = \"").append(job.name).append(".heddle*\"\n");
    for (const auto& [key, most] : {std::pair("slowdown_max", job.slowdown_max),
                                    std::pair("slowdown_p99_max", job.slowdown_p99_max)}) {
      if (most > 0) rules.append(key).append(" = ").append(number(most)).append("\n");
    }
  }
  return rules;
}

}  // namespace

void check_jobs(const scenario::Scenario& scenario, bool simulated) {
  for (const scenario::Job& job : scenario.jobs) {
    const std::string where =
        scenario.file + ":" + std::to_string(job.line) + ": job " + job.name + " ";
    const std::string file = script(job.workload == "torchvision" ? "jobs" : job.workload);
    if (job.command.empty() && !plays(job, simulated) && !fs::exists(file)) {
      throw std::runtime_error(
          where + "has workload \"" + job.workload + "\", and " + file +
          " is not there; torchvision, llm, synthetic and replay are built in");
    }
    if (job.arrivals.kind == scenario::ArrivalKind::kRecorded) {
      const auto arrivals = recorded_arrivals(scenario, job);
      if (!arrivals) throw std::runtime_error(arrivals.error().message);
    }
    if (plays(job, simulated)) {
      if (!job.sim || (job.sim->trace.empty() && replays(job))) {
        throw std::runtime_error(where + "is " + job.workload + " and needs a [job.sim]" +
                                 (job.workload == "replay" ? " with a trace" : ""));
      }
      if (replays(job) && !fs::exists(resolve(scenario, job.sim->trace))) {
        throw std::runtime_error(where + "plays a trace that is not there: " + job.sim->trace);
      }
      continue;
    }
    if (!job.command.empty()) continue;
    if (simulated) {
      throw std::runtime_error(where + "needs a [job.sim] to run without a GPU");
    }
    if (job.workload == "torchvision" && job.params.count("model") == 0) {
      throw std::runtime_error(where + "needs a model, such as model = \"resnet50\"");
    }
  }
}

Stage::Stage(Loop& loop, const std::string& folder, const scenario::Scenario& scenario,
             const std::vector<Row>& rows, bool simulated, uint64_t seed)
    : loop_(loop),
      scenario_(scenario),
      simulated_(simulated),
      placement_(place(scenario.jobs.size())) {
  for (const Row& row : rows) {
    try {
      start(row, folder, seed);
    } catch (const HostError& error) {
      Path& path = paths_[row.mps];
      (path.gpu.process ? path.daemons[row.config].broken : path.gpu.broken) = true;
      problems_.emplace_back(error.what());
    }
  }
}

void Stage::start(const Row& row, const std::string& folder, uint64_t seed) {
  Path& path = paths_[row.mps];
  if (path.gpu.broken) return;
  const std::string name = folder + (row.mps ? "/mps" : "/timeslice");
  if (!path.gpu.process) {
    path.gpu.process = std::make_unique<GpuPath>(loop_, name, row.mps, simulated_);
  }
  if (!row.policy.empty()) {
    Part<Daemon>& daemon = path.daemons[row.config];
    if (daemon.broken) return;
    if (!daemon.process) {
      const std::string own = name + "/heddle" + std::to_string(path.daemons.size());
      const Daemon::Given given{row.config, row.policy, scenario_.profiles, promises(scenario_)};
      daemon.process =
          std::make_unique<Daemon>(loop_, own, *path.gpu.process, given, placement_.daemon);
    }
  }
  for (const Variant& variant : row.jobs) {
    if (jobs_.count(variant) == 0) start(variant, folder, seed);
  }
}

Stage::~Stage() {
  for (auto& [variant, job] : jobs_) job->ask_to_quit();
  loop_.settle(kQuitS, [&] {
    return std::none_of(jobs_.begin(), jobs_.end(),
                        [](const auto& entry) { return entry.second->running(); });
  });
  jobs_.clear();
  for (auto& [mps, path] : paths_) path.daemons.clear();
  paths_.clear();
}

void Stage::start(const Variant& variant, const std::string& folder, uint64_t seed) {
  const Path& path = paths_.at(variant.mps);
  const std::string name = variant_name(variant, scenario_);
  Spawn spawn{command_of(scenario_, variant.job, simulated_, seed), path.gpu.process->environment(),
              folder + "/" + name + ".log", placement_.job(variant.job), true};
  // Set alike for every process, so that outputs can be compared and rows stay comparable.
  spawn.environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8";
  spawn.environment["PYTHONHASHSEED"] = "0";
  if (variant.client_priority) spawn.environment["CUDA_MPS_CLIENT_PRIORITY"] = "1";
  if (variant.percent != 100) {
    spawn.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(variant.percent);
  }
  if (variant.managed) {
    const std::string sms = variant.sms == scenario::SmShare{} ? "" : share_text(variant.sms);
    const Daemon& daemon = *path.daemons.at(variant.config).process;
    const auto prefix = daemon.prefix(priority_of(variant, scenario_), name, sms);
    spawn.command.insert(spawn.command.begin(), prefix.begin(), prefix.end());
    spawn.environment["HEDDLE_SOCKET"] = daemon.environment().at("HEDDLE_SOCKET");
  } else if (simulated_) {
    spawn.environment["LD_LIBRARY_PATH"] = installed("lib/heddle/sim");
  }
  jobs_[variant] = std::make_unique<Job>(loop_, name, spawn);
}

std::vector<std::string> command_of(const scenario::Scenario& scenario, size_t index,
                                    bool simulated, uint64_t seed) {
  const scenario::Job& job = scenario.jobs[index];
  if (plays(job, simulated)) {
    auto words = replays(job) ? replay(scenario, job) : synthetic(*job.sim, seed + index);
    const auto memory = job.params.find("memory_mib");
    if (memory != job.params.end()) words.insert(words.end(), {"--memory-mib", memory->second});
    return words;
  }
  if (!job.command.empty()) return job.command;
  std::vector<std::string> words = {"python3", script(job.workload)};
  auto params = job.params;
  if (job.workload == "torchvision") {
    words = {"python3", script("jobs"), params.at("model"),
             params.emplace("batch", "1").first->second};
    params.erase("model");
    params.erase("batch");
  }
  for (const auto& [key, value] : params) words.insert(words.end(), {"--" + key, value});
  return words;
}

std::vector<Job*> Stage::jobs_of(const Row& row) {
  std::vector<Job*> out;
  if (!row.policy.empty() && paths_.at(row.mps).daemons[row.config].broken) return out;
  for (const Variant& variant : row.jobs) {
    const auto job = jobs_.find(variant);
    if (job == jobs_.end() || job->second->broken()) return {};
    out.push_back(job->second.get());
  }
  return out;
}

Daemon* Stage::daemon_of(const Row& row) {
  return row.policy.empty() ? nullptr : paths_.at(row.mps).daemons.at(row.config).process.get();
}

void Stage::restart_daemons() {
  for (auto& [mps, path] : paths_) {
    for (auto& [config, daemon] : path.daemons) {
      if (daemon.process && !daemon.broken) daemon.process->restart();
    }
  }
}

void Stage::give_up_daemon(const Row& row) {
  paths_.at(row.mps).daemons.at(row.config).broken = true;
}

}  // namespace heddle::bench
