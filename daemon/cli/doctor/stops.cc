// `heddle doctor --stop`: asks GPUs whether they can stop kernels that run, and keeps the answers
// for heddled.
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "daemon/base/files.h"
#include "daemon/cli/child.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/doctor/probe.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/run/preload.h"
#include "daemon/server/gpus.h"
#include "daemon/server/stop_asking.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Level = Finding::Level;
using server::StopAnswer;

constexpr double kProbeS = 60;
constexpr std::string_view kSomebodyElse = "somebody else is on the GPU";  // heddle-stop-probe's

// Where a heddled of this user keeps them. Not where a heddled says that it does: root may ask that
// of anybody.
std::string own_file() {
  const std::string state = state_directory();
  std::error_code error;
  if (!state.empty()) std::filesystem::create_directories(state, error);
  return state.empty() ? "" : state + '/' + server::kStopsFile;
}

// What the heddled that answers here says of stops; empty where none does.
json told_by(const std::string& socket) {
  server::Request request;
  request.kind = server::Request::Kind::kStatus;
  const Answer status = ask(socket, request);
  return status.code == kOk ? status.json.value("stops", json::object()) : json::object();
}

// "", or why the answer is not where that heddled looks.
std::string elsewhere(const json& told, const std::string& file) {
  const std::string its = told.value("file", file);
  if (its == file) return "";
  return its.empty() ? "heddled keeps no state and reads no answers"
                     : "heddled reads " + printable(its) + ", not " + file;
}

// The host's, as far as its driver tells; else, or where the caller chose, what a program sees
// first.
std::vector<std::string> gpus(const StopOptions& options) {
  if (options.sim || getenv("CUDA_VISIBLE_DEVICES") != nullptr) return {""};
  server::GpuNumbers numbers;
  std::vector<server::GpuId> ids;
  for (const server::DriverGpu& gpu : server::driver_gpus()) ids.push_back(gpu.id);
  numbers.keep(ids);
  std::vector<std::string> all;
  for (size_t i = 0; i < std::min<size_t>(ids.size(), ipc::kDevices); ++i) {
    all.push_back(numbers.text(static_cast<uint8_t>(i)));
  }
  if (options.once) {
    const server::StopAnswers kept(server::StopsSetting::kAsked, state_directory());
    std::erase_if(all, [&](const std::string& gpu) {
      return kept.of(*server::parse_gpu_id(gpu)) != nullptr;
    });
  } else if (all.empty()) {
    all.emplace_back();
  }
  return all;
}

Result<StopAnswer> ask_gpu(const StopOptions& options, const std::string& driver,
                           const std::string& gpu) {
  const std::string program = server::stop_probe_path();
  if (access(program.c_str(), X_OK) != 0) {
    return fail(program + " cannot be run; install heddle-stop-probe again");
  }
  std::vector<std::string> words{program};
  if (!driver.empty()) words.insert(words.end(), {"--driver", driver});
  if (!gpu.empty()) words.insert(words.end(), {"--gpu", gpu});
  if (options.even_if_busy) words.emplace_back("--even-if-busy");
  Child probe(words, "", Child::Output::kTalks);
  const std::optional<std::string> line = probe.hear(kProbeS);
  return server::parse_probe(line.value_or(""));
}

void show(const StopAnswer& answer) {
  const json said = server::stops_json({answer}).at(0);
  std::cout << printable(answer.name) << ", " << answer.gpu << ": " << stop_text(said) << '\n';
  if (answer.yes) {
    std::cout << "  a kernel that runs stands " << fixed("%.2f", answer.stop_us / 1e3)
              << " ms after the call, and goes on " << fixed("%.2f", answer.go_us / 1e3)
              << " ms after the next\n  time slices of 3 : 1 give "
              << fixed("%.2f", answer.slice_ratio) << " : 1\n";
  } else {
    std::cout << "  heddle holds back what comes next, and what runs there ends first\n";
  }
}

}  // namespace

