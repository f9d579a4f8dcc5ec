#include "bench/runner/setting.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <thread>

#include "daemon/base/nearest.h"
#include "daemon/base/version.h"
#include "daemon/policy/files.h"
#include "daemon/policy/lua_policy.h"

namespace heddle::bench {
namespace fs = std::filesystem;
namespace {

// The list was cut at every comma: NAME=VALUE alone belongs to the policy before it.
std::vector<std::string> joined(const std::vector<std::string>& items) {
  std::vector<std::string> out;
  for (const std::string& item : items) {
    const bool parameter =
        item.find('=') != std::string::npos && item.find(':') == std::string::npos;
    if (parameter && !out.empty()) {
      out.back() += "," + item;
    } else if (!item.empty()) {
      out.push_back(item);
    }
  }
  return out;
}

}  // namespace

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string commit() {
  std::string text = version_text();
  text = text.substr(text.find('+') + 1);  // git, its date, its time, and what it is
  if (const char* named = getenv("HEDDLE_COMMIT"); text == "unknown" && named != nullptr) {
    return named;
  }
  for (int i = 0; i < 2 && text != "unknown"; ++i) text = text.substr(text.find('.') + 1);
  return text;
}

Json trees() {
  Json out = Json::object();
  std::istringstream words(tree_hashes());
  for (std::string folder, hash; words >> folder >> hash;) out[folder] = hash;
  return out;
}

scenario::Scenario load(const ScenarioOptions& options) {
  const auto or_throw = [](auto result, const std::string& option) {
    if (!result) throw std::runtime_error(option + result.error().message);
    return *result;
  };
  scenario::Scenario s = or_throw(options.text ? scenario::parse(*options.text, options.scenario)
                                               : scenario::load(options.scenario, options.pair),
                                  "");
  if (options.policies) {
    s.policies.clear();
    for (const std::string& text : joined(*options.policies)) {
      s.policies.push_back(or_throw(scenario::parse_policy(text), "--policies: "));
    }
  }
  if (options.baselines) {
    s.baselines.clear();
    for (const std::string& text : *options.baselines) {
      s.baselines.push_back(or_throw(scenario::parse_baseline(text, s.jobs), "--baselines: "));
    }
  }
  s.repetitions = options.repetitions.value_or(s.repetitions);
  s.block_s = options.block_s.value_or(s.block_s);
  if (options.seed) s.seed = options.seed;
  s.apart = s.apart || options.apart;
  if (!options.profiles.empty()) s.profiles = fs::absolute(options.profiles);
  std::vector<std::string_view> jobs;
  for (const scenario::Job& job : s.jobs) jobs.push_back(job.name);
  for (const scenario::PolicyRow& row : s.policies) {
    if (row.job.empty() || std::find(jobs.begin(), jobs.end(), row.job) != jobs.end()) continue;
    throw std::runtime_error(s.file + ": policies: '" + row.text + "': no job '" + row.job + "'" +
                             did_you_mean(row.job, jobs));
  }
  return s;
}

std::vector<Missing> leave_out_unknown(scenario::Scenario& s, const std::string& folder) {
  std::vector<std::string> names;
  for (const fs::path& file : policy::policy_files(folder)) names.push_back(file.stem());
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::vector<Missing> out;
  std::erase_if(s.policies, [&](const scenario::PolicyRow& row) {
    const bool path = row.policy.find('/') != std::string::npos;
    if (path || std::find(names.begin(), names.end(), row.policy) != names.end()) return false;
    const std::string near = did_you_mean(row.policy, known);
    if (near.find("did you mean") != std::string::npos) {
      throw std::runtime_error(s.file + ": no policy '" + row.policy + "'" + near);
    }
    out.push_back({row.text, "no policy '" + row.policy + "' in " + folder});
    return true;
  });
  return out;
}

std::vector<Missing> find_policies(scenario::Scenario& s) {
  std::vector<Missing> unknown = leave_out_unknown(s, installed("share/heddle/policies"));
  std::vector<std::pair<std::string, core::SmFamily>> families;  // by policy, as in TOML
  for (scenario::PolicyRow& row : s.policies) {
    std::string file = installed("share/heddle/policies/" + row.policy + ".lua");
    if (row.policy.find('/') != std::string::npos) {
      file = row.policy = scenario::resolve(s, row.policy);
    }
    const auto loaded = policy::load_policy_file(file, row.params);  // before any program starts
    if (!loaded) throw std::runtime_error(s.file + ": " + row.text + ": " + loaded.error().message);
    // Processes make their SM sets as they attach, by the policy that is live then. Policies that
    // declare the same sets share them.
    const core::SmFamily family = (*loaded)->family();
    if (family == core::SmFamily{}) continue;
    auto first = std::find_if(families.begin(), families.end(),
                              [&](const auto& known) { return known.second == family; });
    if (first == families.end()) {
      first = families.insert(first, {'"' + fs::path(file).stem().string() + '"', family});
    }
    row.config.emplace("policy.name", first->first);
  }
  return unknown;
}

double blocks_s(const scenario::Scenario& scenario, const std::vector<Row>& rows) {
  constexpr double kAroundS = kLeadS + kSendS + kTailS;
  double seconds = 0;
  for (const Row& row : rows) {
    seconds += scenario.block_s + kAroundS;
    if (!row.policy.empty() && scenario.settle_s > 0) seconds += scenario.settle_s + kAroundS;
  }
  return seconds * scenario.repetitions;
}

Json plan_json(const scenario::Scenario& scenario, const std::vector<Row>& rows) {
  Json names = Json::array();
  for (const Row& row : rows) names.push_back(row.name);
  return {{"name", scenario.name},
          {"about", scenario.about},
          {"jobs", scenario.jobs.size()},
          {"processes", variants(rows).size()},
          {"parts", parts_of(rows, scenario.apart).size()},
          {"repetitions", scenario.repetitions},
          {"blocks_s", blocks_s(scenario, rows)},
          {"rows", names}};
}

Json new_session(const RunOptions& options, const std::string& driver, size_t jobs) {
  utsname host{};
  uname(&host);
  const Placement placement = place(jobs);
  return {{"date", today()},
          {"commit", commit()},
          {"trees", trees()},
          {"command", options.command},
          {"driver", driver},
          {"host", {{"cpus", std::thread::hardware_concurrency()}, {"kernel", host.release}}},
          {"pinned_cpus", {{"jobs", placement.jobs}, {"daemon", placement.daemon}}},
          {"processes", Json::object()}};
}

Folder::Folder(std::string keep) : keep_(std::move(keep)) {
  char name[] = "/tmp/heddle-run-XXXXXX";
  if (mkdtemp(name) == nullptr) throw std::runtime_error("/tmp: cannot be written");
  path_ = name;
}

Folder::~Folder() {
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(path_, none)) {
    if (keep_.empty() || entry.path().extension() != ".log") continue;
    const fs::path target = fs::path(keep_) / fs::relative(entry.path(), path_, none);
    fs::create_directories(target.parent_path(), none);
    fs::copy_file(entry.path(), target, fs::copy_options::overwrite_existing, none);
  }
  fs::remove_all(path_, none);
}

}  // namespace heddle::bench
