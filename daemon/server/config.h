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

// All whom the rule matches share its limit; or each client, user, label, cgroup or container of
// them has one.
enum class MemoryPer : uint8_t { kRule, kClient, kUser, kLabel, kCgroup, kContainer };

// What a rule gives besides the priority; the defaults are what clients without a rule have.
struct Terms {
  double share = 1;                         // weight among equals in a policy's queue
  double slo_ms = 0;                        // latency objective: c.slo_ms of a policy, 0: none
  bool fail_closed = false;                 // no launch without a daemon's word
  std::string sms;                          // kept on these (ipc/sm_set.h), "": on any
  core::SlowdownMax slowdown_max{};         // by others, as promised
  core::Compute compute{};                  // of the GPU's time: beside others, and at most
  core::ChannelMax channel_max{};           // parts of each channel's peak that it may use
  std::string memory;                       // most device memory (ipc/memory.h), "": no limit
  MemoryPer memory_per = MemoryPer::kRule;  // whom that holds together

  bool operator==(const Terms&) const = default;
};

// A rule matches when all that it names match; the first match decides. A fact that the daemon
// cannot see matches no pattern.
struct Rule {
  std::string name;
  std::string user, group;            // as written, "" where it was a number
  std::optional<uid_t> uid;           // none though there is a name: this host does not know it
  std::optional<gid_t> gid;           // the effective group, or any supplementary one
  std::optional<std::string> cgroup;  // path or glob, and all below, in any hierarchy
  std::optional<std::string> exe;     // glob over the executable's path, as the kernel reports it
  std::optional<std::string> label;   // glob; a label is what a program says of itself
  std::optional<int> priority;        // given, whatever the program claims
  std::optional<int> claim;           // the most important priority that it may claim
  Terms terms;

  // Whom it names is not known: it matches nobody.
  bool unresolved() const { return (!user.empty() && !uid) || (!group.empty() && !gid); }
  bool operator==(const Rule&) const = default;
};

enum class GpuMode : uint8_t { kAuto, kMps, kTimeslice };
// Whose kernels may be stopped that run: on GPUs that were asked and can; on all; on none.
enum class StopsSetting : uint8_t { kAsked, kOn, kOff };
inline const std::vector<std::pair<std::string_view, StopsSetting>> kStopsWords = {
    {"asked", StopsSetting::kAsked}, {"on", StopsSetting::kOn}, {"off", StopsSetting::kOff}};

// Which launches leased clients report: each; of those that follow each other closely a few
// (ipc/sparse.h); and of who is alone at work those of a twenty-fifth of the time (reports.h).
enum class ReportSetting : uint8_t { kEach, kRows, kSamples };

// The policy where the configuration names none. Whoever reads a configuration gives it, also where
// there is no file: parse_config() and load_config(). A Config made in C++ has the built-in, which
// needs no file: its users test mechanics.
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
  std::string directory;  // default: profiles/ of the state directory; empty: none are kept

  bool operator==(const ProfileSettings&) const = default;
};

// NVIDIA's MPS control daemon (mps.h).
struct MpsSettings {
  bool manage = false;         // heddled starts it where none answers
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
  uint64_t context_memory = 0;  // counted of each process beside its allocations
  core::Config core;            // device, sm_total and mps are filled in per device

  PolicySettings policy;
  core::TimeNs policy_good_ns = 60'000'000'000;  // without a fault (Probation); no key sets it
  MpsSettings mps;
  ProfileSettings profiles;  // how many runs are measured is core.measure_runs
  std::vector<Rule> rules;
  std::string state;                  // directory, "": nothing is kept in one; main sets it
  std::string file;                   // that it was read from, "" if there is none
  size_t conf_d = 0;                  // files of conf.d that were read besides
  std::string state_error;            // why nothing is kept in the state directory; main sets it
  std::vector<std::string> warnings;  // what is in it and cannot be meant, one line each
};

// Asks the host for the users and groups that rules name and that were not known; name services may
// take their time. True if it knows one now.
bool resolve_names(std::vector<Rule>& rules);
// The tables, "[gpu]", in which two configurations differ and that only a restart brings to life.
std::vector<std::string> needs_restart(const Config& running, const Config& fresh);

// Parses `text`; `file` names it in errors.
Result<Config> parse_config(std::string_view text, const std::string& file);
// The file, then each conf.d/*.toml beside it in order of names: of a key the last word counts, of
// rules the first that matches. With `may_lack` conf.d alone is enough.
Result<Config> load_config(const std::string& file, bool may_lack = false);

}  // namespace heddle::server
