#include "daemon/cli/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/run/memory.h"
#include "daemon/cli/run/preload.h"
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

}  // namespace heddle::cli
