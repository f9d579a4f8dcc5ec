#include "daemon/cli/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "daemon/cli/child.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/probe.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/run/preload.h"
#include "ipc/memory.h"
#include "ipc/socket.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

int complain(ExitCode code, const std::string& what) {
  std::cerr << "heddle: " << what << '\n';
  return code;
}

void prepend(const char* variable, const std::string& value) {
  const char* old = getenv(variable);
  const std::string rest = old != nullptr && *old != '\0' ? std::string(":") + old : "";
  setenv(variable, (value + rest).c_str(), 1);
}

// What the shim will read from the environment, as it reads it.
std::string inherited(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr ? value : "";
}

// A daemon that does not answer at once must not be in the way of a program that waits for no word
// of it.
constexpr int kQuietMs = 500;
constexpr const char* kPipeDirectory = "CUDA_MPS_PIPE_DIRECTORY";

// Where the daemon manages MPS the program is to find it, unless it was told of another.
void use_mps(const RunOptions& options, const nlohmann::json& mps) {
  if (!inherited(kPipeDirectory).empty() || !mps.is_object()) return;
  const std::string directory = mps.value("pipe_directory", "");
  if (directory.empty()) return;
  setenv(kPipeDirectory, directory.c_str(), 1);
  const int64_t served = mps.value("served_uid", int64_t{-1});
  if (served < 0 || options.quiet) return;
  std::cerr << "heddle: MPS serves uid " << served
            << " at present: the program waits inside cuInit "
            << "until that user's programs are gone; heddle mps status names them\n";
}

// Hardware queues for SM sets (shim/sm/contexts.h). An MPS server has about 120 for all of its
// clients, and refuses a context that finds none: many programs keep to the two that each has
// anyhow, without SM sets.
void ask_for_queues(const nlohmann::json& effective) {
  constexpr int kFewClients = 20;
  constexpr const char* kQueues = "4";
  if (effective.value("clients", kFewClients) >= kFewClients) return;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", kQueues, 0);
}

// Prints what the program gets, and gives it what it needs to get it.
void ask_daemon(const RunOptions& options) {
  server::Request request;
  request.kind = server::Request::Kind::kEffective;
  const std::string priority = inherited("HEDDLE_PRIORITY");
  const bool is_digit = priority.size() == 1 && priority[0] >= '0' && priority[0] <= '9';
  request.priority = options.priority >= 0 ? options.priority : is_digit ? priority[0] - '0' : -1;
  request.label = options.label.empty() ? inherited("HEDDLE_LABEL") : options.label;
  request.command = executable_of(resolve_program(options.command[0]));
  const Answer answer = ask(options.socket, request, options.quiet ? kQuietMs : kAnswerMs);
  if (answer.code == kOk) {
    use_mps(options, answer.json.value("mps", nlohmann::json()));
    ask_for_queues(answer.json);
  }
  nlohmann::json greeting = answer.json;
  MemoryHold hold;
  if (!options.memory.empty()) {
    hold = set_memory_limit(options.memory, answer.code == kOk);
    greeting["memory_by"] = hold.by;
    greeting["mps_memory_limit"] = hold.mps_limit;
  }
  if (options.quiet) return;
  if (answer.code == kNoDaemon) {
    std::cerr << "heddle: " << answer.error << "; the program runs unmanaged\n";
  } else if (answer.code != kOk) {
    std::cerr << "heddle: " << answer.error << '\n';
  } else if (options.as_json) {
    std::cerr << greeting.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cerr << "heddle: " << answer.json.value("priority_text", "") << ", rule "
              << rule_text(answer.json)
              << (options.priority >= 0 && answer.json.value("priority", -1) > options.priority
                      ? "; asked for Q" + std::to_string(options.priority) +
                            ", which a rule with claim = " + std::to_string(options.priority) +
                            " would grant"
                      : "")
              << '\n';
  }
  if (options.memory.empty() || options.as_json) return;
  std::cerr << "heddle: memory " << options.memory << ", held by " << hold.by
            << (hold.why.empty() ? "" : ": " + printable(hold.why)) << '\n';
}

// Such a program's cuInit fails, and does not say what is missing.
void tell_of_no_driver(const RunOptions& options) {
  if (options.sim || options.quiet || options.as_json) return;
  if (!inherited("HEDDLE_REAL_LIBCUDA").empty()) return;
  for (const char* device : {"/dev/nvidiactl", "/dev/dxg"}) {
    if (access(device, F_OK) == 0) return;
  }
  std::cerr << "heddle: no CUDA driver here (no /dev/nvidiactl); heddle run --sim tries without\n";
}

