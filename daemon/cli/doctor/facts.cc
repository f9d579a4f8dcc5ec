#include <gnu/libc-version.h>
#include <unistd.h>

#include <set>

#include "daemon/base/version.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/doctor/probe.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/pods.h"
#include "daemon/cli/run/entry_points.h"
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
  return facts;
}

}  // namespace heddle::cli
