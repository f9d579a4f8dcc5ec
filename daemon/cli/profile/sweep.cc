#include "daemon/cli/profile/profile.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "daemon/cli/child.h"
#include "daemon/cli/daemon.h"
#include "daemon/cli/look/print.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using profiles::Profile;

struct SizeRun {
  std::vector<Profile> profiles;
  std::string error;  // "" if the program ended well
};

// One run of the program on `groups` groups, 0: on all, under a daemon of its own in `folder`.
SizeRun run_on(const SweepOptions& options, const fs::path& folder, core::GroupCount groups) {
  SizeRun out;
  OwnDaemon daemon(folder, options.runs);
  out.error = daemon.error();
  if (!out.error.empty()) return out;
  std::vector<std::string> words = daemon.run_words(options.program.sim);
  if (groups.get() != 0) {
    words.insert(words.end(), {"--sms", std::to_string(groups.get() * options.group_sms)});
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
  daemon.stop();
  if (out.error.empty()) out.profiles = daemon.profiles();
  if (out.error.empty() && out.profiles.empty()) {
    out.error = "ended before " + std::to_string(options.runs) +
                " runs and a second were measured; let it run for longer, or lower --runs";
  }
  return out;
}

std::string size_text(const SweepOptions& options, core::GroupCount groups) {
  if (groups.get() == 0) return "all SMs";
  return std::to_string(groups.get() * options.group_sms) + " SMs";
}

}  // namespace

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
  for (const uint32_t n : order) {
    const core::GroupCount groups(n);
    const fs::path place = folder / std::to_string(n);
    const SizeRun run = run_on(options, place, groups);
    if (n == 0 && !run.error.empty()) {
      fs::remove_all(folder);
      return show_error(options.as_json, {kFailed, "on all SMs the program " + run.error, {}});
    }
    if (n == 0) whole = run.profiles;
    size_t kernels = 0;
    for (Profile& profile : whole) {
      for (const Profile& on : run.profiles) {
        if (on.command == profile.command && on.label == profile.label) {
          kernels += profiles::add_to_curve(profile.task, on.task, groups);
        }
      }
    }
    sizes.push_back({{"groups", n}, {"kernels", kernels}, {"error", run.error}});
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
