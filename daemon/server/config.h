// The daemon's configuration: TOML, every key optional, defaults as in examples/heddled.toml (which
// documents them). An unknown key or a bad value is an error with file, line and remedy: a typo
// must not silently leave a default in force.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/core/scheduler.h"
#include "daemon/server/log.h"

namespace heddle::server {

// Whether all clients that the rule matches share its memory limit, or each client, user, label,
// cgroup or container among them has a limit of its own.
enum class MemoryPer : uint8_t { kRule, kClient, kUser, kLabel, kCgroup, kContainer };

// What a rule gives besides the priority. The defaults are for clients without a rule.
struct Terms {
  double share = 1;                         // weight among equals in a policy's queue
  double slo_ms = 0;                        // latency objective: c.slo_ms of a policy, 0: none
  bool fail_closed = false;                 // no launch without a daemon's word
  std::string sms;                          // SMs that it is kept to (ipc/sm_set.h); "": all
  core::SlowdownMax slowdown_max{};         // promise: others slow it by no more
  core::Compute compute{};                  // parts of the GPU's time: request and limit
  core::ChannelMax channel_max{};           // parts of each channel's peak that it may use
  std::string memory;                       // device memory limit (ipc/memory.h); "": none
  MemoryPer memory_per = MemoryPer::kRule;  // which clients share that limit
  bool park = false;                        // idle, it may be parked for others (parking.h)

  bool operator==(const Terms&) const = default;
};

// A rule matches a client if everything that it names matches; the first match decides. A fact that
// the daemon cannot see matches no pattern.
struct Rule {
  std::string name;
  std::string user, group;            // as written; "": a number was given
  std::optional<uid_t> uid;           // none although there is a name: this host does not know it
  std::optional<gid_t> gid;           // the effective group, or any supplementary one
  std::optional<std::string> cgroup;  // path or glob, and all below, in any hierarchy
  std::optional<std::string> exe;     // glob over the executable's path, as the kernel reports it
  std::optional<std::string> label;   // glob; a label is what a program says of itself
  std::optional<int> priority;        // given, whatever the program claims
  std::optional<int> claim;           // the most important priority that it may claim
  Terms terms;

  // It names a user or group that is unknown here: it matches no client.
  bool unresolved() const { return (!user.empty() && !uid) || (!group.empty() && !gid); }
  bool operator==(const Rule&) const = default;
};

enum class GpuMode : uint8_t { kAuto, kMps, kTimeslice };
// On which GPUs running kernels may be stopped: on those that were asked and can; on all; on none.
enum class StopsSetting : uint8_t { kAsked, kOn, kOff };
inline const std::vector<std::pair<std::string_view, StopsSetting>> kStopsWords = {
    {"asked", StopsSetting::kAsked}, {"on", StopsSetting::kOn}, {"off", StopsSetting::kOff}};

// Which launches leased clients report. kEach: all. kRows: a few of those that follow each other
// closely (ipc/sparse.h). kSamples: the same, and if one client is alone at work, only those of a
// twenty-fifth of the time (reports.h).
enum class ReportSetting : uint8_t { kEach, kRows, kSamples };

// The policy if the configuration names none. parse_config() and load_config() set it, also if
// there is no file. A Config made in C++ has the built-in, which needs no file, for tests of
// mechanics.
inline constexpr const char* kDefaultPolicy = "auto";

struct PolicySettings {
  std::string name = "builtin";  // a name in `directory`, a path, or "builtin"
  std::string directory;         // default: share/heddle/policies beside the executable's bin/
  bool watch = true;
  // Parameters of the policy as `name=value` pairs, checked by the policy.
  std::vector<std::pair<std::string, std::string>> params;

  bool operator==(const PolicySettings&) const = default;
};

struct ProfileSettings {
  bool keep = true;
  std::string directory;  // default: profiles/ in the state directory; empty: none are kept

  bool operator==(const ProfileSettings&) const = default;
};

// NVIDIA's MPS control daemon (mps.h).
struct MpsSettings {
  bool manage = false;         // heddled starts one if none answers
  std::string pipe_directory;  // default: named_directories()
  std::string log_directory;
  std::string control = "nvidia-cuda-mps-control";  // found by PATH, or a path; no key sets it

  bool operator==(const MpsSettings&) const = default;
};

struct Config {
  std::string socket;  // empty: ipc::default_socket_path
  mode_t socket_mode = 0666;
  LogLevel log_level = LogLevel::kInfo;
  uint32_t spin_us = 50;

  bool gates = true;  // held launches of clients that ask for it wait on the GPU (gates.h)
  ReportSetting report = ReportSetting::kSamples;

  GpuMode gpu_mode = GpuMode::kAuto;
  StopsSetting stops = StopsSetting::kAsked;
  uint64_t context_memory = 0;  // bytes that count for each process beside its allocations
  core::Config core;            // device, sm_total and mps are filled in per device

  PolicySettings policy;
  core::TimeNs policy_good_ns = 60'000'000'000;  // time without a fault (Probation); no key
  MpsSettings mps;
  ProfileSettings profiles;  // core.measure_runs: how many runs are measured
  std::vector<Rule> rules;
  std::string state;                  // state directory; "": none is used; main sets it
  std::string file;                   // the file that was read; "": there is none
  size_t conf_d = 0;                  // number of conf.d files that were read as well
  std::string state_error;            // why the state directory is not used; main sets it
  std::vector<std::string> warnings;  // valid settings that cannot be meant, one line each
};

// Looks up the unknown users and groups that rules name; name services may take their time. True if
// one is known now.
bool resolve_names(std::vector<Rule>& rules);
// The tables, such as "[gpu]", in which two configurations differ and which need a restart.
std::vector<std::string> needs_restart(const Config& running, const Config& fresh);

// Parses `text`; `file` names it in errors.
Result<Config> parse_config(std::string_view text, const std::string& file);
// Reads the file, then each conf.d/*.toml beside it in order of names. The last value of a key
// counts; of rules, the first that matches. With `may_lack` conf.d alone is enough.
Result<Config> load_config(const std::string& file, bool may_lack = false);

}  // namespace heddle::server
