#include "daemon/cli/doctor/doctor.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"
#include "daemon/cli/run/cdi.h"
#include "ipc/kernel_id.h"

namespace heddle::cli {
namespace {

using nlohmann::json;
using Level = Finding::Level;
using ipc::kCudaFloor;

// NVML's nvmlComputeMode_t.
enum ComputeMode { kDefault = 0, kProhibited = 2, kExclusiveProcess = 3 };

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string octal(const json& mode) {
  std::ostringstream text;
  text << '0' << std::oct << mode.get<int>();
  return text.str();
}

// The first of them.
std::string names(const json& all) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + printable(all[i]);
  }
  if (all.size() > kShown) text += " and " + std::to_string(all.size() - kShown) + " more";
  return text;
}

class Examination {
 public:
  explicit Examination(const json& facts) : facts_(facts), gpu_users_(gpu_users(facts)) {
    const json& answer = facts.at("daemon");
    if (answer.at("code") == kOk) {
      status_ = &answer.at("status");
      ps_ = &answer.at("ps");
    }
  }

  std::vector<Finding> run() {
    using E = Examination;
    for (const auto check : {&E::shim, &E::driver, &E::entry_points, &E::gpus, &E::mps,
                             &E::managed_mps, &E::daemon, &E::socket}) {
      look(check);
    }
    if (status_ != nullptr) {
      for (const auto check : {&E::configuration, &E::clients}) look(check);
    }
    for (const auto check : {&E::unattached, &E::environment}) look(check);
    return std::move(findings_);
  }

 private:
  // What a daemon of another release does not say ends one check, and no other.
  void look(void (Examination::*check)()) {
    try {
      (this->*check)();
    } catch (const json::exception& error) {
      add(Level::kWarn, "daemon", std::string("does not say all that this asks: ") + error.what(),
          "install heddled and heddle from the same release, and restart heddled");
    }
  }

  void add(Level level, const std::string& topic, const std::string& text,
           const std::string& remedy = "") {
    findings_.push_back({level, topic, text, remedy});
  }

  void shim() {
    const json& s = facts_.at("shim");
    const std::string path = s.at("path");
    if (s.contains("error")) {
      return add(Level::kError, "shim", s.at("error"),
                 "heddle belongs into the bin/ of an install tree; install it again");
    }
    if (const std::string obstacle = facts_.at("libc").at("obstacle"); !obstacle.empty()) {
      return add(Level::kError, "shim", obstacle, "run programs of this system without heddle");
    }
    if (!s.contains("protocol")) {
      return add(Level::kWarn, "shim", path + ": not known whether it loads", "see driver");
    }
    const std::string ours = facts_.at("protocol").dump(), its = s.at("protocol").dump();
    if (its != ours) {
      return add(Level::kError, "shim", path + " speaks protocol " + its + ", this heddle " + ours,
                 "install both from the same release");
    }
    const std::string version = facts_.at("version"), commit = s.value("commit", "an older build");
    if (!version.ends_with("+" + commit)) {
      return add(Level::kWarn, "shim", path + " is of " + commit + ", this heddle is " + version,
                 "install both from the same build");
    }
    add(Level::kOk, "shim",
        path + ", loads on glibc " + facts_.at("libc").at("version").get<std::string>());
  }

  void driver() {
    const json& d = facts_.at("driver");
    const std::string path = d.value("path", "");
    if (path.empty()) {
      const std::string named = facts_.at("environment").at("real_libcuda");
      if (!named.empty()) {
        return add(Level::kError, "driver", "HEDDLE_REAL_LIBCUDA=" + named + " cannot be used",
                   "unset it, or name the real libcuda.so.1");
      }
      const std::string why = d.value("error", "");
      const bool hangs = why.find("driver") != std::string::npos;
      return add(hangs ? Level::kError : Level::kWarn, "driver",
                 hangs ? why : "no CUDA driver on this machine",
                 hangs ? "see whether nvidia-smi answers"
                       : "install NVIDIA's; to try heddle without a GPU: heddle run --sim");
    }
    const int version = d.at("version");
    if (d.contains("error") || version < kCudaFloor) {
      return add(Level::kError, "driver", path + ", CUDA " + cuda_version(version),
                 "heddle needs a driver for CUDA " + cuda_version(kCudaFloor) + " or newer");
    }
    add(Level::kOk, "driver", path + ", CUDA " + cuda_version(version));
  }

