// heddle policy check: errors with file and line, warnings, the tests beside the file.
#include "daemon/cli/policy/policy.h"
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

// Each is what the line says, in `dispatch`.
TEST_F(PolicyCheckTest, FieldsThatAreNotThereAreErrors) {
  const auto error = [&](const std::string& dispatch) -> std::string {
    const PolicyCheck check = check_policy(save("p.lua", policy(dispatch)));
    if (check.errors.size() != 1) return std::to_string(check.errors.size()) + " errors";
    return check.errors[0].substr(folder_.size() + 1);
  };
  EXPECT_EQ(error("      if g.sm_totl > 1 then return IDLE end"),
            "p.lua:7: g has no field 'sm_totl'; did you mean 'sm_total'?");
  const char* at_7[] = {
      "      g:gap_usx(1)",
      "      local k = queue.peek('q'); if k and k.foo > 3 then return RUN, k end",
      "      local k = queue.best_fit('q', 1); total = k.client.foo",
      "      local k = queue.peek('q') or queue.peek('q', 2); total = k.kernel.foo",
      "      for c in g:clients() do total = total + c.foo end",
      "      for c in g:clients() do if c.active then total = total + c.foo end end",
      "      local c = queue.peek('q').client; for i = 1, 3 do total = total + c.foo end",
      "      total = g.budget.foo",
  };
  for (const char* dispatch : at_7) {
    EXPECT_EQ(error(dispatch).find("p.lua:7: "), 0u) << dispatch << ": " << error(dispatch);
    EXPECT_NE(error(dispatch).find(" has no field '"), std::string::npos) << error(dispatch);
  }
  const char* good[] = {
      "      for c in g:clients() do total = total + c.gpu_us end total = g.budget.dram",
      "      local k; if total > 1 then k = { foo = 1 } else k = queue.peek('q') end total = k.foo",
      "      local k = queue.peek('q'); while k and total < 3 do k = nil end total = k or 1",
      "      local k = queue.peek('q'); k = { foo = 1 }; total = k.foo",
      "      g = { foo = 1 } total = g.foo",
      "      do local k = queue.peek('q') end do local t = { foo = 1 } total = t.foo end",
      "      for _, t in ipairs({ { foo = 1 } }) do total = t.foo end",
      "      for c in g:clients() do total = c.id end for t in next, {} do total = t.foo end",
  };
  for (const char* dispatch : good) EXPECT_EQ(error(dispatch), "0 errors") << dispatch;
}

// Where the hooks call it with such an object, in the file and of an import.
TEST_F(PolicyCheckTest, FieldsThatAreNotThereAreErrorsInFunctionsThatHooksCall) {
  std::filesystem::create_directory(folder_ + "/lib");
  save("lib/ways.lua",
       "local ways = {}\nfunction ways.first(k, n) return n > 1 and k.prioritty or 0 end\n"
       "function ways.any(t)\n  return t.foo\nend\nreturn ways\n");
  const std::string before =
      "local ways = import \"lib/ways\"\n"
      "local function last(k) return k.client.shar end\n"
      "local function inner(k) return last(k) end\n"
      "local function again(k, n) if n == 0 then return k.foo end\n"
      "  return again(k, n - 1) end\n";
  const auto errors = [&](const std::string& dispatch) {
    std::vector<std::string> all = check_policy(save("p.lua", before + policy(dispatch))).errors;
    for (std::string& one : all) one = one.substr(0, one.find("; "));
    return all;
  };
  using Errors = std::vector<std::string>;
  const std::string p = folder_ + "/p.lua:";
  const std::string k = "      local k = queue.peek('q'); if not k then return IDLE end\n";
  EXPECT_EQ(errors(k + "      total = inner(k)"), Errors{p + "2: c has no field 'shar'"});
  EXPECT_EQ(errors(k + "      do return inner(k) end"), Errors{p + "2: c has no field 'shar'"});
  EXPECT_EQ(errors(k + "      total = again(k, 3)"), Errors{p + "4: k has no field 'foo'"});
  const Errors imported = errors(k + "      total = ways.first(k, 2) + ways.first(k, 3)");
  ASSERT_EQ(imported.size(), 1u);
  EXPECT_NE(imported[0].find("lib/ways.lua:2: k has no field 'prioritty'"), std::string::npos);
  EXPECT_EQ(errors("      total = ways.any({ foo = 1 })"), Errors{}) << "no object";
  EXPECT_EQ(errors(k + "      k = { foo = 1 } total = ways.any(k)"), Errors{});
  EXPECT_EQ(errors("      total = total"), Errors{}) << "nobody calls them";
}

