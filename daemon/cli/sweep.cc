#include "daemon/cli/sweep.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#include "daemon/base/files.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/print.h"

extern char** environ;

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using profiles::Profile;

constexpr double kStartS = 10, kStopS = 20;

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void nap() {
  const timespec pause{0, 20'000'000};
  nanosleep(&pause, nullptr);
}

// A process in a group of its own, which is gone with this object.
class Child {
 public:
  Child(const std::vector<std::string>& words, const fs::path& log) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (!log.empty()) {
      posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      posix_spawn_file_actions_adddup2(&files, 1, 2);
    }
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    if (posix_spawnp(&pid_, arguments[0], &files, &attributes, arguments.data(), environ) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (!ended()) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  bool ended() {
    if (pid_ > 0 && !status_) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    }
    return pid_ <= 0 || status_.has_value();
  }
  bool wait(double patience_s) {
    const double until = seconds() + patience_s;
    while (!ended() && seconds() < until) nap();
    return ended();
  }
  void terminate() {
    if (!ended()) kill(pid_, SIGTERM);
  }
  bool succeeded() const { return status_ && WIFEXITED(*status_) && WEXITSTATUS(*status_) == 0; }

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

struct SizeRun {
  std::vector<Profile> profiles;
  std::string error;  // "" if the program ended well
};

std::string last_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line, last;
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  return printable(last.substr(0, 300));
}

std::vector<Profile> profiles_in(const fs::path& folder) {
  std::vector<Profile> all;
  for (const std::string& file : files_of({folder.string()}, ".toml", Depth::kDirectory)) {
    if (Result<Profile> profile = profiles::load(file)) all.push_back(std::move(*profile));
  }
  return all;
}

// One run of the program on `groups` groups, 0: on all, under a daemon of its own in `folder`.
SizeRun run_on(const SweepOptions& options, const fs::path& folder, uint32_t groups) {
  SizeRun out;
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path profiles = folder / "profiles", socket = folder / "socket";
  fs::create_directories(profiles);
  fs::permissions(profiles, fs::perms::owner_all);
  std::ofstream(folder / "heddled.toml")
      << "[daemon]\nsocket = \"" << socket.string()
      << "\"\n[policy]\nname = \"builtin\"\nwatch = false\n"
      << "[profiles]\nruns = " << options.runs << "\ndirectory = \"" << profiles.string() << "\"\n";
  Child daemon({(bin / "heddled").string(), "--config", (folder / "heddled.toml").string()},
               folder / "heddled.log");
  server::Request status;
  status.kind = server::Request::Kind::kStatus;
  const double until = seconds() + kStartS;
  while (!daemon.ended() && seconds() < until && ask(socket.string(), status, 200).code != kOk)
    nap();
  if (daemon.ended() || seconds() >= until) {
    out.error = "heddled did not start: " + last_line(folder / "heddled.log");
    return out;
  }
  std::vector<std::string> words = {(bin / "heddle").string(), "--socket", socket.string(), "run",
                                    "--quiet"};
  if (options.program.sim) words.emplace_back("--sim");
  if (groups != 0) {
    words.insert(words.end(), {"--sms", std::to_string(groups * options.group_sms)});
  }
  words.emplace_back("--");
  words.insert(words.end(), options.program.command.begin(), options.program.command.end());
  {
    Child program(words, folder / "program.log");
    if (!program.wait(options.timeout_s)) {
      out.error = "did not end within " + std::to_string(static_cast<int>(options.timeout_s)) +
                  " s; no kernel of it is given this size";
    } else if (!program.succeeded()) {
      out.error = "failed: " + last_line(folder / "program.log");
    }
  }
  daemon.terminate();
  daemon.wait(kStopS);
  if (out.error.empty()) out.profiles = profiles_in(profiles);
  if (out.error.empty() && out.profiles.empty()) {
    out.error = "ended before " + std::to_string(options.runs) +
                " runs and a second were measured; let it run for longer, or lower --runs";
  }
  return out;
}

std::string size_text(const SweepOptions& options, uint32_t groups) {
  return groups == 0 ? "all SMs" : std::to_string(groups * options.group_sms) + " SMs";
}

}  // namespace

size_t add_to_curve(core::TaskProfile& into, const core::TaskProfile& on, uint32_t groups) {
  const std::string key = groups == 0 ? "us_on_all" : "us_on_" + std::to_string(groups);
  const size_t metric = ipc::metric_of(key);
  if (metric == ipc::kKernelMetricCount) return 0;
  std::map<uint64_t, double> means;
  for (const core::KernelProfile& k : on.kernels) {
    if (k.duration.count > 0) means[k.facts.id] = static_cast<double>(k.duration.mean_us);
  }
  size_t found = 0;
  for (core::KernelProfile& k : into.kernels) {
    const auto mean = means.find(k.facts.id);
    if (mean == means.end()) continue;
    k.facts.metrics.set(metric, mean->second);
    ++found;
  }
  return found;
}

int sweep(const SweepOptions& options) {
  char name[] = "/tmp/heddle-sweep-XXXXXX";
  if (mkdtemp(name) == nullptr) {
    return show_error(options.as_json, {kFailed, std::string("/tmp: ") + strerror(errno), {}});
  }
  const fs::path folder = name;
  json sizes = json::array();
  std::vector<Profile> whole;
  std::vector<uint32_t> order = {0};
  order.insert(order.end(), options.groups.begin(), options.groups.end());
  for (const uint32_t groups : order) {
    const fs::path place = folder / std::to_string(groups);
    const SizeRun run = run_on(options, place, groups);
    if (groups == 0 && !run.error.empty()) {
      fs::remove_all(folder);
      return show_error(options.as_json, {kFailed, "on all SMs the program " + run.error, {}});
    }
    if (groups == 0) whole = run.profiles;
    size_t kernels = 0;
    for (Profile& profile : whole) {
      for (const Profile& on : run.profiles) {
        if (on.command == profile.command && on.label == profile.label) {
          kernels += add_to_curve(profile.task, on.task, groups);
        }
      }
    }
    sizes.push_back({{"groups", groups}, {"kernels", kernels}, {"error", run.error}});
    std::cerr << "heddle: on " << size_text(options, groups) << ": "
              << (run.error.empty() ? std::to_string(kernels) + " kernels measured" : run.error)
              << '\n';
  }
  json files = json::array();
  std::string failed;
  for (Profile& profile : whole) {
    const std::string file = (fs::path(options.output) / profiles::file_name(profile)).string();
    if (Result<void> done = profiles::save(file, profile); !done) failed = done.error().message;
    files.push_back(file);
    if (!options.as_json) std::cout << printable(file) << '\n';
  }
  fs::remove_all(folder);
  if (!failed.empty()) return show_error(options.as_json, {kFailed, failed, {}});
  if (options.as_json) write_json({{"files", files}, {"sizes", sizes}});
  return kOk;
}

}  // namespace heddle::cli