  // What a driver newer than the shim's table has more.
  void entry_points() {
    if (!facts_.contains("entry_points")) return;  // no driver, and said so
    const json& e = facts_.at("entry_points");
    if (e.contains("error"))
      return add(Level::kNone, "entry points", "not known: " + e.value("error", ""));
    const std::string table = "the shim's table is of CUDA " + cuda_version(e.at("table"));
    if (e.at("past").empty()) {
      add(Level::kOk, "entry points",
          "every launch and wait of this driver goes through the shim, " + table);
    } else {
      add(Level::kWarn, "entry points",
          "the driver has some that may launch or wait past heddle, " + table + ": " +
              names(e.at("past")),
          "install a heddle with a newer table; programs that use these by cuGetProcAddress "
          "are not managed in full");
    }
    if (e.at("unknown").empty()) return;
    add(Level::kWarn, "entry points",
        "the driver has some that the shim lacks: " + names(e.at("unknown")),
        "install a heddle with a newer table; programs that look these up by name in libcuda.so.1 "
        "do not find them under heddle");
  }

  bool has_gpus() const { return facts_.at("nvml").contains("gpus"); }
  bool mps_runs() const { return !facts_.at("mps").is_null() && facts_.at("mps").at("pid") != 0; }

  void gpus() {
    if (!has_gpus()) {
      return add(Level::kNone, "gpu", "compute modes and processes are not known: no NVML here");
    }
    if (facts_.at("nvml").at("gpus").empty()) return add(Level::kNone, "gpu", "NVML lists no GPU");
    for (const json& gpu : facts_.at("nvml").at("gpus")) {
      const std::string index = gpu.at("index").dump();
      if (gpu.contains("error") || gpu.at("compute_mode").is_null()) {
        add(Level::kWarn, "gpu", "GPU " + index + ": NVML does not say whether programs may use it",
            "see what nvidia-smi -q -i " + index + " says of it");
        continue;
      }
      const std::string name = "GPU " + index + ", " + printable(gpu.at("name"));
      const int mode = gpu.at("compute_mode");
      if (mode == kProhibited) {
        add(Level::kError, "gpu", name + ": compute mode Prohibited, nothing runs on it",
            "sudo nvidia-smi -i " + index + " -c DEFAULT");
      } else if (mode == kExclusiveProcess && !mps_runs()) {
        add(Level::kError, "gpu",
            name + ": compute mode Exclusive Process, no second program gets in",
            "start MPS, or sudo nvidia-smi -i " + index + " -c DEFAULT");
      } else {
        add(Level::kOk, "gpu", name + ": programs may share it");
      }
    }
  }

  void mps() {
    const json& m = facts_.at("mps");
    const std::string mode = status_ != nullptr ? status_->value("mode", "") : "";
    if (m.is_null()) {
      const auto told = ps_ != nullptr ? examine_told_mode(*ps_, mode) : std::nullopt;
      if (told) return findings_.push_back(*told);
      if (mode == "mps") {
        return add(Level::kWarn, "mode", "heddled expects MPS, and none runs here",
                   "start MPS before the first program, or set [gpu] mode and restart heddled");
      }
      for (const json& process : facts_.at("gpu_processes")) {
        if (!is_mps(process)) continue;
        return add(Level::kWarn, "mode", "an MPS runs, and its pipes are not where this looks",
                   "set CUDA_MPS_PIPE_DIRECTORY as its clients do");
      }
      return add(Level::kOk, "mode", "time-sliced: no MPS in this environment");
    }
    const std::string where = m.at("directory");
    if (m.at("pid") == 0) {
      return add(Level::kWarn, "mode", where + " holds pipes of an MPS whose process is not there",
                 "start MPS, or remove the directory");
    }
    if (mode == "timeslice") {
      add(Level::kWarn, "mode", "MPS runs, and heddled takes the GPU for time-sliced",
          "set [gpu] mode = \"mps\" and restart heddled");
    } else {
      add(Level::kOk, "mode", "MPS in " + where + ", pid " + m.at("pid").dump());
    }
    if (m.at("shares_cgroup_with") != 0) {
      add(Level::kWarn, "mps",
          "MPS runs in heddled's cgroup: it ends with heddled, and every client too",
          "start MPS as a unit of its own: [mps] manage = true, under systemd");
    }
    mps_users(m);
  }

