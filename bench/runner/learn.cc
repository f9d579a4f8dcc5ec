#include "bench/runner/run.h"

#include <cstdio>
#include <set>

#include "bench/runner/setting.h"
#include "bench/runner/stage.h"

namespace heddle::bench {
namespace {

using Words = std::vector<std::string>;

// Of iterations at each size of a sweep; a probe ends its program itself.
constexpr const char *kSweepS = "2.5", *kProbeS = "3600";
constexpr double kLearnS = 600;  // a program, at most

bool profile(Loop& loop, const std::string& verb, const Words& program, const GpuPath& path,
             const std::string& profiles, const std::string& log) {
  Words words = {installed("bin/heddle"), "profile", verb, "--output", profiles};
  if (path.simulated()) words.emplace_back("--sim");
  words.insert(words.end(), {"--", installed("bin/heddle-bench"), "alone",
                             verb == "sweep" ? kSweepS : kProbeS, "--"});
  words.insert(words.end(), program.begin(), program.end());
  try {
    run(loop, {words, path.environment(), log, {}}, kLearnS);
  } catch (const HostError& error) {
    std::fprintf(stderr, "heddle-bench: %s: %s\n", verb.c_str(), error.what());
    return false;
  }
  return true;
}

}  // namespace

int learn(const LearnOptions& options) {
  const scenario::Scenario scenario = load(options);
  Loop loop;
  const bool simulated = options.device == "sim" || !find_gpu(loop);
  check_jobs(scenario, simulated);
  std::set<Words> programs;
  for (size_t job = 0; job < scenario.jobs.size(); ++job) {
    programs.insert(command_of(scenario, job, simulated, scenario.seed.value_or(1)));
  }
  int status = 0;
  // A probe keeps what a profile has, and needs MPS.
  for (const bool probe : {false, true}) {
    if (!(probe ? options.probe : options.sweep)) continue;
    const Folder folder("");
    const GpuPath path(loop, folder.path() + "/gpu", probe, simulated);
    for (const Words& program : programs) {
      const std::string verb = probe ? "probe" : "sweep", log = folder.path() + "/log";
      if (!profile(loop, verb, program, path, scenario.profiles, log)) status = 1;
    }
  }
  return status;
}

int play_alone(double seconds, const Words& command) {
  Loop loop;
  Job job(loop, "the program", {command, {}, "/dev/stderr", {}, true});
  job.wait_ready();
  job.go({monotonic_s(), seconds, 0, 0, "closed"});
  job.samples();
  job.ask_to_quit();
  loop.settle(10, [&] { return !job.running(); });
  return 0;
}

}  // namespace heddle::bench
