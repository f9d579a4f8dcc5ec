// An MPS that heddle did not start, what MPS divides, and hardware queues: settings of others that
// change what heddle can do, and that no error tells of.
#include <algorithm>
#include <map>
#include <set>

#include "daemon/cli/doctor/doctor.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Level = Finding::Level;

constexpr const char* kPercentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
constexpr const char* kStaticPart = "CUDA_MPS_SM_PARTITION";
constexpr const char* kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";
// What `heddle run` asks for (run.cc): fewer are too few for SM sets.
constexpr int kQueuesOfRun = 4;
// The simulated GPU's bytes begin as "heddle".
constexpr std::string_view kSimulated = "GPU-68656464-6c65-";

class Mps {
 public:
  Mps(const json& facts, std::vector<Finding>& findings) : facts_(facts), findings_(findings) {
    const json& daemon = facts.at("daemon");
    if (daemon.at("code") == 0) status_ = daemon.at("status");
    mps_ = facts.value("mps", json());
    runs_ = !mps_.is_null() && mps_.at("pid") != 0;
    for (const json& one : facts.value("variables", json::array())) {
      for (const auto& [name, value] : one.at("values").items()) {
        set_[name][value.get<std::string>()].insert(one.at("pid").get<int>());
      }
    }
  }

  void run() {
    foreign();
    if (runs_ || status_.value("mode", "") == "mps") divided();
    parts();
    queues();
  }

 private:
  void warn(const char* topic, const std::string& text, const char* remedy) {
    findings_.push_back({Level::kWarn, topic, text, remedy});
  }

  static std::string pids(const std::set<int>& all) {
    constexpr size_t kShown = 8;
    std::string text = "pid ";
    size_t shown = 0;
    for (const int pid : all) {
      if (++shown > kShown) return text + " and " + std::to_string(all.size() - kShown) + " more";
      text += (shown == 1 ? "" : ", ") + std::to_string(pid);
    }
    return text;
  }

  // Without a heddled that says so nobody knows who started it.
  void foreign() {
    const json known = status_.value("mps", json::object());
    if (!runs_ || known.value("managed", true)) return;
    const std::string who = "heddle did not start MPS (pid " + mps_.at("pid").dump() + "), ";
    const bool alone = mps_.at("uid") != 0;
    warn("foreign MPS",
         who + (alone ? "which serves the programs of uid " + mps_.at("uid").dump() + " alone"
                      : "and does not start it again"),
         "end it and set [mps] manage = true, or see to it yourself");
  }

  void divided() {
    const json percent = mps_.is_null() ? json() : mps_.value("default_percentage", json());
    if (percent.is_number() && percent < 100) {
      warn("MPS SMs",
           "MPS gives each program " + fixed("%.0f", percent) +
               " % of the SMs, which heddle does not choose",
           "set_default_active_thread_percentage 100 in nvidia-cuda-mps-control, then start its "
           "server again; heddle run --sms keeps one program to some");
    }
    for (const auto& [value, who] : set_[kPercentage]) {
      if (atof(value.c_str()) >= 100) continue;
      warn(
          "MPS SMs",
          pids(who) + ": " + kPercentage + "=" + printable(value) +
              " keeps it to SMs that heddle does not choose, and SM sets of others may be the same",
          "unset it; heddle run --sms, or sms of a rule, keeps a program to SMs of its own");
    }
    const bool is_static = !mps_.is_null() && mps_.value("static", false);
    if (is_static || !set_[kStaticPart].empty()) {
      warn("MPS SMs", "MPS divides the SMs statically: each program has a part alone, idle or not",
           "start MPS without -S where programs are to use what others leave idle");
    }
  }

  // Their UUIDs are their own, and NVML has those of whole GPUs; of MIG instances likewise. A
  // container's NVML leaves GPUs out.
  void parts() {
    const json gpus = facts_.at("nvml").value("gpus", json::array());
    if (gpus.empty() || facts_.at("view").at("host") == false) return;
    std::set<std::string> whole;
    for (const json& gpu : gpus) {
      const std::string uuid = gpu.value("uuid", "");
      if (uuid.empty() || gpu.value("mig", false)) return;
      whole.insert(uuid);
    }
    for (const json& device : status_.value("devices", json::array())) {
      const std::string uuid = device.value("uuid", "");
      if (uuid.empty() || uuid.starts_with(kSimulated) || whole.contains(uuid)) continue;
      warn(
          "MLOPart",
          "NVML does not list " + printable(uuid) +
              ": if it is an MLOPart device of MPS, heddle schedules it as a GPU of its own, apart "
              "from the rest of the GPU",
          "to let heddle order all of the GPU, start MPS's server without -mlopart");
    }
  }

  void queues() {
    for (const auto& [value, who] : set_[kQueues]) {
      const int queues = atoi(value.c_str());
      const std::string begin = pids(who) + ": " + kQueues + "=" + printable(value) + ": ";
      if (queues < kQueuesOfRun) {
        warn("queues", begin + "no SM sets, and a launch that is held may hold all its streams",
             "unset it: heddle run asks for 4; where the program needs it, HEDDLE_GATES=0 lets its "
             "threads wait instead");
      } else if (queues > kQueuesOfRun && runs_) {
        warn("queues",
             begin +
                 "takes so many of the about 120 queues of MPS, which refuses programs when "
                 "none is left",
             "unset it, unless the program needs them: heddle run asks for 4");
      }
    }
  }

  const json& facts_;
  std::vector<Finding>& findings_;
  json status_ = json::object(), mps_;
  bool runs_ = false;
  std::map<std::string, std::map<std::string, std::set<int>>> set_;  // variable, value, by whom
};

}  // namespace

std::vector<Finding> examine_mps(const json& facts) {
  std::vector<Finding> findings;
  Mps(facts, findings).run();
  return findings;
}

}  // namespace heddle::cli