  // What heddled knows of the MPS that it manages.
  void managed_mps() {
    const json known = status_ != nullptr ? status_->value("mps", json::object()) : json::object();
    if (!known.value("managed", false)) return;
    if (known.at("wanted") == false) {
      add(Level::kWarn, "mps", "heddled was told to stop the MPS that it manages",
          "heddle mps start");
    } else if (const std::string error = known.at("error"); !error.empty()) {
      const size_t remedy = error.find("; ");
      add(Level::kError, "mps", error.substr(0, remedy),
          remedy == std::string::npos ? "see heddled's log" : error.substr(remedy + 2));
    }
    for (const json& process : known.at("waiting")) {
      add(Level::kError, "mps",
          "pid " + process.at("pid").dump() + " of uid " + process.at("uid").dump() +
              " waits inside cuInit: MPS serves one user at a time, and has another's programs",
          "run them as one user, or without MPS; heddle mps status names them");
    }
  }

  // MPS serves the programs of one user at a time; those of another wait inside cuInit.
  void mps_users(const json& m) {
    std::set<int64_t> users, others;
    if (ps_ != nullptr) {
      for (const json& client : (*ps_).at("clients")) users.insert(client.at("uid").get<int64_t>());
    }
    // Whoever only has a GPU open may not compute: NVML's processes do.
    for (const json& process : gpu_users_.all) {
      if (process.at("uid").is_null()) continue;
      (process.at("listed") == true ? users : others).insert(process.at("uid").get<int64_t>());
    }
    const auto list = [](const std::set<int64_t>& uids) {
      std::string text;
      for (const int64_t uid : uids) text += (text.empty() ? "" : ", ") + std::to_string(uid);
      return text;
    };
    others.insert(users.begin(), users.end());
    if (users.size() > 1) {
      add(Level::kError, "mps",
          "programs of several users (uid " + list(users) +
              ") under one MPS: each "
              "user's wait inside cuInit until the other's are gone",
          "run them as one user, or without MPS");
    } else if (m.at("uid") != 0 && m.at("uid") != facts_.at("uid") && facts_.at("uid") != 0) {
      add(Level::kWarn, "mps",
          "MPS belongs to uid " + m.at("uid").dump() + " and serves nobody else",
          "run as that user, or let root start MPS");
    } else if (others.size() > 1) {
      add(Level::kWarn, "mps",
          "serves one user at a time, and programs of several (uid " + list(others) +
              ") have a GPU open",
          "run them as one user, or without MPS");
    } else if (!gpu_users_.unseen.empty() && !heddled_asks_mps()) {
      add(Level::kWarn, "mps",
          "serves one user at a time; whether there is a second one is not known: " + unseen(),
          kSeeAll);
    } else {
      add(Level::kOk, "mps", "one user at a time is served, and there is no second one");
    }
  }

  // Then heddled names who waits: managed_mps().
  bool heddled_asks_mps() const {
    const json known = status_ != nullptr ? status_->value("mps", json::object()) : json::object();
    return known.value("managed", false) && known.value("answers", false);
  }