int run_stop(const std::string& socket, bool as_json, const StopOptions& options) {
  const std::vector<std::string> asked = gpus(options);
  const json told = told_by(socket);
  if (asked.empty() || (options.once && told.value("setting", "asked") != "asked")) return kOk;
  const std::string file = own_file();
  const auto sim = library_directory() / "sim/libcuda.so.1";
  const std::string driver =
      options.sim ? sim.string() : probe_gpu().at("driver").value("path", std::string());
  // It looks at the driver itself: a shim that somebody preloads keeps out of the way.
  unsetenv("LD_PRELOAD");
  setenv("HEDDLE_DISABLE", "1", 1);
  if (options.sim) setenv("HEDDLE_SIM_MODE", "timeslice", 0);
  std::vector<StopAnswer> answers;
  std::string problem;
  for (const std::string& gpu : asked) {
    const Result<StopAnswer> answer = ask_gpu(options, driver, gpu);
    if (!answer) {
      const std::string& why = answer.error().message;
      problem = (gpu.empty() ? "" : gpu + ": ") + "not asked: " + printable(why);
      if (why == kSomebodyElse) problem += "; end their programs, or say --even-if-busy";
      if (!as_json) std::cout << problem << '\n';
      continue;
    }
    answers.push_back(*answer);
    if (!as_json) show(*answer);
    const Result<void> kept = file.empty() ? Result<void>(fail("there is no state directory"))
                                           : server::keep_stop(file, *answer);
    if (kept) continue;
    problem = "not kept: " + kept.error().message + "; run it as heddled's user";
    if (!as_json) std::cout << problem << '\n';
  }
  if (const std::string where = problem.empty() ? elsewhere(told, file) : ""; !where.empty()) {
    problem = where + "; run it as heddled's user, with its STATE_DIRECTORY";
    if (!as_json) std::cout << problem << '\n';
  }
  if (as_json) {
    write_json({{"answers", server::stops_json(answers)}, {"file", file}, {"error", problem}});
  } else if (problem.empty()) {
    std::cout << "kept in " << file << ", which heddled reads\n";
  }
  return problem.empty() ? kOk : kFailed;
}

void add_doctor(CLI::App& app, StopOptions& o, const std::string& socket, const bool& as_json,
                int& exit_code) {
  CLI::App* doctor =
      app.add_subcommand("doctor", "What is in place, what is not, and what to do about it");
  CLI::Option* stop = doctor->add_flag(
      "--stop", o.stop, "ask the GPUs whether they can stop kernels that run, and keep the answer");
  doctor->add_flag("--sim", o.sim, "ask the simulated GPU")->needs(stop);
  doctor
      ->add_flag("--even-if-busy", o.even_if_busy,
                 "ask while other programs are on the GPU, which then share it with the probe for "
                 "some seconds")
      ->needs(stop);
  doctor->add_flag("--once", o.once, "ask only GPUs that have not answered under this driver")
      ->needs(stop);
  doctor->callback(
      [&] { exit_code = o.stop ? run_stop(socket, as_json, o) : run_doctor(socket, as_json); });
}

std::vector<Finding> examine_stops(const json& status) {
  std::vector<Finding> findings;
  for (const std::string& text : stop_texts(status)) {
    const bool yes = text.starts_with("yes") || text.starts_with("on ");
    const bool wrong = text.starts_with("not asked: ");
    const size_t remedy = wrong ? text.find("; ") : std::string::npos;
    findings.push_back({yes     ? Level::kOk
                        : wrong ? Level::kWarn
                                : Level::kNone,
                        "stops", text.substr(0, remedy),
                        remedy == std::string::npos ? "" : text.substr(remedy + 2)});
  }
  return findings;
}

std::vector<Finding> examine_mode(const json& status) {
  const json stops = status.value("stops", json::object());
  const json answers = stops.value("answers", json::array());
  const auto all_say = [&](const char* word) {
    return !answers.empty() && std::ranges::all_of(answers, [word](const json& answer) {
      return answer.value("answer", "") == word;
    });
  };
  const std::string setting = stops.value("setting", ""), mode = status.value("mode", "");
  const bool can = setting == "on" || (setting == "asked" && all_say("yes"));
  const bool cannot = setting == "asked" && all_say("no");
  const auto finding = [](Level level, const char* text) {
    return std::vector<Finding>{{level, "which mode", text, ""}};
  };
  if (mode == "timeslice" && can) {
    return finding(Level::kOk,
                   "time-sliced suits this GPU, which stops kernels; MPS is for many small "
                   "programs, and for services that never pause");
  }
  if (mode == "timeslice" && cannot) {
    return finding(Level::kNone,
                   "time-sliced, and kernels run to their end here; under MPS ([mps] manage = "
                   "true) programs overlap, and a fault ends all");
  }
  if (mode == "mps" && can) {
    return finding(Level::kNone,
                   "MPS, for many small programs and services that never pause; for others try "
                   "time-sliced, where this GPU stops kernels and faults stay apart");
  }
  return {};
}

}  // namespace heddle::cli
