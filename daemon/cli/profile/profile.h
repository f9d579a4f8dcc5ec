// `heddle profile`: kernel profiles (daemon/profile/README.md), taken from a running client or a
// trace, shown, compared, joined and thinned out.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

struct ProfileOptions {
  std::string socket;              // empty: the default one
  std::string client;              // record: its ID or label, as `ps` or `trace show` has it
  std::string trace;               // record: from this file instead of the daemon
  std::string gpu, driver;         // record: where the trace does not say them
  std::vector<std::string> paths;  // profiles, or directories of them
  std::string output;              // record, merge
  double within_pct = 10;          // diff: means this close are alike
  double least_us = 1;             // diff: and so are these
  std::optional<uint32_t> days;    // prune: profiles measured longer ago; none: of any age stay
  uint32_t samples = 0;            // prune: kernels with fewer samples
  bool dry_run = false;            // prune
  bool neighbours = false;         // show: which limit forbids company to each kernel
  bool as_json = false;
};

// Each returns an exit status (daemon.h), having said in one line what went wrong. profile_diff
// returns 1 if there are differences.
int profile_record(const ProfileOptions& options);
int profile_show(const ProfileOptions& options);
int profile_diff(const ProfileOptions& options);
int profile_merge(const ProfileOptions& options);
int profile_prune(const ProfileOptions& options);

}  // namespace heddle::cli