  void daemon() {
    const json& answer = facts_.at("daemon");
    if (status_ == nullptr) {
      const std::string error = answer.at("error");
      const size_t remedy = error.find("; ");
      return add(Level::kError, "daemon", error.substr(0, remedy),
                 remedy == std::string::npos ? "see its log" : error.substr(remedy + 2));
    }
    const std::string version = status_->value("version", "unknown");
    const std::string who = "heddled " + version + ", pid " + (*status_).at("pid").dump();
    if ((*status_).at("protocol") != facts_.at("protocol")) {
      add(Level::kError, "daemon",
          who + " speaks protocol " + (*status_).at("protocol").dump() + ", this install tree " +
              facts_.at("protocol").dump(),
          "restart heddled from this install tree; programs are unmanaged until they start again");
    } else if (version != facts_.at("version")) {
      add(Level::kWarn, "daemon",
          who + "; this heddle is " + facts_.at("version").get<std::string>(),
          "restart heddled from this install tree; programs run on meanwhile");
    } else {
      add(Level::kOk, "daemon", who);
    }
    if ((*status_).at("bypass") == true) {
      add(Level::kWarn, "bypass", "is on: every launch runs freely", "heddle bypass off");
    }
  }

  void socket() {
    const json& s = facts_.at("socket");
    const std::string path = s.at("path");
    if (s.at("exists") == false) return;  // the daemon's finding says so
    const int64_t uid = s.at("uid"), directory_uid = s.value("directory_uid", int64_t{0});
    const int mode = s.value("directory_mode", 0755);
    if (s.at("is_socket") == false) {
      add(Level::kError, "socket", path + " is no socket", "remove it and restart heddled");
    } else if (uid != 0 && uid != facts_.at("uid")) {
      add(Level::kWarn, "socket",
          path + " belongs to uid " + std::to_string(uid) + ", who decides over your launches",
          "ask who runs that heddled, or name another socket");
    } else if ((mode & 02) != 0 && (mode & 01000) == 0) {
      add(Level::kWarn, "socket",
          path + ": anybody may replace it (directory mode " + octal(s.at("directory_mode")) + ")",
          "chmod o-w its directory");
    } else if (directory_uid != 0 && directory_uid != uid) {
      add(Level::kWarn, "socket",
          path + ": uid " + std::to_string(directory_uid) +
              " owns its directory and may replace it",
          "put the socket into a directory of its own");
    } else if (s.at("writable") == false) {
      add(Level::kError, "socket", path + ", mode " + octal(s.at("mode")) + ": you may not attach",
          "ask an administrator for [daemon] mode");
    } else {
      add(Level::kOk, "socket", path + ", mode " + octal(s.at("mode")));
    }
  }

  void configuration() {
    const json config = status_->value("config", json::object());  // an older daemon has none
    const std::string error = config.value("error", "");
    if (!error.empty()) {
      add(Level::kError, "configuration", "not read again: " + printable(error),
          "mend it and send heddled SIGHUP; what was read before is in force");
    }
    for (const json& rule : config.value("unresolved", json::array())) {
      add(Level::kWarn, "configuration", unresolved_text(rule),
          "mend the name, or write the number; it is looked up again each minute");
    }
    for (const json& table : config.value("needs_restart", json::array())) {
      add(Level::kWarn, "configuration", printable(table) + " has changed since heddled started",
          "restart heddled");
    }
  }

  void clients() {
    static const std::map<std::string, std::string> kRemedies = {
        {"pool", "more threads launch than a process has slots: 64"},
        {"starved", "the policy held them for [gpu] starvation_ms; see heddle status"},
        {"forced", "the program writes heddle's gates itself; ask its user why"},
        {"stale", "heddled did not run for half a second; give it a CPU"},
    };
    size_t bypasses = 0;
    for (const json& client : (*ps_).at("clients")) {
      const std::string who = "client " + client.at("id").dump() + " (pid " +
                              client.at("pid").dump() + ", " + printable(client.at("label")) + ")";
      if (client.at("managed") == false) {
        add(Level::kWarn, "client", who + " is not managed: " + printable(client.at("reason")),
            "restart the program");
        ++bypasses;
      }
      for (const auto& [reason, remedy] : kRemedies) {
        const uint64_t count = client.at("counters").at("self").value(reason, uint64_t{0});
        if (count == 0) continue;
        ++bypasses;
        add(Level::kWarn, "client",
            who + ": " + std::to_string(count) + " launches did not wait (" + reason + ")", remedy);
      }
      const uint64_t dropped = client.at("counters").at("dropped");
      if (dropped == 0) continue;
      ++bypasses;
      add(Level::kWarn, "client",
          who + ": " + std::to_string(dropped) + " records found their ring full",
          "give heddled a CPU; spin_us wakes it earlier");
    }
    if (bypasses == 0 && !ps_->value("truncated", false) && (*status_).at("bypass") == false) {
      add(Level::kOk, "client",
          (*ps_).at("total").dump() + " attached; no launch went past its gate");
    }
  }

