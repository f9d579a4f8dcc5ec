// `heddle policy test`: runs the tests that stand beside policies (NAME_test.lua), in virtual time:
// the real core and the real policy, clients and GPU simulated (daemon/sim/virtual.h). What tests
// can say is in policies/REFERENCE.md.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace heddle::cli {

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
