#include "daemon/cli/profile/profile.h"

#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "daemon/base/json.h"
#include "daemon/cli/child.h"
#include "daemon/cli/command_line.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/profile/ncu.h"
#include "daemon/profile/gpu_model.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using profiles::Level;
using profiles::Neighbour;
using profiles::Pressure;
using profiles::Profile;

constexpr double kReadyS = 60;   // for a microbenchmark to find its iterations
constexpr double kAnswerS = 30;  // longer than it was told to hold
constexpr double kLaunchesLeast = 10;

// What went wrong, told in one line.
struct Failure {
  std::string what;
};

// A microbenchmark that cannot press: the others are measured without it.
struct NoPressure : Failure {};

// One process of interference.cu.
class Microbenchmark {
 public:
  Microbenchmark(const std::string& program, const Pressure& pressure, const fs::path& folder)
      : spec_(pressure.spec),
        log_(folder / "microbenchmark.log"),
        child_({program, pressure.spec}, log_, Child::Output::kTalks) {
    if (!hear(kReadyS).value("ready", false)) fail("does not get ready");
  }
  // Presses for so long. Its pressure, in its own unit.
  double hold(double seconds) {
    child_.say("hold " + std::to_string(seconds));
    const double pressure = hear(seconds + kAnswerS).value("held_pressure", 0.0);
    if (pressure <= 0) fail("no launch of it ended; give more --seconds");
    return pressure;
  }

 private:
  json hear(double patience_s) {
    const auto line = child_.hear(patience_s);
    json said = parse_json(line.value_or(""));
    if (said.is_object()) return said;
    const std::string told = last_line(log_);
    fail(line             ? "said " + printable(*line)
         : !told.empty()  ? told
         : child_.ended() ? "ended"
                          : "does not answer");
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw NoPressure{{"microbenchmark " + spec_ + ": " + why}};
  }

  std::string spec_;
  fs::path log_;
  Child child_;
};

struct Count {
  double at_s = 0, launches = 0, gpu_us = 0;
  bool profiled = false;
  std::string mode;
};

// The program under a heddled of its own.
class Program {
 public:
  Program(const ProbeOptions& options, const fs::path& folder)
      : options_(options),
        log_(folder / "program.log"),
        // Each launch is counted: nothing is sampled, and no rows are told of as one.
        daemon_(folder, options.runs, "report = \"each\"\n") {
    if (!daemon_.error().empty()) throw Failure{daemon_.error()};
    std::vector<std::string> words = daemon_.run_words(options.program.sim);
    words.emplace_back("--");
    words.insert(words.end(), options.program.command.begin(), options.program.command.end());
    child_.emplace(words, log_);
  }

  // Its busiest process.
  Count count() {
    server::Request ps;
    ps.kind = server::Request::Kind::kPs;
    const Answer answer = ask(daemon_.socket(), ps);
    Count most;
    most.at_s = seconds_now();
    if (answer.code != kOk) throw Failure{answer.error};
    for (const json& client : answer.json.at("clients")) {
      Count one{most.at_s, client.at("counters").at("launches").get<double>(), 0, false,
                client.value("mode", "")};
      for (const json& device : client.at("devices")) {
        one.gpu_us += device.at("gpu_us").get<double>();
        one.profiled |= device.value("profiled", false);
      }
      if (most.mode.empty() || one.launches > most.launches) most = one;
    }
    if (child_->ended()) {
      throw Failure{"the program ended too early (" + ending() +
                    "): let it launch on until it is stopped"};
    }
    return most;
  }

  // Until it has a profile.
  Profile wait_for_profile() {
    const double until = seconds_now() + options_.timeout_s;
    while (seconds_now() < until) {
      const Count now = count();
      if (now.mode == "timeslice") {
        throw Failure{
            "without MPS programs take turns, and no channel is shared; start MPS (heddle mps "
            "start) and set CUDA_MPS_PIPE_DIRECTORY as it says"};
      }
      std::vector<Profile> all = daemon_.profiles();
      if (now.profiled && !all.empty()) {
        return *std::max_element(all.begin(), all.end(), [](const Profile& a, const Profile& b) {
          return a.task.kernels.size() < b.task.kernels.size();
        });
      }
      nap();
    }
    throw Failure{"the program has no profile after " +
                  std::to_string(static_cast<int>(options_.timeout_s)) +
                  " s: it must launch, and synchronize; lower --runs, or give more --timeout"};
  }

