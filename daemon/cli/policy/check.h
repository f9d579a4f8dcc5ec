// `heddle policy check`: is a policy good enough to load? Needs neither daemon nor GPU.
#pragma once

#include <string>
#include <vector>

namespace heddle::cli {

struct PolicyCheck {
  std::string file;
  std::vector<std::string> errors;    // "PATH:LINE: what is wrong; remedy"
  std::vector<std::string> warnings;  // the same, of what is no mistake
  size_t tests = 0;                   // of the file beside it, that ran
};

// Loads the policy as heddled does, has the linter look at it, and runs the tests beside it.
PolicyCheck check_policy(const std::string& file);

// Checks files, and all policies of directories. Prints errors and warnings, nothing if there are
// none. Returns the exit status: 0, 1 if any is wrong (with `strict` also if there is a warning), 2
// if there was none to check.
int run_policy_check(const std::vector<std::string>& paths, bool strict, bool json);

}  // namespace heddle::cli
