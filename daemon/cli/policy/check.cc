#include "daemon/cli/policy/policy.h"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "daemon/base/files.h"
#include "daemon/cli/daemon.h"
#include "daemon/policy/files.h"
#include "daemon/policy/lua_policy.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

// Places name files as policies do, without their folder; an editor or a CI wants the path.
std::string at_path(const std::string& message, const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (message.starts_with(name + ":")) return path + message.substr(name.size());
  return message.starts_with(path) ? message : path + ": " + message;
}

bool is_test(const std::string& file) { return file.ends_with("_test.lua"); }

void run_tests_beside(PolicyCheck& check) {
  const std::string stem = fs::path(check.file).replace_extension("").string();
  const std::string tests = stem + "_test.lua";
  if (!fs::exists(tests)) {
    check.warnings.push_back(check.file + ": no " + fs::path(tests).filename().string() +
                             " beside it; write one, see share/doc/heddle/policies/GUIDE.md");
    return;
  }
  const auto results = run_policy_test_file(tests);
  if (!results) {
    check.errors.push_back(at_path(results.error().message, tests));
    return;
  }
  check.tests = results->size();
  if (results->empty()) check.warnings.push_back(tests + ": has no test");
  for (const PolicyTestResult& result : *results) {
    if (result.error.empty()) continue;
    // A fault is the policy's.
    const bool faulted = result.error.starts_with(fs::path(check.file).filename().string() + ':');
    check.errors.push_back(at_path(result.error, faulted ? check.file : tests) +
                           " (test: " + result.name + ")");
  }
}

}  // namespace

PolicyCheck check_policy(const std::string& named) {
  const std::string file = policy::policy_file(named);
  PolicyCheck check{file, {}, {}, 0};
  auto loaded = policy::load_policy_file(file);
  if (!loaded) {
    check.errors.push_back(at_path(loaded.error().message, file));
    return check;
  }
  for (const std::string& mistake : (*loaded)->mistakes()) {
    check.errors.push_back(at_path(mistake, file));
  }
  for (const std::string& warning : (*loaded)->warnings()) {
    check.warnings.push_back(at_path(warning, file));
  }
  run_tests_beside(check);
  return check;
}

int run_policy_check(const std::vector<std::string>& paths, bool strict, bool json) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    for (const std::string& file : files_of({path}, ".lua", Depth::kDirectory)) {
      // Of a directory; one that is named is checked, whatever it is.
      if (!(fs::is_directory(path) && is_test(file))) files.push_back(file);
    }
  }
  bool wrong = false;
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& file : files) {
    const PolicyCheck check = check_policy(file);
    wrong |= !check.errors.empty() || (strict && !check.warnings.empty());
    if (json) {
      all.push_back({{"file", file},
                     {"errors", check.errors},
                     {"warnings", check.warnings},
                     {"tests", check.tests}});
      continue;
    }
    for (const std::string& error : check.errors) std::cout << error << '\n';
    for (const std::string& warning : check.warnings) std::cout << "warning: " << warning << '\n';
  }
  if (json) write_json({{"files", all}, {"good", !wrong && !files.empty()}});
  if (files.empty()) {
    std::cerr << "heddle: policy check: no *.lua there; name policies, or a directory of them\n";
    return kUsage;
  }
  return wrong ? kFailed : kOk;
}

}  // namespace heddle::cli
