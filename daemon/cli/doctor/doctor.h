// `heddle doctor`: is everything that heddle needs in place, and does anything bypass it?
//
// Exit codes: 0 nothing is wrong (warnings apart), 1 something is, as for any command that fails.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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
std::vector<Finding> examine_promises(const nlohmann::json& ps);
std::vector<Finding> examine_kept(const nlohmann::json& status);
std::vector<Finding> examine_stops(const nlohmann::json& status);
std::vector<Finding> examine_containers(const nlohmann::json& facts);
// Where all clients of an answer of `ps` are MPS' by their drivers' word, and heddled's mode is
// that.
std::optional<Finding> examine_told_mode(const nlohmann::json& ps, const std::string& mode);
// Judges the facts that gather_facts() documents; asks nothing, so that tests can make them up.
std::vector<Finding> examine(const nlohmann::json& facts);

// All of probe.h, entry_points: probe_entry_points() where there is a driver, and {daemon: {code,
// error, status, ps, pid_here (heddled's in this PID namespace, or 0)}, version, protocol, uid,
// libc: {version, obstacle}, cgroup: probe_cgroup's, view: probe_holders', gpu_processes:
// [probe_process, `listed` (by NVML) and name_pods' `pod` of NVML's compute processes and of
// probe_holders]}.
nlohmann::json gather_facts(const std::string& socket);

// Prints the findings, or all of it as JSON. Returns the exit code.
int run_doctor(const std::string& socket, bool as_json);

}  // namespace heddle::cli
