// heddle policy check: errors with file and line, warnings, the tests beside the file.
#include "daemon/cli/policy/check.h"
#include "tests/folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

class PolicyCheckTest : public ::testing::Test {
 protected:
  std::string save(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  static std::string policy(const std::string& dispatch) {
    return "queue.create(\"q\")\nlocal total = 0\nreturn policy {\n  name = \"p\", api = 1, "
           "version = \"1\",\n  hooks = {\n    dispatch = function(g)\n" +
           dispatch + "\n      return IDLE\n    end,\n  },\n}\n";
  }
  // Without the folder, and the one of the tests that are not there.
  std::vector<std::string> warnings_of(const std::string& dispatch) {
    const PolicyCheck check = check_policy(save("p.lua", policy(dispatch)));
    EXPECT_EQ(check.errors, std::vector<std::string>{});
    std::vector<std::string> all;
    for (const std::string& warning : check.warnings) {
      EXPECT_TRUE(warning.starts_with(folder_ + "/p.lua:")) << warning;
      if (warning.find("no p_test.lua beside it") == warning.npos) {
        all.push_back(warning.substr(folder_.size() + 1));
      }
    }
    EXPECT_EQ(all.size() + 1, check.warnings.size());
    return all;
  }
  static constexpr const char* kTest =
      "test(\"it loads\", function(t) t.sim { policy = \"p.lua\" } end)\n";
  const TestFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(PolicyCheckTest, IsSilentOfWhatIsGood) {
  save("p_test.lua", kTest);
  const std::string path = save("p.lua", policy("      total = total + g.inflight_us"));
  const PolicyCheck check = check_policy(path);
  EXPECT_EQ(check.errors, std::vector<std::string>{});
  EXPECT_EQ(check.warnings, std::vector<std::string>{});
  EXPECT_EQ(check.tests, 1u);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_policy_check({path}, true, false), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST_F(PolicyCheckTest, ErrorsHaveTheirPathAndLine) {
  EXPECT_EQ(check_policy(save("p.lua", "local x = 1\nunknown()\n"))
                .errors.at(0)
                .find(folder_ + "/p.lua:2: unknown global 'unknown'"),
            0u);
  const PolicyCheck none = check_policy(folder_ + "/none.lua");
  EXPECT_EQ(none.errors.at(0).find(folder_ + "/none.lua: "), 0u) << none.errors.at(0);
  EXPECT_EQ(run_policy_check({folder_ + "/none.lua"}, false, true), 1);
}

TEST_F(PolicyCheckTest, TestsBesideItAreRun) {
  const std::string path = save("p.lua", policy(""));
  save("p_test.lua", std::string(kTest) + "test(\"fails\", function(t)\n  t.eq(1, 2, \"x\")\nend)");
  const PolicyCheck check = check_policy(path);
  ASSERT_EQ(check.errors.size(), 1u);
  EXPECT_EQ(check.errors[0].find(folder_ + "/p_test.lua:3: "), 0u) << check.errors[0];
  EXPECT_NE(check.errors[0].find("(test: fails)"), std::string::npos) << check.errors[0];
  save("p_test.lua", "broken");
  EXPECT_EQ(check_policy(path).errors.at(0).find(folder_ + "/p_test.lua:1: "), 0u);
}

TEST_F(PolicyCheckTest, WarnsOfWhatEachLaunchWouldPayFor) {
  const auto first = [&](const std::string& dispatch) {
    const std::vector<std::string> all = warnings_of(dispatch);
    return all.size() == 1 ? all[0] : std::to_string(all.size()) + " warnings";
  };
  EXPECT_EQ(first("      total = {}").find("p.lua:7: dispatch makes a table"), 0u);
  EXPECT_EQ(first("\n      total = { 1 }").find("p.lua:8: dispatch makes a table"), 0u);
  EXPECT_EQ(first("      total = total .. g.mode").find("p.lua:7: dispatch joins strings"), 0u);
  EXPECT_EQ(first("      total = function() end").find("p.lua:7: dispatch makes a function"), 0u);
  EXPECT_EQ(first("      while true do total = total + 1 end").find("p.lua:7: dispatch loops"), 0u);
  EXPECT_EQ(first("      repeat total = total + 1 until total > 3").find("p.lua:7: dispatch loops"),
            0u);
  EXPECT_EQ(first("      for i = 1, 9 do total = total + i end"), "0 warnings");
  EXPECT_EQ(first("      for c in g:clients() do total = total + c.gpu_us end"), "0 warnings");
}

TEST_F(PolicyCheckTest, StrictFailsForWarnings) {
  const std::string path = save("p.lua", policy("      total = {}"));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_policy_check({path}, false, false), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout().find("warning: " + path + ":7: "), 0u);
  EXPECT_EQ(run_policy_check({path}, true, true), 1);
  EXPECT_EQ(run_policy_check({folder_ + "/none"}, false, true), 1);
  fs::create_directory(folder_ + "/empty");
  EXPECT_EQ(run_policy_check({folder_ + "/empty"}, false, true), 2);
}

TEST_F(PolicyCheckTest, ShippedPoliciesAreSilent) {
  EXPECT_EQ(run_policy_check({HEDDLE_POLICIES, HEDDLE_POLICIES "/papers"}, true, true), 0);
}

}  // namespace
}  // namespace heddle::cli