  std::string unseen() const {
    std::string text;
    for (const std::string& what : gpu_users_.unseen) text += (text.empty() ? "" : "; ") + what;
    return text;
  }

  void unattached() {
    if (ps_ != nullptr && !knows_all_pids(*ps_)) {
      return add(Level::kNone, "bypassed", "not known: more clients than one answer holds");
    }
    for (const json& process : gpu_users_.unattached) {
      const bool computes = process.at("listed") == true;
      add(Level::kWarn, "bypassed",
          process_text(process) + (computes ? " uses a GPU" : " has a GPU open") +
              " and is not attached",
          process.contains("pod") ? kPodRemedy : kProcessRemedy);
    }
    const std::string others = gpu_users_.unattached.empty() ? "not known: " : "others not known: ";
    if (!gpu_users_.unseen.empty()) {
      const bool gpu = has_gpus() || !facts_.at("driver").value("path", "").empty();
      return add(gpu ? Level::kWarn : Level::kNone, "bypassed", others + unseen(),
                 gpu ? kSeeAll : "");
    }
    if (!gpu_users_.unattached.empty()) return;
    const size_t users = gpu_users_.all.size();
    if (users == 0) return add(Level::kOk, "bypassed", "no program uses a GPU past heddle");
    add(Level::kOk, "bypassed", "all " + std::to_string(users) + " programs on a GPU are attached");
  }

  void environment() {
    const json& e = facts_.at("environment");
    if (e.at("disabled") == true) {
      add(Level::kWarn, "environment",
          "HEDDLE_DISABLE is set: programs started here are not managed", "unset HEDDLE_DISABLE");
    }
    bool sound = true;
    const auto look = [&](const json& list, const std::string& place) {
      for (const json& entry : list) {
        const std::string path = printable(entry.at("path"));
        if (entry.at("exists") == false) {
          sound = false;
          add(Level::kWarn, "preload",
              place + " names " + path +
                  ", which is not there: the loader "
                  "complains at every start",
              "take it out");
        } else if (is_other_interposer(path)) {
          sound = false;
          add(Level::kWarn, "preload",
              place + " names " + path + ", which stands in for the driver too",
              "use one of the two");
        }
      }
    };
    look(e.at("ld_preload"), "LD_PRELOAD");
    look(e.at("system_preload"), "/etc/ld.so.preload");
    if (sound) add(Level::kOk, "preload", "nothing in the way");
  }

  // Others that preload themselves between programs and the driver: HAMi, vgpu-manager, nvshare,
  // XSched, Tally; and a driver, or a shim, of elsewhere.
  bool is_other_interposer(const std::string& path) const {
    if (path == facts_.at("shim").at("path")) return false;
    // Inside of a container: both that the CDI hook adds.
    if (path.rfind(std::string(kContainerLibraries) + "/libcuda.so", 0) == 0) return false;
    const auto parts = {"libvgpu",  "libnvshare", "libshimcuda",
                        "libtally", "libcuda.so", "libcuda-control"};
    return std::ranges::any_of(parts, [&](auto part) { return path.find(part) != path.npos; });
  }

  const json& facts_;
  const GpuUsers gpu_users_;
  const json* status_ = nullptr;  // of the daemon, if it answers
  const json* ps_ = nullptr;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> examine_host(const json& facts) { return Examination(facts).run(); }

}  // namespace heddle::cli
