#include "daemon/server/config.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <tuple>

#include "daemon/base/files.h"
#include "daemon/base/owners.h"
#include "daemon/server/config_section.h"
#include "daemon/server/rules.h"
#include "ipc/memory.h"
#include "ipc/sm_set.h"

namespace heddle::server {
namespace {

// A socket's path has 107 bytes at most, and MPS appends up to "/control_privileged".
constexpr size_t kPipeDirectoryMax = 88;
constexpr off_t kFileMost = 1 << 20;

std::string read_daemon(const toml::table& table, const std::string& file, Config& config) {
  Section s(table, "daemon", file);
  s.text("socket", config.socket);
  if (const toml::node* node = s.find("mode")) {
    const std::string digits = node->value<std::string>().value_or("");
    if (digits.size() < 3 || digits.size() > 4 ||
        digits.find_first_not_of("01234567") != std::string::npos) {
      s.bad(*node, "mode", "an octal mode in quotes, such as \"0666\"");
    } else {
      config.socket_mode = static_cast<mode_t>(std::stoul(digits, nullptr, 8));
    }
  }
  s.choice<LogLevel>("log_level",
                     {{"debug", LogLevel::kDebug},
                      {"info", LogLevel::kInfo},
                      {"warning", LogLevel::kWarning},
                      {"error", LogLevel::kError}},
                     config.log_level);
  s.integer("spin_us", 0, 10'000, config.spin_us);
  s.flag("gates", config.gates);
  s.choice<ReportSetting>("report",
                          {{"each", ReportSetting::kEach},
                           {"rows", ReportSetting::kRows},
                           {"samples", ReportSetting::kSamples}},
                          config.report);
  return s.finish();
}

std::string read_gpu(const toml::table& table, const std::string& file, Config& config) {
  Section s(table, "gpu", file);
  core::Config& core = config.core;
  s.choice<GpuMode>(
      "mode",
      {{"auto", GpuMode::kAuto}, {"mps", GpuMode::kMps}, {"timeslice", GpuMode::kTimeslice}},
      config.gpu_mode);
  s.choice<StopsSetting>("stops", kStopsWords, config.stops);
  if (const toml::node* node = s.find("context_memory")) {
    const auto amount = ipc::parse_memory(node->value<std::string>().value_or(""));
    if (!amount || amount->percent > 0) {
      s.bad(*node, "context_memory", "an amount in quotes, such as \"500MiB\"");
    } else {
      config.context_memory = amount->bytes;
    }
  }
  s.number("idle_us", 100, 1e7, core.idle_us);
  double starvation_ms = core.starvation_us / 1e3;
  s.number("starvation_ms", 1, 600'000, starvation_ms);
  core.starvation_us = starvation_ms * 1e3;
  return s.finish();
}

std::string read_mps(const toml::table& table, const std::string& file, Config& config) {
  Section s(table, "mps", file);
  s.flag("manage", config.mps.manage);
  s.text("pipe_directory", config.mps.pipe_directory);
  s.text("log_directory", config.mps.log_directory);
  for (const auto& [key, path] : {std::pair{"pipe_directory", &config.mps.pipe_directory},
                                  std::pair{"log_directory", &config.mps.log_directory}}) {
    if (path->empty() || (path->front() == '/' && path->size() <= kPipeDirectoryMax)) continue;
    s.bad(*s.find(key), key,
          "an absolute path of at most " + std::to_string(kPipeDirectoryMax) +
              " bytes: MPS listens on sockets in it");
  }
  return s.finish();
}

std::string read_policy(const toml::table& table, const std::string& file, Config& config) {
  Section s(table, "policy", file);
  const std::string before = config.policy.name;
  s.text("name", config.policy.name);
  if (config.policy.name != before) config.policy.params.clear();  // of another policy
  s.text("directory", config.policy.directory);
  s.flag("watch", config.policy.watch);
  const toml::node* params = s.find("params");
  if (params == nullptr) return s.finish();
  if (!params->is_table()) {
    s.bad(*params, "params", "a table, such as { quantum_us = 300 }");
    return s.finish();
  }
  for (const auto& [key, node] : *params->as_table()) {
    std::ostringstream value;
    if (node.is_string()) {
      value << *node.value<std::string_view>();
    } else if (node.is_boolean()) {
      value << (*node.value<bool>() ? "true" : "false");
    } else if (node.is_integer()) {
      value << *node.value<int64_t>();
    } else if (node.is_floating_point()) {
      value << *node.value<double>();
    } else {
      s.bad(node, std::string("params.") + std::string(key.str()), "a number, string or boolean");
    }
    std::erase_if(config.policy.params, [&k = key](auto& one) { return one.first == k.str(); });
    config.policy.params.emplace_back(key.str(), value.str());
  }
  return s.finish();
}

std::string read_profiles(const toml::table& table, const std::string& file, Config& config) {
  Section s(table, "profiles", file);
  s.flag("keep", config.profiles.keep);
  s.text("directory", config.profiles.directory);
  s.integer("runs", 10, 1000, config.core.measure_runs);
  return s.finish();
}

std::optional<uint32_t> find_user(const std::string& name) {
  const passwd* entry = getpwnam(name.c_str());
  return entry != nullptr ? std::optional<uint32_t>(entry->pw_uid) : std::nullopt;
}

std::optional<uint32_t> find_group(const std::string& name) {
  const group* entry = getgrnam(name.c_str());
  return entry != nullptr ? std::optional<uint32_t>(entry->gr_gid) : std::nullopt;
}

// A number, or a name that `find` knows or will know.
template <class Find>
void read_id(Section& s, std::string_view key, const std::string& what, std::string& name,
             std::optional<uint32_t>& out, std::vector<std::string>& warnings, Find&& find) {
  const toml::node* node = s.find(key);
  if (node == nullptr) return;
  const auto number = node->value<int64_t>();
  if (node->is_integer() && *number >= 0 && *number < 0xffffffff) {
    out = static_cast<uint32_t>(*number);
    return;
  }
  name = node->is_string() ? *node->value<std::string>() : "";
  if (name.empty()) return s.bad(*node, key, "the id or the name of a " + what);
  out = find(name);
  if (out) return;
  warnings.push_back(s.at(node->source()) + "rule." + std::string(key) + ": this host knows no " +
                     what + " '" + name + "', and the rule matches nobody until it does; mend " +
                     "the name, or write the number");
}

// A pattern that no path can match is a mistake: paths are absolute.
void read_pattern(Section& s, std::string_view key, std::string_view begins, const char* wanted,
                  std::optional<std::string>& out) {
  s.text(key, out);
  if (out && (out->empty() || begins.find(out->front()) == std::string_view::npos)) {
    s.bad(*s.find(key), key, wanted);
  }
}

void read_sms(Section& s, std::string& out) {
  const toml::node* node = s.find("sms");
  if (node == nullptr) return;
  const auto number = node->value<int64_t>();
  out = node->is_integer() ? std::to_string(*number) : node->value<std::string>().value_or("");
  if (!ipc::parse_sms(out)) s.bad(*node, "sms", ipc::kSmRangeForm);
}

void read_memory(Section& s, Terms& terms) {
  s.text("memory", terms.memory);
  const toml::node* const memory = s.find("memory");
  if (memory != nullptr && !ipc::parse_memory(terms.memory)) {
    s.bad(*memory, "memory", ipc::kMemoryForm);
  }
  s.choice<MemoryPer>("memory_per",
                      {{"rule", MemoryPer::kRule},
                       {"client", MemoryPer::kClient},
                       {"user", MemoryPer::kUser},
                       {"label", MemoryPer::kLabel},
                       {"cgroup", MemoryPer::kCgroup},
                       {"container", MemoryPer::kContainer}},
                      terms.memory_per);
  if (const toml::node* node = s.find("memory_per"); node != nullptr && terms.memory.empty()) {
    s.bad(*node, "memory_per", "left out, or beside memory, the limit that it is about");
  }
}

// A limit may be low: no launch waits for longer than Ceiling::kOwedUsMax.
bool read_limits(Section& s, core::SlowdownMax& slowdown, core::ChannelMax& channel) {
  bool any = false;
  const auto read = [&](const char* key, double least, double most, float& limit) {
    double value = 0;
    s.number(key, least, most, value);
    limit = static_cast<float>(value);
    any |= s.find(key) != nullptr;
  };
  read("slowdown_max", 1.01, 100, slowdown.mean);
  read("slowdown_p99_max", 1.01, 100, slowdown.p99);
  read("issue_max", 0.01, 1, channel.issue);
  read("l2_max", 0.01, 1, channel.l2);
  read("dram_max", 0.01, 1, channel.dram);
  return any;
}

// "25%": 0.25.
std::optional<float> read_percent(const toml::node& node) {
  const std::string text = node.value<std::string>().value_or("");
  char* end = nullptr;
  const double percent = strtod(text.c_str(), &end);
  if (text.empty() || std::string_view(end) != "%" || !(percent >= 1 && percent <= 100)) return {};
  return static_cast<float>(percent / 100);
}

void read_compute(Section& s, core::Compute& compute) {
  const toml::node* node = s.find("compute");
  if (node == nullptr) return;
  bool good = node->is_table();
  if (good) {
    for (const auto& [key, value] : *node->as_table()) {
      const auto part = read_percent(value);
      good &= part.has_value() && (key == "request" || key == "limit");
      if (part) (key == "request" ? compute.request : compute.limit) = *part;
    }
    good &= compute.any() && (compute.limit == 0 || compute.request <= compute.limit);
  }
  if (good) return;
  compute = {};
  s.bad(
      *node, "compute",
      "{ request = \"25%\", limit = \"50%\" }, or one of the two: parts of the GPU's time from 1% "
      "to 100%, the request within the limit");
}

bool read_terms(Section& s, Terms& terms) {
  s.number("share", 0.001, 1000, terms.share);
  s.number("slo_ms", 0.01, 1e6, terms.slo_ms);
  s.choice<bool>("fail", {{"open", false}, {"closed", true}}, terms.fail_closed);
  read_sms(s, terms.sms);
  read_compute(s, terms.compute);
  read_memory(s, terms);
  s.flag("park", terms.park);
  return read_limits(s, terms.slowdown_max, terms.channel_max) || !terms.memory.empty() ||
         s.find("park") != nullptr || s.find("share") != nullptr || s.find("slo_ms") != nullptr ||
         s.find("fail") != nullptr || !terms.sms.empty() || terms.compute.any();
}

std::string read_rule(const toml::table& table, const std::string& file, Config& config) {
  Rule rule;
  Section s(table, "rule", file);
  s.text("name", rule.name);
  read_id(s, "uid", "user", rule.user, rule.uid, config.warnings, find_user);
  read_id(s, "gid", "group", rule.group, rule.gid, config.warnings, find_group);
  read_pattern(s, "cgroup", "/",
               "a path from the root, such as \"/system.slice/x.service\", or such a glob, "
               "\"/system.slice/docker-*\"",
               rule.cgroup);
  read_pattern(s, "exe", "/*",
               "a glob over an absolute path, such as \"/opt/app/*\" or \"*/python3*\"", rule.exe);
  s.text("label", rule.label);
  s.priority("priority", rule.priority);
  s.priority("claim", rule.claim);
  const bool has_terms = read_terms(s, rule.terms);
  if (rule.priority && rule.claim) {
    s.bad(*s.find("claim"), "claim",
          "left out beside priority, which is given whatever is claimed");
  } else if (!rule.priority && !rule.claim && !has_terms) {
    s.problem(table.source(),
              "a rule needs either priority (given) or claim (the most it may ask), or one of "
              "share, slo_ms, slowdown_max, slowdown_p99_max, fail, sms, memory, park, compute, "
              "issue_max, l2_max and dram_max");
  }
  if (rule.name.empty()) rule.name = "rule " + std::to_string(config.rules.size() + 1);
  if (const std::string hidden = hidden_text(config.rules, rule); !hidden.empty()) {
    config.warnings.push_back(s.at(table.source()) + hidden);
  }
  config.rules.push_back(rule);
  return s.finish();
}

std::string read_all(const toml::table& root, const std::string& file, Config& config) {
  Section s(root, "", file);
  using Reader = std::string (*)(const toml::table&, const std::string&, Config&);
  const std::pair<std::string_view, Reader> readers[] = {{"daemon", read_daemon},
                                                         {"gpu", read_gpu},
                                                         {"mps", read_mps},
                                                         {"policy", read_policy},
                                                         {"profiles", read_profiles}};
  for (const auto& [key, reader] : readers) s.find(key);
  s.find("rule");
  if (std::string error = s.finish(); !error.empty()) return error;
  for (const auto& [key, reader] : readers) {
    const toml::node* node = s.find(key);
    if (node == nullptr) continue;
    if (!node->is_table()) {
      s.problem(node->source(), std::string(key) + " must be a [" + std::string(key) + "] table");
    } else if (std::string error = reader(*node->as_table(), file, config); !error.empty()) {
      return error;
    }
  }
  if (const toml::node* rules = s.find("rule")) {
    if (!rules->is_array_of_tables()) s.problem(rules->source(), "write rules as [[rule]]");
    if (const toml::array* array = rules->as_array()) {
      for (const toml::node& rule : *array) {
        if (!rule.is_table()) continue;
        std::string error = read_rule(*rule.as_table(), file, config);
        if (!error.empty()) return error;
      }
    }
  }
  return s.finish();
}

// The configuration if nothing is set.
Config defaults(const std::string& file) {
  Config config;
  config.policy.name = kDefaultPolicy;
  config.file = file;
  return config;
}

// Reads `text` on top of the files before it. Returns "", or the error.
std::string read_text(std::string_view text, const std::string& file, Config& config) {
  try {
    return read_all(parse_toml(text, file), file, config);
  } catch (const toml::parse_error& error) {
    return file + ":" + std::to_string(error.source().begin.line) + ": " +
           std::string(error.description()) + "; share/heddle/heddled.toml has all keys";
  }
}

// The file, then those of conf.d beside it in order of names, without hidden ones of editors.
Result<std::vector<std::string>> files_of(const std::string& file) {
  const std::string directory = std::filesystem::path(file).parent_path() / "conf.d";
  if (access(directory.c_str(), R_OK | X_OK) != 0) {
    if (errno == ENOENT) return std::vector{file};
    return fail(directory + ": cannot be read: " + strerror(errno) + "; check its permissions");
  }
  std::vector<std::string> files = files_of({directory}, ".toml", Depth::kDirectory);
  std::erase_if(files, [&](const std::string& each) { return each[directory.size() + 1] == '.'; });
  if (std::string why = files_problem(directory, files, kFileMost); !why.empty()) return fail(why);
  files.insert(files.begin(), file);
  return files;
}
}  // namespace

bool resolve_names(std::vector<Rule>& rules) {
  bool any = false;
  for (Rule& rule : rules) {
    if (!rule.unresolved()) continue;
    if (!rule.user.empty() && !rule.uid) rule.uid = find_user(rule.user);
    if (!rule.group.empty() && !rule.gid) rule.gid = find_group(rule.group);
    any |= !rule.unresolved();
  }
  return any;
}

std::vector<std::string> needs_restart(const Config& a, const Config& b) {
  std::vector<std::string> all;
  const auto daemon = [](const Config& c) {
    return std::tie(c.socket, c.socket_mode, c.log_level, c.spin_us, c.gates, c.report);
  };
  const auto gpu = [](const Config& c) {
    return std::tie(c.gpu_mode, c.stops, c.context_memory, c.core);
  };
  if (daemon(a) != daemon(b)) all.emplace_back("[daemon]");
  if (gpu(a) != gpu(b)) all.emplace_back("[gpu]");
  if (a.mps != b.mps) all.emplace_back("[mps]");
  if (a.profiles != b.profiles) all.emplace_back("[profiles]");
  return all;
}

Result<Config> parse_config(std::string_view text, const std::string& file) {
  Config config = defaults(file);
  if (std::string error = read_text(text, file, config); !error.empty()) return fail(error);
  return config;
}

Result<Config> load_config(const std::string& file, bool may_lack) {
  Config config = defaults(file);
  const Result<std::vector<std::string>> files = files_of(file);
  if (!files) return tl::unexpected<Error>(files.error());
  config.conf_d = files->size() - 1;
  for (const std::string& each : *files) {
    if (may_lack && each == file && access(file.c_str(), F_OK) != 0 && errno == ENOENT) continue;
    const auto text = read_file(each, "check the path given to --config and its permissions");
    if (!text) return tl::unexpected<Error>(text.error());
    if (std::string error = read_text(*text, each, config); !error.empty()) return fail(error);
  }
  return config;
}

}  // namespace heddle::server
