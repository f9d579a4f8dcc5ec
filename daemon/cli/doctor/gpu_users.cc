// Who uses the GPUs, by the word of NVML and of /proc.
#include <algorithm>
#include <set>

#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

std::string list(const json& numbers) {
  std::string text;
  for (const json& number : numbers) text += (text.empty() ? "" : ", ") + number.dump();
  return text;
}

// NVML may give a number of another PID namespace. Here that is nobody's, or somebody else's, whom
// only an open GPU would give away.
bool is_elsewhere(const json& process, const json& view) {
  if (process["listed"] == false) return false;
  return process["uid"].is_null() || (view["host"] == false && process["holds"] != true);
}

// Of MPS' clients only NVML is sure to know: the server may have the GPU open in their place.
bool mps_hides(const json& facts) {
  bool mps = !facts["mps"].is_null() && facts["mps"]["pid"] != 0;
  for (const json& process : facts["gpu_processes"]) mps = mps || is_mps(process);
  const json gpus = facts["nvml"].value("gpus", json::array({{{"listed", false}}}));
  return mps && std::any_of(gpus.begin(), gpus.end(),
                            [](const json& gpu) { return !gpu.value("listed", true); });
}

}  // namespace

std::string process_text(const json& process) {
  const std::string pod = pod_text(process);
  return "pid " + process.at("pid").dump() + " " + printable(process.at("exe")) + " of uid " +
         process.at("uid").dump() + (pod.empty() ? "" : " (" + pod + ")");
}

bool is_mps(const json& process) {
  return process["exe"].get<std::string>().find("nvidia-cuda-mps") != std::string::npos;
}

std::optional<Finding> examine_told_mode(const json& ps, const std::string& mode) {
  const json clients = ps.value("clients", json::array());
  const auto says_mps = [](const json& client) {
    return client.value("mode_told", false) && client.value("mode", "") == "mps";
  };
  if (clients.empty() || !std::all_of(clients.begin(), clients.end(), says_mps)) return {};
  using Level = Finding::Level;
  if (mode == "mps") return Finding{Level::kOk, "mode", "MPS, as each client's driver says", ""};
  return Finding{Level::kWarn, "mode",
                 "each client's driver says MPS, and heddled takes the GPU for time-sliced",
                 "set [gpu] mode = \"auto\" and restart heddled"};
}

GpuUsers gpu_users(const json& facts) {
  const json &daemon = facts["daemon"], &view = facts["view"];
  const std::set<int> attached =
      daemon["code"] == kOk ? attached_pids(daemon["ps"]) : std::set<int>();
  GpuUsers users;
  // Its clients' numbers would be compared with those of others.
  if (daemon["code"] == kOk && daemon["pid_here"] != daemon["status"]["pid"]) {
    users.unseen.push_back("heddled runs in another PID namespace");
    return users;
  }
  json elsewhere = json::array();
  for (const json& process : facts["gpu_processes"]) {
    if (process["service"] == true || is_mps(process)) continue;
    const bool known = attached.count(process["pid"].get<int>()) != 0;
    if (!known && is_elsewhere(process, view)) {
      elsewhere.push_back(process["pid"]);
      continue;
    }
    users.all.push_back(process);
    if (!known) users.unattached.push_back(process);
  }
  if (!elsewhere.empty()) {
    users.unseen.push_back("NVML lists pid " + list(elsewhere) + ", not to be found here");
  }
  if (view["host"] == false) {
    users.unseen.push_back("processes outside of this PID namespace are not seen");
  }
  if (view["hidden"] == true) {
    users.unseen.push_back("/proc leaves processes out (hidepid)");
  }
  if (const json& files = view["unreadable"]; files["count"] != 0) {
    users.unseen.push_back("the open files of " + files["count"].dump() +
                           (files["count"] == 1 ? " process" : " processes") + " of uid " +
                           list(files["uids"]) + " cannot be read");
  }
  if (mps_hides(facts)) users.unseen.push_back("no NVML lists the clients of MPS here");
  return users;
}

}  // namespace heddle::cli
