// A policy that faults is quarantined: what decides then, and what whoever loaded it is told.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <thread>

#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

struct Said {
  int code;
  std::string text;
};

class QuarantineTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    config_.policy_good_ns = 200'000'000;
  }
  // A policy that gates everybody and, if `faulty`, errs at each ask.
  void save(const std::string& name, const std::string& version, bool faulty) const {
    const std::string file = folder_ + "/policies/" + name + ".lua";
    std::ofstream(file + ".new") << "return policy { name = '" << name << "', api = 1, version = '"
                                 << version
                                 << "', hooks = {\n client_init = function() return GATE end, "
                                 << "client_active = function() return GATE end,\n"
                                 << "enqueue = function(k)\n"
                                 << (faulty ? "error('on purpose')\n" : "") << "return RUN end } }";
    fs::rename(file + ".new", file);
  }
  Said heddle(const std::string& arguments) const {
    const std::string command =
        std::string(HEDDLE_CLI) + " --socket " + config_.socket + " " + arguments + " 2>&1";
    FILE* out = popen(command.c_str(), "r");
    Said said{-1, ""};
    for (int c = fgetc(out); c != EOF; c = fgetc(out)) said.text += static_cast<char>(c);
    said.code = WEXITSTATUS(pclose(out));
    return said;
  }
  json policy() { return status()["policy"]; }
  bool runs(const json& name) {
    return eventually([&] { return policy()["name"] == name; });
  }

  // Launches all the time.
  std::jthread launching() {
    return std::jthread([this](const std::stop_token& end) {
      FakeClient client(config_.socket, {});
      for (uint32_t seq = 1; !end.stop_requested(); ++seq) {
        client.ask(0, seq);
        EXPECT_TRUE(client.wait_granted(0, seq));
        client.complete_all(0);
      }
    });
  }
};

TEST_F(QuarantineTest, ReturnsToTheLastGoodGenerationOnceAndThenToTheBuiltIn) {
  save("p", "1", false);
  config_.policy.name = "p";
  config_.policy.watch = true;
  start();
  {
    const std::jthread client = launching();
    ASSERT_TRUE(eventually([&] { return policy()["good"] == true; }));
    const std::string good = policy()["hash"];
    save("p", "2", true);
    EXPECT_TRUE(eventually([&] { return policy()["faulted"].is_object(); }));
    EXPECT_TRUE(eventually([&] { return policy()["hash"] == good; })) << policy();
    const std::string error = policy()["error"];
    EXPECT_NE(error.find("error in enqueue: p.lua:4"), std::string::npos) << error;
    EXPECT_NE(error.find("last good generation decides"), std::string::npos) << error;
    EXPECT_EQ(policy()["faults"], 0) << "its predecessor's";
    save("p", "3", false);
    EXPECT_TRUE(eventually([&] { return policy()["error"] == ""; })) << "mended by a save";
    save("p", "2", true);  // quarantined: not offered again
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  start();
  EXPECT_TRUE(eventually([&] { return policy()["hash"] != ""; })) << policy();
  EXPECT_NE(policy()["error"].get<std::string>().find("last good"), std::string::npos) << policy();
}

TEST_F(QuarantineTest, TheFallbackPolicyMayFaultToo) {
  std::ofstream(folder_ + "/policies/late.lua") << R"(
return policy { name = "late", api = 1, version = "1",
  params = { worse = { type = "int", min = 0, max = 1, default = 0, doc = "d" } },
  hooks = { client_init = function() return GATE end,
    client_active = function() return GATE end, enqueue = function(k, p)
    if p.worse == 1 then error("late") end
    return RUN end } })";
  save("bad", "1", true);
  config_.policy.name = "late";
  start();
  const std::jthread client = launching();
  ASSERT_TRUE(eventually([&] { return policy()["good"] == true; })) << status();
  EXPECT_EQ(heddle("policy load bad").code, 1);
  EXPECT_TRUE(runs("late"));
  EXPECT_EQ(heddle("policy set late worse=1").code, 1);
  EXPECT_TRUE(runs("late")) << "with the parameters that it was good with";
  EXPECT_EQ(policy()["faults"], 0);
}

TEST_F(QuarantineTest, LoadingSaysIfThePolicyWasQuarantinedMeanwhile) {
  save("bad", "1", true);
  save("fine", "1", false);
  start();
  Said said = heddle("policy load bad");
  EXPECT_EQ(said.code, 0) << "nobody launches: " << said.text;
  EXPECT_EQ(heddle("policy load builtin").code, 0);
  {
    const std::jthread client = launching();
    ASSERT_TRUE(has_clients(1));
    said = heddle("policy load fine");
    EXPECT_EQ(said.code, 0) << said.text;
    EXPECT_NE(said.text.find("is live"), std::string::npos) << said.text;
    said = heddle("policy load bad");
    EXPECT_EQ(said.code, 1) << said.text;
    EXPECT_NE(said.text.find("quarantined: error in enqueue: bad.lua:4"), std::string::npos)
        << said.text;
    EXPECT_EQ(said.text.find("is live"), std::string::npos) << said.text;
  }
  said = heddle("policy show");
  EXPECT_NE(said.text.find("was quarantined: error in enqueue: bad.lua:4"), std::string::npos)
      << said.text;
  EXPECT_NE(said.text.find("ms before: client"), std::string::npos) << said.text;
  said = heddle("policy list");
  EXPECT_NE(said.text.find("quarantined: error in enqueue: bad.lua:4"), std::string::npos)
      << said.text;
}

}  // namespace
}  // namespace heddle::testing