// What would make the loader ignore the shim, or end the program, is found here: preloading fails
// with a line on standard error and an unmanaged program at best.
int check_preload(const RunOptions& options, const fs::path& shim) {
  if (access(shim.c_str(), R_OK) != 0) {
    return complain(kFailed, shim.string() + ": " + strerror(errno) +
                                 "; heddle belongs into the bin/ of an install tree");
  }
  if (shim.string().find_first_of(": ") != std::string::npos) {
    return complain(kFailed, shim.string() +
                                 ": LD_PRELOAD takes no path with a space or a colon; "
                                 "move the install tree");
  }
  const Obstacle obstacle = obstacle_in(resolve_program(options.command[0]), shim);
  if (obstacle.why.empty() || (obstacle.harmless && options.children)) return kOk;
  return complain(
      kNotPreloaded,
      obstacle.why +
          (obstacle.harmless ? "; if programs that it starts are meant, say --children; " : "; ") +
          "to run it without heddle, leave out 'heddle run'");
}

}  // namespace

int run(const RunOptions& options) {
  const fs::path directory = library_directory();
  const fs::path shim = shim_path();
  if (const int code = check_preload(options, shim); code != kOk) return code;
  ask_daemon(options);
  tell_of_no_driver(options);

  prepend("LD_PRELOAD", preload_path().string());
  prepend("LD_LIBRARY_PATH", directory.string());
  if (options.priority >= 0) {
    setenv("HEDDLE_PRIORITY", std::to_string(options.priority).c_str(), 1);
  }
  if (!options.label.empty()) setenv("HEDDLE_LABEL", options.label.c_str(), 1);
  if (!options.sms.empty()) setenv("HEDDLE_SMS", options.sms.c_str(), 1);
  for (const auto& [name, part] : {std::pair("HEDDLE_ISSUE_MAX", options.issue_max),
                                   std::pair("HEDDLE_L2_MAX", options.l2_max),
                                   std::pair("HEDDLE_DRAM_MAX", options.dram_max)}) {
    if (part > 0) setenv(name, std::to_string(part).c_str(), 1);
  }
  if (options.park) setenv("HEDDLE_PARK", "1", 1);
  if (!options.memory.empty()) {
    setenv("HEDDLE_MEMORY", options.memory.c_str(), 1);
    // All that the program starts shares the limit: by the number that it keeps, and when that was.
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const std::string run = std::to_string(getpid()) + '.' + std::to_string(now.tv_sec) + '.' +
                            std::to_string(now.tv_nsec);
    setenv("HEDDLE_RUN", run.c_str(), 1);
  }
  if (!options.socket.empty()) {
    setenv(ipc::kSocketEnv, fs::absolute(options.socket).c_str(), 1);
  }
  if (options.sim) {
    const fs::path driver = directory / "sim/libcuda.so.1";
    if (access(driver.c_str(), R_OK) != 0) {
      return complain(kFailed, driver.string() + ": " + strerror(errno) +
                                   "; this install tree has no simulated driver");
    }
    setenv("HEDDLE_REAL_LIBCUDA", driver.c_str(), 1);
  }
  std::vector<char*> arguments;
  for (const std::string& word : options.command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  return complain(error == ENOENT ? kNotFound : kCannotRun,
                  options.command[0] + ": cannot be run: " + strerror(error));
}

namespace {

using nlohmann::json;

// How many of `total` devices a CUDA_VISIBLE_DEVICES leaves: those before the first absent one.
size_t count_visible(const std::string& list, size_t total) {
  size_t count = 0;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    const bool index = !item.empty() && item.size() <= 3 &&
                       item.find_first_not_of("0123456789") == std::string::npos;
    const bool uuid = item.rfind("GPU-", 0) == 0 || item.rfind("MIG-", 0) == 0;
    if (!uuid && !(index && std::stoul(item) < total)) break;
    ++count;
    at = end + 1;
  }
  return count;
}

// Bytes on every GPU; 0 where a percentage is of GPUs that differ, or of unknown ones.
uint64_t bytes_of(const ipc::MemoryAmount& amount, const json& gpus) {
  if (amount.percent == 0) return amount.bytes;
  std::set<uint64_t> totals;
  for (const json& gpu : gpus) totals.insert(gpu.value("memory", uint64_t{0}));
  return totals.size() == 1 ? amount.of(*totals.begin()) : 0;
}

// MPS counts the context too (552 MiB on an H100), its stacks, and an own export that is imported
// again once more: it has room for that, and refuses nothing that the shim allows. No more than a
// GPU has, as far as that is known.
uint64_t mps_mib(const std::string& limit, const json& gpus) {
  constexpr uint64_t kRoomMib = 2048;
  const auto amount = ipc::parse_memory(limit);
  const uint64_t mib = amount ? bytes_of(*amount, gpus) >> 20 : 0;
  if (mib == 0) return 0;
  uint64_t most = 0;
  for (const json& gpu : gpus) most = std::max(most, gpu.value("memory", uint64_t{0}) >> 20);
  return most != 0 ? std::min(mib + kRoomMib, most) : mib + kRoomMib;
}

std::string value_of(uint64_t mib, size_t devices) {
  std::string text;
  for (size_t i = 0; i < devices; ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(i) + '=' + std::to_string(mib) + 'M';
  }
  return text;
}

// As the shim decides it (shim/link/helper.cc).
bool mps_answers(const json& mps) {
  if (!mps.is_object()) return false;
  const std::string control = mps.value("directory", "") + "/control";
  return access(control.c_str(), F_OK) == 0 && !ipc::is_stale_socket(control.c_str());
}

// CUDA_VISIBLE_DEVICES of a process; "" if it has none, or the caller may not see it.
std::string visible_of(int pid) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  if (pid <= 0) return "";
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ");
  for (std::string entry; std::getline(in, entry, '\0');) {
    if (entry.rfind(kName, 0) == 0) return entry.substr(kName.size());
  }
  return "";
}

}  // namespace

