#include "daemon/cli/profile/ncu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <sstream>

#include "daemon/base/files.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/run/preload.h"
#include "daemon/profile/gpu_model.h"
#include "daemon/profile/ncu.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

int failed(const NcuOptions& options, const std::string& what, ExitCode code = kFailed) {
  return show_error(options.as_json, {code, what, {}});
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

json to_json(const profiles::NcuKernel& k) {
  json metrics = json::object();
  for (const auto& [key, value] : k.metrics) metrics[key] = value;
  return {{"name", k.name},
          {"grid_blocks", k.grid_blocks},
          {"block_threads", k.block_threads},
          {"dynamic_smem_bytes", k.dynamic_smem_bytes < 0 ? json() : json(k.dynamic_smem_bytes)},
          {"launches", k.launches},
          {"duration_us", k.duration_us == 0 ? json() : json(k.duration_us)},
          {"metrics", std::move(metrics)},
          {"missing", k.missing}};
}

void print(const profiles::NcuReport& report) {
  char line[256];
  snprintf(line, sizeof line, "%-40s %9s %7s %9s", "kernel", "blocks", "threads", "us");
  std::cout << line;
  for (const profiles::NcuMetric& m : profiles::ncu_metrics()) {
    std::cout << ' ' << m.key;
  }
  std::cout << '\n';
  for (const profiles::NcuKernel& k : report.kernels) {
    snprintf(line, sizeof line, "%-40s %9u %7u %9.1f", printable(k.name).substr(0, 40).c_str(),
             k.grid_blocks, k.block_threads, k.duration_us);
    std::cout << line;
    for (const profiles::NcuMetric& m : profiles::ncu_metrics()) {
      const auto it = k.metrics.find(m.key);
      if (it != k.metrics.end()) {
        snprintf(line, sizeof line, " %*.1f", static_cast<int>(m.key.size()), it->second);
      } else {
        snprintf(line, sizeof line, " %*s", static_cast<int>(m.key.size()), "-");
      }
      std::cout << line;
    }
    std::cout << '\n';
    if (k.longest_us > 1.25 * k.shortest_us) {
      snprintf(line, sizeof line,
               "  its %u launches took %.1f to %.1f us; the metrics are of the middle one\n",
               k.launches, k.shortest_us, k.longest_us);
      std::cout << line;
    }
  }
}

// The program runs as if heddle were not there, and outside MPS: nothing else is to be measured.
void leave_heddle_and_mps() {
  for (const char* variable : {"LD_PRELOAD", "LD_LIBRARY_PATH"}) {
    const char* old = getenv(variable);
    std::istringstream entries(old != nullptr ? old : "");
    std::string kept;
    for (std::string entry; std::getline(entries, entry, ':');) {
      const bool ours = entry.starts_with(library_directory().string());
      if (!ours && !entry.empty()) kept += (kept.empty() ? "" : ":") + entry;
    }
    if (kept.empty()) {
      unsetenv(variable);
    } else {
      setenv(variable, kept.c_str(), 1);
    }
  }
  // Where no control daemon listens a program runs by itself.
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/without-mps", 1);
  setenv("LC_ALL", "C", 1);
}

}  // namespace

int profile_import_ncu(const NcuOptions& options) {
  const Result<std::string> text = read_file(options.report, "check the path", kReportMost);
  if (!text) return failed(options, text.error().message);
  const Result<profiles::NcuReport> report = profiles::parse_ncu(*text, options.report);
  if (!report) return failed(options, report.error().message);
  if (options.as_json) {
    json kernels = json::array();
    for (const profiles::NcuKernel& k : report->kernels) kernels.push_back(to_json(k));
    write_json({{"kernels", kernels}, {"missing", report->missing}});
  } else {
    print(*report);
  }
  if (!options.into.empty()) {
    Result<profiles::Profile> profile = profiles::load(options.into);
    if (!profile) return failed(options, profile.error().message);
    const size_t found = profiles::add_metrics(profile->task, *report);
    if (Result<void> done = profiles::save(options.into, *profile); !done) {
      return failed(options, done.error().message);
    }
    std::cerr << "heddle: " << printable(options.into) << ": metrics of " << found << " of "
              << profile->task.kernels.size() << " kernels\n";
  }
  if (!report->missing.empty()) {
    std::cerr << "heddle: " << options.report << ": no kernel has " << joined(report->missing)
              << "; their channels are not judged\n";
  }
  return kOk;
}