 private:
  std::string ending() const {
    const std::string told = last_line(log_);
    return told.empty() ? "it said nothing" : told;
  }

  const ProbeOptions& options_;
  fs::path log_;
  OwnDaemon daemon_;
  std::optional<Child> child_;
};

double rate_between(const Count& from, const Count& to) {
  const double launches = to.launches - from.launches;
  if (launches < kLaunchesLeast) {
    std::ostringstream text;
    text << "the program launched " << launches << " times in " << to.at_s - from.at_s
         << " s; give more --seconds";
    throw Failure{text.str()};
  }
  return launches / (to.at_s - from.at_s);
}

void sleep_for(double seconds) {
  for (const double until = seconds_now() + seconds; seconds_now() < until;) nap();
}

// Where a microbenchmark cannot press, says so.
template <class Measure>
void press(Measure&& measure) {
  try {
    measure();
  } catch (const NoPressure& failure) {
    std::cerr << "heddle: " << failure.what << "; left out\n";
  }
}

// The whole measurement: the program's profile with its probe.
Profile measure(const ProbeOptions& options, const std::string& microbenchmark,
                const std::vector<Pressure>& all, const fs::path& folder,
                const std::string& models) {
  std::vector<Level> levels;
  for (const Pressure& pressure : all) {
    press([&] {
      Microbenchmark held(microbenchmark, pressure, folder);
      levels.push_back({pressure, held.hold(options.seconds)});
    });
  }
  std::cerr << "heddle: alone: " << levels.size() << " of " << all.size() << " microbenchmarks\n";
  if (levels.empty()) throw Failure{"no microbenchmark runs; see above"};
  Program program(options, folder);
  Profile profile = program.wait_for_profile();
  double busy_us = 0, alone_s = 0;
  const auto alone = [&] {
    const Count begin = program.count();
    sleep_for(options.seconds);
    const Count end = program.count();
    busy_us += end.gpu_us - begin.gpu_us;
    alone_s += end.at_s - begin.at_s;
    return rate_between(begin, end);
  };
  for (Level& level : levels) {
    press([&] {
      Microbenchmark held(microbenchmark, level.of, folder);
      level.rate_before = alone();
      const Count begin = program.count();
      level.held_beside = held.hold(options.seconds);
      level.rate_beside = rate_between(begin, program.count());
      level.rate_after = alone();
    });
    if (level.held_beside == 0) continue;
    const Neighbour n = profiles::neighbours({level})[0];
    std::cerr << "heddle: beside " << level.of.spec << ": "
              << json(std::round(n.slowdown * 100) / 100).dump() << " times as slow, and it "
              << json(std::round(n.stretched * 100) / 100).dump() << '\n';
  }
  std::erase_if(levels, [](const Level& level) { return level.held_beside == 0; });
  if (levels.empty()) throw Failure{"no microbenchmark pressed on the program; see above"};
  profiles::Probe probe;
  probe.busy = std::clamp(busy_us / (alone_s * 1e6), 0.01, 1.0);
  probe.beside = profiles::neighbours(levels);
  core::DeviceModel device;
  if (const auto model = profiles::find_gpu_model(models, profile.gpu)) device = *model;
  probe.metrics = profiles::probed_metrics(probe, device);
  profile.probe = probe;
  return profile;
}

// interference.cu as it was built, or an error with the remedy.
std::string find_microbenchmark(const ProbeOptions& options) {
  const fs::path workloads = own_folder().parent_path() / "libexec/heddle/workloads";
  const std::string program = options.microbenchmark.empty() ? (workloads / "interference").string()
                                                             : options.microbenchmark;
  if (access(program.c_str(), X_OK) == 0 && !fs::is_directory(program)) return program;
  throw Failure{program + ": " + strerror(errno) + "; build it: nvcc -O2 -arch=native -std=c++17 " +
                (workloads / "interference.cu").string() + " -o " + program +
                " -lcuda; or name it with --program"};
}

// One that is there keeps its kernels and their metrics.
std::string save(const Profile& profile, const std::string& output) {
  const std::string file = (fs::path(output) / profiles::file_name(profile)).string();
  Profile whole = profile;
  if (access(file.c_str(), F_OK) == 0) {
    Result<Profile> before = profiles::load(file);
    if (!before) throw Failure{before.error().message};
    whole = *before;
    whole.probe = profile.probe;
  }
  if (Result<void> done = profiles::save(file, whole); !done) throw Failure{done.error().message};
  return file;
}

}  // namespace

