#include "daemon/cli/policy/policy.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/base/files.h"
#include "daemon/cli/policy/test_api.h"
#include "daemon/policy/files.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using policy::Sandbox;

// A test is trusted like a policy, and simulates for longer than a hook runs.
constexpr policy::Limits kTestLimits{256u << 20, 16u << 20, 200'000'000, 200'000'000, 60e3};

// A policy stands for the tests beside it; named as by `policies/*.lua`, each file runs once.
std::vector<std::string> test_files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (std::string file : files_of(paths, "_test.lua", Depth::kTree)) {
    if (file.ends_with(".lua") && !file.ends_with("_test.lua")) {
      file = policy::policy_file(file.substr(0, file.size() - 4) + "_test.lua");
    }
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  }
  return files;
}

// A policy that faults has the built-in decide in its place: such a test says nothing of it.
std::string unasked_fault(const TestFile& file) {
  for (const Simulation& simulation : file.simulations) {
    if (!simulation.fault_asked && !simulation.fault().empty()) return simulation.fault();
  }
  return "";
}

// Of a policy FILE.lua without tests, which is not one of tests itself.
std::string not_there(const std::string& tests) {
  const std::string name = fs::path(tests).filename().string();
  return "no " + name + " beside " + name.substr(0, name.size() - sizeof "_test.lua" + 1) + ".lua";
}

}  // namespace

Result<std::vector<PolicyTestResult>> run_policy_test_file(const std::string& path,
                                                           const std::string& only) {
  const Result<std::string> source = policy::read_source(path);
  if (!source) return tl::unexpected(source.error());
  TestFile file;
  const fs::path at(path);
  file.directory = at.has_parent_path() ? at.parent_path().string() : ".";
  file.chunk = at.filename().string();
  file.source = &*source;
  Sandbox sandbox(kTestLimits);
  if (sandbox.lua() == nullptr) return fail(path + ": no memory for a Lua state");
  sandbox.host = &file;
  if (sandbox.run(open_test_file, nullptr) != Sandbox::Stop::kNone) return fail(sandbox.error());
  std::vector<PolicyTestResult> results;
  for (const auto& [name, function] : file.tests) {
    if (!only.empty() && name != only) continue;
    const auto start = std::chrono::steady_clock::now();
    lua_rawgeti(sandbox.lua(), LUA_REGISTRYINDEX, function);
    lua_rawgeti(sandbox.lua(), LUA_REGISTRYINDEX, file.t_ref);
    const bool passed = sandbox.call(1, 0, kTestLimits.fuel) == Sandbox::Stop::kNone;
    std::string error = unasked_fault(file);
    if (!passed) error += (error.empty() ? "" : "; ") + sandbox.error();
    file.simulations.clear();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (file.unsaid > 0) file.output.push_back(std::to_string(file.unsaid) + " more lines");
    results.push_back({path, name, std::move(error), took.count(), std::exchange(file.output, {})});
    file.unsaid = 0;
  }
  return results;
}

int run_policy_tests(const std::vector<std::string>& paths, const std::string& only, bool json) {
  const std::vector<std::string> here{"."};
  size_t ran = 0, failed = 0;
  nlohmann::json out = nlohmann::json::array();
  for (const std::string& path : test_files_of(paths.empty() ? here : paths)) {
    auto results = fs::exists(path) ? run_policy_test_file(path, only)
                                    : Result<std::vector<PolicyTestResult>>(tl::unexpect,
                                                                            Error{not_there(path)});
    if (!results) results = {{path, "(load)", results.error().message, 0, {}}};
    for (const PolicyTestResult& r : *results) {
      ++ran;
      if (!r.error.empty()) ++failed;
      if (json) {
        out.push_back({{"file", r.file},
                       {"test", r.name},
                       {"passed", r.error.empty()},
                       {"error", r.error},
                       {"output", r.output},
                       {"ms", r.ms}});
      } else {
        std::printf("%s %s: %s (%.1f ms)\n", r.error.empty() ? "ok  " : "FAIL", r.file.c_str(),
                    r.name.c_str(), r.ms);
        for (const std::string& line : r.output) std::printf("     | %s\n", line.c_str());
        if (!r.error.empty()) std::printf("     %s\n", r.error.c_str());
      }
    }
  }
  if (json) {
    std::printf("%s\n", nlohmann::json{{"tests", out}, {"failed", failed}}
                            .dump(2, ' ', true, nlohmann::json::error_handler_t::replace)
                            .c_str());
  } else {
    std::printf("%zu tests, %zu failed%s\n", ran, failed,
                ran > 0        ? ""
                : only.empty() ? "; name a *_test.lua or a directory that has one"
                               : "; --only takes a test's whole name");
  }
  return ran == 0 ? 2 : failed > 0 ? 1 : 0;
}

}  // namespace heddle::cli