MemoryHold hold_memory(const MemorySetting& setting) {
  MemoryHold hold{setting.daemon ? "shim" : "none", "", ""};
  if (!setting.mps) {
    if (!setting.daemon) hold.why = "no heddled answers and no MPS runs";
    return hold;
  }
  const auto with_mps = [&](const std::string& value) {
    hold.by = setting.daemon ? "shim and mps" : "mps";
    hold.why = std::string(kMpsMemoryLimit) + '=' + value;
  };
  if (!setting.given.empty()) {
    with_mps(setting.given + ", which was set before");
    return hold;
  }
  const json gpus =
      setting.nvml.is_object() ? setting.nvml.value("gpus", json::array()) : json::array();
  size_t devices = std::max<size_t>(gpus.size(), 1);  // a program that uses GPUs has a device 0
  if (!setting.mps_visible.empty()) devices = count_visible(setting.mps_visible, devices);
  if (setting.visible != nullptr) devices = count_visible(setting.visible, devices);
  const uint64_t mib = mps_mib(setting.limit, gpus);
  if (mib == 0 || devices == 0) {
    hold.why = devices == 0 ? "not by MPS: the program sees no GPU"
                            : "not by MPS: what part of a GPU has how many MiB is not known; "
                              "say --memory in GiB";
    return hold;
  }
  hold.mps_limit = value_of(mib, devices);
  with_mps(hold.mps_limit);
  return hold;
}

MemoryHold set_memory_limit(const std::string& limit, bool daemon) {
  MemorySetting setting;
  setting.limit = limit;
  setting.daemon = daemon;
  const json mps = probe_mps("", 0);
  setting.mps = mps_answers(mps);
  setting.visible = getenv("CUDA_VISIBLE_DEVICES");
  if (const char* given = getenv(kMpsMemoryLimit); given != nullptr) setting.given = given;
  if (setting.mps && setting.given.empty()) {
    setting.mps_visible = visible_of(mps.value("pid", 0));
    setting.nvml = probe_gpu().value("nvml", json());
  }
  MemoryHold hold = hold_memory(setting);
  if (!hold.mps_limit.empty()) setenv(kMpsMemoryLimit, hold.mps_limit.c_str(), 1);
  return hold;
}

void add_try(CLI::App& app, const std::vector<std::string>& command, int& exit_code) {
  CLI::App* sub = app.add_subcommand(
      "try", "Does heddle help? try [...] -- SERVICE -- JOB: alone, shared as it is, under heddle");
  sub->prefix_command()->set_help_flag();
  sub->callback([sub, &command, &exit_code] {
    const std::string script = own_folder().parent_path() / "libexec/heddle/try.py";
    std::vector<std::string> words = {"python3", script};
    for (const std::string& word : sub->remaining()) words.push_back(word);
    if (!command.empty()) words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (access(script.c_str(), R_OK) == 0) execvp(arguments[0], arguments.data());
    std::cerr << "heddle: try: " << (access(script.c_str(), R_OK) == 0 ? words[0] : script) << ": "
              << std::strerror(errno) << "; install python3 and heddle-bench\n";
    exit_code = kFailed;
  });
}

}  // namespace heddle::cli