json probe_json(const profiles::Probe& probe) {
  json beside = json::array(), metrics = json::object();
  for (const Neighbour& n : probe.beside) {
    beside.push_back({{"channel", core::kChannelNames[core::index_of(n.channel)]},
                      {"spec", n.spec},
                      {"use", n.use},
                      {"slowdown", n.slowdown},
                      {"stretched", n.stretched}});
  }
  for (size_t i = 0; i < ipc::kKernelMetricCount; ++i) {
    if (probe.metrics.has(i)) metrics[ipc::kKernelMetrics[i].key] = probe.metrics.values[i];
  }
  return {{"busy", probe.busy}, {"metrics", metrics}, {"beside", beside}};
}

std::string probe_text(const profiles::Probe& probe) {
  char line[256];
  snprintf(line, sizeof line, "  %-40s %14s %14s\n", "beside a microbenchmark", "times as slow",
           "slows it by");
  std::string out = line;
  for (const Neighbour& n : probe.beside) {
    snprintf(line, sizeof line, "  %-40s %14.2f ", printable(n.spec).substr(0, 40).c_str(),
             n.slowdown);
    out += line;
    snprintf(line, sizeof line, "%14.2f\n", n.stretched);
    out += n.stretched > 0 ? line : std::string(13, ' ') + "-\n";
  }
  return out;
}

int profile_probe(const ProbeOptions& options) {
  std::string unknown;
  const std::vector<Pressure> all = profiles::pressures(options.channels, unknown);
  if (!unknown.empty()) {
    return show_error(options.as_json, {kUsage,
                                        "--channels: no channel " + printable(unknown) +
                                            "; heddle profile probe --help lists them",
                                        {}});
  }
  char name[] = "/tmp/heddle-probe-XXXXXX";
  if (mkdtemp(name) == nullptr) {
    return show_error(options.as_json, {kFailed, std::string("/tmp: ") + strerror(errno), {}});
  }
  Answer failed{kOk, "", {}};
  try {
    const Profile profile =
        measure(options, find_microbenchmark(options), all, name, gpu_models_directory());
    const std::string file = save(profile, options.output);
    if (!options.as_json) std::cout << printable(file) << '\n';
    if (options.as_json) write_json({{"file", file}, {"probe", probe_json(*profile.probe)}});
  } catch (const Failure& failure) {
    failed = {kFailed, failure.what, {}};
  } catch (const json::exception& error) {
    failed = {kFailed, std::string("heddled does not say all that this asks: ") + error.what(), {}};
  }
  fs::remove_all(name);
  return failed.code == kOk ? kOk : show_error(options.as_json, failed);
}

void add_probe(CLI::App& profile, ProbeOptions& options, const std::vector<std::string>& command,
               const bool& as_json, int& exit_code) {
  CLI::App* sub = profile.add_subcommand(
      "probe",
      "Run a program beside each channel's microbenchmark, under MPS, and keep in its profile how "
      "much slower each makes the other: probe [...] -- CMD");
  sub->add_option("--channels", options.channels,
                  "apart by commas (all): slots issue fp64 tensor smem l1_capacity l2_capacity l2 "
                  "dram");
  sub->add_option("--program", options.microbenchmark,
                  "interference.cu as it was built (libexec/heddle/workloads/interference)");
  sub->add_option("--seconds", options.seconds, "of each block, beside and alone (1)")
      ->check(between(0.1, 60));
  sub->add_option("--runs", options.runs, "runs that are measured before (20)")
      ->check(CLI::Range(10, 1000));
  sub->add_option("--timeout", options.timeout_s, "seconds for those (120)")
      ->check(between(1, kDayS));
  sub->add_option("--output", options.output, "the directory for the profile (.)")
      ->check(CLI::ExistingDirectory);
  sub->add_flag("--sim", options.program.sim, "on the simulated GPU");
  sub->callback([&] {
    if (command.empty()) throw CLI::ValidationError("probe", "say what to run: -- CMD");
    options.program.command = command;
    options.as_json = as_json;
    exit_code = profile_probe(options);
  });
}

}  // namespace heddle::cli