int profile_collect_metrics(const NcuOptions& options) {
  if (options.command.empty()) {
    return failed(options, "no program to measure; name it after --, as in -- python3 serve.py",
                  kUsage);
  }
  if (access(resolve_program(options.ncu).c_str(), X_OK) != 0) {
    return failed(options,
                  options.ncu +
                      ": not found; it is Nsight Compute of the CUDA toolkit: install it, or "
                      "name it with --ncu PATH",
                  kNotFound);
  }
  const std::vector<std::string> words =
      profiles::ncu_command(options.ncu, options.output, options.skip, options.command);
  std::cerr << "heddle: ncu writes " << options.output << "; then: heddle profile import-ncu "
            << options.output << '\n';
  leave_heddle_and_mps();
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return failed(options, options.ncu + ": cannot be run: " + strerror(errno), kCannotRun);
}

std::string gpu_models_directory() {
  return (library_directory().parent_path().parent_path() / "share/heddle/gpu").string();
}

Result<std::vector<Neighbours>> neighbours_of(const profiles::Profile& p,
                                              const std::string& models) {
  const Result<core::DeviceModel> device = profiles::find_gpu_model(models, p.gpu);
  if (!device) return tl::unexpected<Error>(device.error());
  std::vector<Neighbours> all;
  for (const core::KernelProfile& k : p.task.kernels) {
    if (k.facts.block_threads == 0) continue;  // a graph
    const core::LaunchShape shape{k.facts.grid_blocks, k.facts.block_threads, k.facts.registers,
                                  k.facts.dynamic_smem_bytes + k.facts.static_smem_bytes,
                                  k.facts.max_blocks_per_sm};
    const uint32_t alone = core::company(shape, {}, core::SmCount(device->sm_total), *device).alone;
    all.push_back({&k, alone, core::forbids_company(shape, *device)});
  }
  return all;
}

std::string neighbours_text(const std::vector<Neighbours>& kernels) {
  std::string out;
  char line[256];
  snprintf(line, sizeof line, "  %-40s %8s %8s %9s %11s %9s  %s\n", "company on an SM", "blocks",
           "threads", "registers", "smem/block", "at once", "");
  out += line;
  for (const Neighbours& n : kernels) {
    const ipc::KernelFacts& f = n.kernel->facts;
    const bool room = n.forbidden_by == core::SlotLimit::kNone;
    const auto limit = core::kSlotLimitNames[static_cast<size_t>(n.forbidden_by)];
    snprintf(line, sizeof line, "  %-40s %8u %8u %9u %11u %9u  %s%.*s\n",
             printable(f.name).substr(0, 40).c_str(), f.grid_blocks, f.block_threads, f.registers,
             f.dynamic_smem_bytes + f.static_smem_bytes, n.blocks_on_sm,
             room ? "has room" : "forbidden by ", room ? 0 : static_cast<int>(limit.size()),
             limit.data());
    out += line;
  }
  return out;
}

void add_ncu(CLI::App& profile, NcuOptions& options, const std::vector<std::string>& command,
             const bool& as_json, int& exit_code) {
  CLI::App* report = profile.add_subcommand(
      "import-ncu", "Metrics of each kernel in what Nsight Compute wrote (ncu --csv)");
  report->add_option("report", options.report, "the CSV, kernel names mangled")->required();
  report->add_option("--into", options.into, "a profile of the same program, which gets them");
  report->callback([&] {
    options.as_json = as_json;
    exit_code = profile_import_ncu(options);
  });
  CLI::App* collect = profile.add_subcommand(
      "collect-metrics",
      "Run a program under Nsight Compute, without heddle and MPS: one launch of each "
      "configuration, clocks and caches as they are, graphs by node: collect-metrics [...] -- CMD");
  collect->add_option("--output", options.output, "the report (heddle-ncu.csv)");
  collect->add_option("--ncu", options.ncu, "where Nsight Compute is, if not in PATH");
  collect->add_option("--skip", options.skip,
                      "launches of each configuration before the one that is measured (1)");
  collect->callback([&] {
    options.as_json = as_json;
    options.command = command;
    exit_code = profile_collect_metrics(options);
  });
  CLI::App* pairs = profile.add_subcommand(
      "predict-pairs", "What the estimator says of the pairs that heddle-bench pairs measured");
  pairs->add_option("pairs", options.pairs, "its result")->required();
  pairs->add_option("--metrics", options.report, "its kernels' metrics, by ncu --csv")->required();
  pairs->add_option("--gpu-model", options.gpu_model, "a file as in profiles/gpu (the installed)");
  pairs->callback([&] {
    options.as_json = as_json;
    exit_code = profile_predict_pairs(options);
  });
}

}  // namespace heddle::cli