TEST_F(PolicyCheckTest, AFaultFailsATestThatDoesNotAskForIt) {
  const std::string faulty =
      "local function look(k, field) return k[field] end\nqueue.create(\"q\")\n"
      "return policy { name = \"p\", api = 1, version = \"1\", hooks = {\n"
      "  enqueue = function(k) look(k, \"foo\") return queue.insert(\"q\", k, 0) end } }\n";
  const std::string path = save("p.lua", faulty);
  const std::string runs =
      "local s = t.sim { policy = \"p.lua\" }\n  s:client { name = \"a\" }\n"
      "  s:client { name = \"b\", priority = 0 }\n  s:loop { client = \"b\", us = 100 }\n"
      "  s:launch { client = \"a\", us = 10, at = 20 }\n  s:run(3000)\n";
  save("p_test.lua", "test(\"runs\", function(t)\n  " + runs + "end)\n");
  const PolicyCheck check = check_policy(path);
  ASSERT_EQ(check.errors.size(), 1u);
  EXPECT_EQ(check.errors[0].find(path + ":1: k has no field 'foo'; there are: client "), 0u)
      << check.errors[0];
  EXPECT_NE(check.errors[0].find("(enqueue faulted "), std::string::npos) << check.errors[0];
  const auto reloaded = "test(\"swaps\", function(t)\n  " + runs + "  s:reload {}\nend)\n";
  save("p_test.lua", reloaded);
  EXPECT_EQ(check_policy(path).errors.size(), 1u);
  save("p_test.lua", "test(\"asks\", function(t)\n  " + runs + "  t.ok(s:fault())\nend)\n");
  EXPECT_EQ(check_policy(path).errors, std::vector<std::string>{});
}

TEST_F(PolicyCheckTest, APolicyWithoutTestsIsNoTestFile) {
  const std::string path = save("p.lua", policy(""));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_policy_tests({path}, "", false), 1);
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("no p_test.lua beside p.lua"), std::string::npos) << said;
}

TEST_F(PolicyCheckTest, AFailingTestSaysTheSameEachTime) {
  save("p.lua", policy(""));
  save("p_test.lua",
       "test(\"a\", function(t)\n  local s = t.sim { policy = \"p.lua\" }\n"
       "  s:at(10):expect { reason = \"x\", verdict = RUN, waiting = \"b\", running = \"a\" "
       "}\nend)\n");
  for (int i = 0; i < 8; ++i) {
    const auto results = run_policy_test_file(folder_ + "/p_test.lua");
    ASSERT_TRUE(results && results->size() == 1);
    EXPECT_NE((*results)[0].error.find("running is '', expected 'a'"), std::string::npos);
  }
}

TEST_F(PolicyCheckTest, ALaunchThatDidNotWaitSaysWhenItBegan) {
  save("p.lua", policy(""));
  save("p_test.lua",
       "test(\"a\", function(t)\n  local s = t.sim { policy = \"p.lua\" }\n"
       "  s:client { name = \"n\", priority = 5 }\n"
       "  s:launch { client = \"n\", us = 100, at = 50 }\n"
       "  s:at(90):expect { waiting = \"n\" }\nend)\n");
  const auto results = run_policy_test_file(folder_ + "/p_test.lua");
  ASSERT_TRUE(results && results->size() == 1);
  EXPECT_NE((*results)[0].error.find("waiting is '', expected 'n' (n began at 5"),
            std::string::npos)
      << (*results)[0].error;
  EXPECT_NE((*results)[0].error.find("us, by open)"), std::string::npos) << (*results)[0].error;
}

TEST_F(PolicyCheckTest, SharesThatAreMissedSayThatNobodyWaited) {
  save("p.lua",
       "queue.create(\"q\")\nreturn policy { name = \"p\", api = 1, version = \"1\", "
       "hooks = { enqueue = function(k) return queue.insert(\"q\", k, 0) end, dispatch = "
       "function(g) "
       "local k = queue.peek(\"q\") if not k or g.inflight_us > 0 then return IDLE end "
       "return RUN, k end } }");
  save("p_test.lua",
       "test(\"shares\", function(t)\n  local s = t.sim { policy = \"p.lua\" }\n"
       "  s:client { name = \"a\", share = 3 } s:client { name = \"b\" }\n"
       "  s:loop { client = \"a\", us = 100 } s:loop { client = \"b\", us = 100 }\n"
       "  s:run(100000) s:shares({ a = 1, b = 1 }) s:shares({ a = 3, b = 1 })\nend)");
  const PolicyCheck check = check_policy(folder_ + "/p.lua");
  ASSERT_EQ(check.errors.size(), 1u);
  EXPECT_NE(check.errors[0].find("expected about 0.75"), std::string::npos) << check.errors[0];
  EXPECT_NE(check.errors[0].find("at 0 of "), std::string::npos) << check.errors[0];
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
