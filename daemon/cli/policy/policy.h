// The commands of `heddle policy`, and of `heddle policy test`.
#pragma once

#include <nlohmann/json.hpp>

#include <ostream>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/server/messages.h"

namespace CLI {
class App;
}

namespace heddle::cli {

// heddle policy load and set: they end when the policy has met its first launches, or was
// quarantined by them.

struct PolicyChange {
  std::string socket;
  server::Request request;
  double wait_s = 1;  // for decisions, at most
  bool as_json = false;
  bool unchecked = false;  // a file is loaded whatever the linter finds in it
};

// What the daemon, which has another working directory, takes for `word`: a name of the policy
// directory as it is; of a path, or a .lua file that is here, the whole path.
std::string policy_named(const std::string& word);

// An exit status: 1 too if the linter refuses its file, or it faulted while it was waited for.
int change_policy(const PolicyChange& change);

// `heddle policy check`: is a policy good enough to load? Needs neither daemon nor GPU.

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

// `heddle policy history`, `show` and `diff`: what ran, what runs, and how the file differs from
// it.

// What the daemon answers to policyHistory, newest last.
void print_history(std::ostream& out, const nlohmann::json& answer);

// What a policy left that was quarantined (last_exit of policyShow), as comments of Lua.
void print_exit(std::ostream& out, const nlohmann::json& exit);
// The running policy's text, with its parameters in front, and the last exit dump behind.
int show_policy(const std::string& socket, bool as_json);
// What `file` (empty: the running policy's own) would change of what runs; 1 if anything.
int diff_policy(const std::string& socket, const std::string& file, bool as_json);

// From `before` to `after`, as "-line", "+line" and " line", with three lines around each change;
// "" if they are alike.
std::string line_diff(const std::string& before, const std::string& after);

// `heddle policy shadow` and `heddle policy promote`: a candidate beside the live policy.

struct ShadowOptions {
  std::string file;
  bool stop = false;
  double slowdown_max = 1.2;
  double watch_s = 600;
  double wait_s = 1;
};

// Their subcommands of `heddle policy`.
void add_policy_shadow(CLI::App& policy, ShadowOptions& options, const std::string& socket,
                       const bool& as_json, int& exit_code);

// Candidate::json's.
void print_shadow(std::ostream& out, const nlohmann::json& shadow);
// A row for each client, of shadow_json's `clients` (server/shadows.h).
void print_shadowed_clients(std::ostream& out, const nlohmann::json& clients);

// `heddle policy test`: runs the tests that stand beside policies (NAME_test.lua), in virtual time:
// the real core and the real policy, clients and GPU simulated (daemon/sim/virtual.h). What tests
// can say is in policies/REFERENCE.md.
struct PolicyTestResult {
  std::string file, name;
  std::string error;                // empty: passed
  double ms = 0;                    // of the host's time
  std::vector<std::string> output;  // of print and trace, in the test and in its policies
};

// Runs one file, or its tests of one name. An error means that it could not be loaded.
Result<std::vector<PolicyTestResult>> run_policy_test_file(const std::string& path,
                                                           const std::string& only = "");

// Runs `paths`: test files, policies (X.lua: the X_test.lua beside it) and all *_test.lua of
// directories (none: of the current one). Prints a line per test, or JSON; `only`: those of that
// name. Returns the exit status: 0, 1 if a test failed, 2 if there was none to run.
int run_policy_tests(const std::vector<std::string>& paths, const std::string& only, bool json);

}  // namespace heddle::cli
