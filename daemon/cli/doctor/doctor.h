// `heddle doctor`: is everything that heddle needs in place, and does anything bypass it?
//
// Exit codes: 0 nothing is wrong (warnings apart), 1 something is, as for any command that fails.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle::cli {

struct Finding {
  enum class Level : uint8_t { kOk, kNone, kWarn, kError };  // kNone: nothing to look at here
  Level level = Level::kOk;
  std::string topic;
  std::string text;
  std::string remedy;  // "" unless kWarn or kError
};

std::vector<Finding> examine_host(const nlohmann::json& facts);  // all but what follows
std::vector<Finding> examine_memory(const nlohmann::json& facts);
std::vector<Finding> examine_mps(const nlohmann::json& facts);
std::vector<Finding> examine_policy(const nlohmann::json& status);
std::vector<Finding> examine_promises(const nlohmann::json& ps);
std::vector<Finding> examine_kept(const nlohmann::json& status);
std::vector<Finding> examine_stops(const nlohmann::json& status);
// Which of the two modes suits this GPU, once it is known whether it can stop kernels.
std::vector<Finding> examine_mode(const nlohmann::json& status);
std::vector<Finding> examine_containers(const nlohmann::json& facts);
std::vector<Finding> examine_protocol(const nlohmann::json& facts);
// Where all clients of an answer of `ps` are MPS' by their drivers' word, and heddled's mode is
// that.
std::optional<Finding> examine_told_mode(const nlohmann::json& ps, const std::string& mode);
// Judges the facts that gather_facts() documents; asks nothing, so that tests can make them up.
std::vector<Finding> examine(const nlohmann::json& facts);

// All of probe.h, entry_points: probe_entry_points() where there is a driver, and {daemon: {code,
// error, status, ps, pid_here (heddled's in this PID namespace, or 0)}, version, protocol, uid,
// libc: {version, obstacle}, cgroup: probe_cgroup's, view: probe_holders', gpu_processes:
// [probe_process, `listed` (by NVML) and name_pods' `pod` of NVML's compute processes and of
// probe_holders], variables: [{pid, values: probe_variables'} of these, of clients and of MPS]}.
nlohmann::json gather_facts(const std::string& socket);

// Prints the findings, or all of it as JSON. Returns the exit code.
int run_doctor(const std::string& socket, bool as_json);

// `heddle doctor --stop`: whether GPUs can stop kernels that run (daemon/server/stop_asking.h).

struct StopOptions {
  bool stop = false;
  bool sim = false;
  bool even_if_busy = false;  // others are on the GPU
  bool once = false;          // not those that have answered under this driver
};

// Both kinds of `heddle doctor`.
void add_doctor(CLI::App& app, StopOptions& options, const std::string& socket, const bool& as_json,
                int& exit_code);
// Asks, tells and keeps. Exit codes as doctor's: 1 if a GPU could not be asked, or its answer not
// be kept; a "no" is an answer.
int run_stop(const std::string& socket, bool as_json, const StopOptions& options);

// Who uses the GPUs, by NVML's word and /proc's, and what neither could show.

struct GpuUsers {
  // Of facts' gpu_processes, without services: all whose numbers are of this PID namespace, and
  // those of them that are not attached.
  std::vector<nlohmann::json> all, unattached;
  // Whose programs may be on a GPU all the same; empty if there can be none.
  std::vector<std::string> unseen;
};

// `facts` are gather_facts()'. Needs no daemon: without one nobody is attached.
GpuUsers gpu_users(const nlohmann::json& facts);

// "pid 7 python3 of uid 1000 (pod team-a/api, container main)".
std::string process_text(const nlohmann::json& process);

// One of MPS' own processes?
bool is_mps(const nlohmann::json& process);

// What to do about `unattached`, in a pod and elsewhere.
inline constexpr const char* kPodRemedy =
    "let its container ask for heddle.io/latency or heddle.io/batch instead of nvidia.com/gpu";
inline constexpr const char* kProcessRemedy =
    "start it with heddle run, or with heddle's CDI device";

// What to do about `unseen`.
inline constexpr const char* kSeeAll =
    "run heddle doctor as root in the host's PID namespace: sudo, docker run --pid=host";

}  // namespace heddle::cli
