// Each shipped policy's tests must fail under named mutations of that policy
// (policies/mutations.txt): a test that no mutation fails tests nothing.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/cli/policy/policy.h"
#include "daemon/policy/running.h"
#include "tests/folder.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

struct Mutation {
  std::string policy, text, becomes, test;
};

void PrintTo(const Mutation& m, std::ostream* out) { *out << m.policy << ": " << m.test; }

std::vector<Mutation> read_mutations() {
  std::ifstream file(std::string(HEDDLE_POLICIES) + "/mutations.txt");
  std::vector<Mutation> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> parts;
    std::istringstream in(line);
    for (std::string part; std::getline(in, part, '|');) {
      const size_t first = part.find_first_not_of(' ');
      const size_t last = part.find_last_not_of(' ');
      parts.push_back(first == part.npos ? "" : part.substr(first, last - first + 1));
    }
    parts.resize(4);
    all.push_back({parts[0], parts[1], parts[2], parts[3]});
  }
  return all;
}

// Policy and mutation, in the letters that a test's name may have.
std::string name_of(const ::testing::TestParamInfo<Mutation>& info) {
  const Mutation& m = info.param;
  const std::string becomes = m.becomes.empty() ? "nothing" : m.becomes;
  std::string name;
  for (const char c : fs::path(m.policy).stem().string() + " " + m.text + " becomes " + becomes) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += c;
    } else if (name.back() != '_') {
      name += '_';
    }
  }
  return name;
}

class PolicyMutation : public ::testing::TestWithParam<Mutation> {
 protected:
  // Beside the policy, in one of its own files of tests or in the one that `test` begins with.
  std::string error_of(std::string test) {
    fs::path policy = directory_ / GetParam().policy;
    std::string stem = policy.stem().string() + "_";
    if (const size_t end = test.find(".lua: "); end != test.npos) {
      policy = directory_ / test.substr(0, end + 4);
      stem = policy.filename().string();
      test.erase(0, end + 6);
    }
    for (const fs::path& file : fs::directory_iterator(policy.parent_path())) {
      const std::string name = file.filename().string();
      if (!name.starts_with(stem) || !name.ends_with("_test.lua")) continue;
      const auto results = run_policy_test_file(file.string(), test);
      if (!results) return "not loaded: " + results.error().message;
      if (!results->empty()) return results->front().error;
    }
    return "no such test";
  }

  const TestFolder made_;
  const fs::path directory_ = made_.path();
};

TEST_P(PolicyMutation, FailsItsTest) {
  const Mutation& m = GetParam();
  const fs::path from = HEDDLE_POLICIES;
  fs::copy(from, directory_, fs::copy_options::recursive);
  EXPECT_EQ(error_of(m.test), "") << "the test fails without the mutation";

  auto text = policy::read_source((from / m.policy).string());
  ASSERT_TRUE(text);
  const size_t at = text->find(m.text);
  ASSERT_NE(at, text->npos) << m.policy << " does not contain: " << m.text;
  text->replace(at, m.text.size(), m.becomes);
  std::ofstream(directory_ / m.policy) << *text;
  const std::string error = error_of(m.test);
  EXPECT_NE(error, "") << m.policy << ": '" << m.text << "' as '" << m.becomes << "' passes";
  // It must fail by what happens, not because the mutation is no Lua.
  EXPECT_EQ(error.find("syntax"), error.npos) << error;
}

INSTANTIATE_TEST_SUITE_P(Shipped, PolicyMutation, ::testing::ValuesIn(read_mutations()), name_of);

}  // namespace
}  // namespace heddle::cli
