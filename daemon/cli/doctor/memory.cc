// Limits on device memory: those that are set and hold nobody, as MPS drops its own without a word,
// and what else this host could hold programs with.
#include <set>

#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Level = Finding::Level;

constexpr const char* kTopic = "memory";
constexpr const char* kVariable = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
constexpr int kNamedServers = 615;  // drivers from here on have namespaces of MPS

// The devices that "0=20G,1=10G" or "0,1" names; empty where one is no number.
std::set<int> devices_in(const std::string& list) {
  std::set<int> all;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    const size_t digits = std::min(item.find_first_not_of("0123456789"), item.size());
    if (digits == 0 || digits > 3) return {};  // UUIDs
    all.insert(std::stoi(item));
    at = end + 1;
  }
  return all;
}

class Memory {
 public:
  Memory(const json& facts, std::vector<Finding>& findings) : facts_(facts), findings_(findings) {}

  void run() {
    const json& environment = facts_.at("environment");
    limit_ = environment.value("mps_memory_limit", "");
    visible_ = environment.value("visible_devices", "");
    gpus_ = facts_.at("nvml").value("gpus", json::array()).size();
    absent_gpu();
    if (!limit_.empty()) mps_limit();
    host_limits();
    clients();
  }

 private:
  void add(Level level, const std::string& text, const std::string& remedy) {
    findings_.push_back({level, kTopic, text, remedy});
  }

  // The server that such an environment starts has no GPU, and its limits nobody.
  void absent_gpu() {
    if (gpus_ == 0 || facts_.at("mps").is_null()) return;
    for (const int device : devices_in(visible_)) {
      if (device < static_cast<int>(gpus_)) continue;
      return add(Level::kWarn,
                 "CUDA_VISIBLE_DEVICES names GPU " + std::to_string(device) + " of " +
                     std::to_string(gpus_) + ": an MPS server that names an absent one has none",
                 "correct it, and start MPS anew");
    }
  }

  void mps_limit() {
    if (facts_.at("mps").is_null()) {
      return add(Level::kWarn,
                 std::string(kVariable) + " is set, and no MPS answers here: it holds nobody",
                 "set CUDA_MPS_PIPE_DIRECTORY as the MPS that is meant has it, or start that");
    }
    const std::set<int> seen = devices_in(visible_);
    const size_t count = seen.empty() ? gpus_ : seen.size();
    for (const int device : devices_in(limit_)) {
      if (count == 0 || device < static_cast<int>(count)) continue;
      return add(Level::kWarn,
                 std::string(kVariable) + " names device " + std::to_string(device) + " of " +
                     std::to_string(count) + ": MPS drops the whole of it",
                 "name devices that the program sees, counted from 0 as it counts them");
    }
    const std::string driver = facts_.at("nvml").value("driver_version", "0");
    if (std::atoi(driver.c_str()) >= kNamedServers) {
      add(Level::kWarn,
          std::string(kVariable) +
              " is of MPS's default namespace: a named one does not inherit it",
          "set the limit of each named namespace, or a limit in heddled's rules");
    }
    add(Level::kWarn,
        std::string(kVariable) + " holds processes, not teams; tools show the whole GPU",
        "for a group, and for what programs see, set memory in heddled's rules");
  }

  // What drivers from 615 on and Linux from 6.14 on have. heddle sets neither.
  void host_limits() {
    constexpr const char* kOwn = " present, heddle's own limit is in force";
    if (facts_.at("nvml").value("memory_limits", false)) {
      add(Level::kOk, std::string("NVML's limits by cgroup are") + kOwn, "");
    }
    const json cgroup = facts_.value("cgroup", json::object());
    if (!cgroup.value("dmem", false)) return;
    add(Level::kOk, "the cgroup controller dmem of " + printable(cgroup.at("root")) + " is" + kOwn,
        "");
  }

  // Who is to be held to a limit and is not.
  void clients() {
    const json& answer = facts_.at("daemon");
    if (answer.at("code") != 0) return;
    size_t limited = 0;
    for (const json& client : answer.at("ps").at("clients")) {
      const bool meant =
          !client.value("memory", "").empty() || !client.value("memory_asked", "").empty();
      if (!meant) continue;
      ++limited;
      if (client.value("memory_by", "").find("shim") != std::string::npos) continue;
      add(Level::kWarn,
          "client " + client.at("id").dump() + " (pid " + client.at("pid").dump() +
              ") has a limit, and its shim is older than limits",
          "start the program again with this release's heddle run");
    }
    if (limited > 0) {
      findings_.push_back({Level::kOk, kTopic,
                           std::to_string(limited) +
                               (limited == 1 ? " client is" : " clients are") +
                               " held to limits by the shim, as long as they keep it",
                           ""});
    }
  }

  const json& facts_;
  std::vector<Finding>& findings_;
  std::string limit_, visible_;
  size_t gpus_ = 0;
};

}  // namespace

std::vector<Finding> examine_memory(const json& facts) {
  std::vector<Finding> findings;
  Memory(facts, findings).run();
  return findings;
}

}  // namespace heddle::cli
