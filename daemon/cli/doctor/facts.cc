#include <gnu/libc-version.h>
#include <unistd.h>

#include <set>

#include "daemon/base/version.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/doctor/probe.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/pods.h"
#include "daemon/cli/run/elf.h"
#include "daemon/cli/run/preload.h"
#include "ipc/limits.h"
#include "ipc/socket.h"

namespace heddle::cli {

using nlohmann::json;

json gather_facts(const std::string& named) {
  std::string path = named;
  char buffer[256];
  if (path.empty() && ipc::default_socket_path(buffer, sizeof buffer) >= 0) path = buffer;
  server::Request request;
  int connection = -1, memory = -1;
  const Answer status = ask(path, request, connection, memory);
  ipc::Peer daemon;
  if (connection >= 0) ipc::peer_of(connection, daemon);
  for (const int fd : {connection, memory, daemon.pidfd}) {
    if (fd >= 0) close(fd);
  }
  const Answer ps = status.code == kOk ? ask_ps(path) : status;

  json facts = probe_gpu();
  facts["daemon"] = {{"code", ps.code}, {"error", ps.error}};
  if (ps.code == kOk) {
    facts["daemon"]["status"] = status.json;
    facts["daemon"]["ps"] = ps.json;
    facts["daemon"]["pid_here"] = daemon.pid;
  }
  facts["version"] = version_text();
  facts["protocol"] = ipc::kProtocolVersion;
  facts["uid"] = geteuid();
  const json known = ps.code == kOk ? status.json.value("mps", json::object()) : json::object();
  facts["mps"] = probe_mps(known.value("managed", false) ? known.value("pipe_directory", "") : "",
                           ps.code == kOk ? status.json["pid"].get<int>() : 0);
  facts["socket"] = probe_socket(path);
  facts["environment"] = probe_environment();
  facts["cgroup"] = probe_cgroup();
  const Obstacle obstacle = obstacle_in("/proc/self/exe", shim_path());
  const std::string driver = facts["driver"].value("path", "");
  if (!driver.empty()) facts["entry_points"] = probe_entry_points(shim_path(), driver);
  facts["libc"] = {{"version", gnu_get_libc_version()}, {"obstacle", obstacle.why}};
  std::set<int> listed, excused = ps.code == kOk ? attached_pids(ps.json) : std::set<int>();
  excused.insert(getpid());  // its child had a GPU open just now
  for (const json& gpu : facts["nvml"].value("gpus", json::array())) {
    for (const json& pid : gpu["pids"]) listed.insert(pid.get<int>());
  }
  // NVML may leave processes out, and without NVML there is nothing else.
  const json holders = probe_holders(excused);
  std::set<int> pids = listed;
  for (const json& process : holders["processes"]) pids.insert(process["pid"].get<int>());
  for (const json& pid : holders["mps"]) pids.insert(pid.get<int>());
  facts["view"] = holders["view"];
  facts["gpu_processes"] = json::array();
  for (const int pid : pids) {
    json process = probe_process(pid);
    process["listed"] = listed.count(pid) != 0;
    const bool ended = process["uid"].is_null() && process["listed"] == false;
    if (!ended) facts["gpu_processes"].push_back(std::move(process));
  }
  name_pods(facts["gpu_processes"]);
  // Numbers of a heddled in another PID namespace would be others' here.
  if (ps.code == kOk && daemon.pid == status.json["pid"].get<int>()) {
    pids.merge(attached_pids(ps.json));
  }
  if (!facts["mps"].is_null()) pids.insert(facts["mps"]["pid"].get<int>());
  facts["variables"] = json::array();
  for (const int pid : pids) {
    json values = probe_variables(pid);
    if (!values.empty()) facts["variables"].push_back({{"pid", pid}, {"values", values}});
  }
  return facts;
}

namespace {

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Of the driver API: not cudbg…, the debugger's.
bool is_entry_point(const std::string& name) {
  return name.size() > 2 && name.compare(0, 2, "cu") == 0 && is_upper(name[2]);
}

// Without its version and its per-thread-stream variant: cuLaunchKernelEx of
// cuLaunchKernelEx_v2_ptsz.
std::string stem(std::string name) {
  for (const char* variant : {"_ptsz", "_ptds"}) {
    if (name.size() > 5 && name.compare(name.size() - 5, 5, variant) == 0) {
      name.resize(name.size() - 5);
    }
  }
  size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  const bool versioned =
      digits < name.size() && digits > 2 && name.compare(digits - 2, 2, "_v") == 0;
  return versioned ? name.substr(0, digits - 2) : name;
}

}  // namespace

json probe_entry_points(const std::string& shim, const std::string& driver) {
  const MappedFile shim_file(shim), driver_file(driver);
  std::set<std::string> known, wrapped;
  for (const Symbol& symbol : exported_symbols(shim_file.bytes())) {
    if (!is_entry_point(symbol.name)) continue;
    known.insert(symbol.name);
    if (!symbol.weak) wrapped.insert(stem(symbol.name));
  }
  if (known.empty()) return {{"error", shim + ": its symbols cannot be read"}};
  std::set<std::string> unknown, past;
  size_t both = 0;
  for (const Symbol& symbol : exported_symbols(driver_file.bytes())) {
    if (!is_entry_point(symbol.name)) continue;
    if (known.count(symbol.name) != 0) {
      ++both;
      continue;
    }
    unknown.insert(symbol.name);
    if (symbol.name.find("Launch") != std::string::npos || wrapped.count(stem(symbol.name)) != 0) {
      past.insert(symbol.name);
    }
  }
  if (both == 0) return {{"error", driver + ": its symbols cannot be read"}};
  return {{"table", HEDDLE_CUDA_TABLE}, {"known", both}, {"unknown", unknown}, {"past", past}};
}

}  // namespace heddle::cli
