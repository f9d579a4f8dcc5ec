// SIGHUP: what the configuration says now, for those who are attached.
#include <gtest/gtest.h>

#include "tests/fault/daemon_setting.h"

namespace heddle::testing {
namespace {

class HangupTest : public DaemonTest {
 protected:
  // Under the built-in, unless `text` names a policy.
  void configure(const std::string& text) const {
    const bool names = text.find("[policy]") != std::string::npos;
    std::ofstream(folder_ + "/heddled.toml")
        << text << (names ? "" : "[policy]\nname = 'builtin'\n");
  }
  void start_configured() {
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
      setenv("STATE_DIRECTORY", folder_.c_str(), 1);
      execl(HEDDLE_HEDDLED, "heddled", "--config", (folder_ + "/heddled.toml").c_str(), "--socket",
            config_.socket.c_str(), nullptr);
      _exit(127);
    }
    ASSERT_TRUE(eventually([&] { return status().contains("clients"); }));
  }
  void hang_up(const std::string& text) {
    configure(text);
    const size_t read = reads();
    kill(pid_, SIGHUP);
    ASSERT_TRUE(eventually([&] { return reads() > read; }));
  }
  size_t reads() const { return count(log_text(), "event=config_"); }
  json client() {
    Request ps;
    ps.kind = Request::Kind::kPs;
    return json::parse(request(config_.socket, ps).json)["clients"].at(0);
  }
};

TEST_F(HangupTest, RulesApplyToThoseWhoAreAttached) {
  configure("[[rule]]\nname = 'old'\nlabel = 'x'\npriority = 8\n");
  start_configured();
  FakeClient attached(config_.socket, {.label = "x"});
  ASSERT_EQ(client()["priority"], 8);
  hang_up(
      "[[rule]]\nname = 'new'\nlabel = 'x'\npriority = 2\nshare = 3\nslo_ms = 20\n"
      "sms = '25%'\nfail = 'closed'\n[gpu]\nidle_us = 5000\n");
  ASSERT_TRUE(eventually([&] { return client()["priority"] == 2; })) << client();
  EXPECT_EQ(client()["share"], 3);
  EXPECT_EQ(client()["slo_ms"], 20);
  EXPECT_EQ(client()["rule"], "new");
  EXPECT_EQ(client()["sms"], "") << "from its next attachment on";
  EXPECT_EQ(client()["fail"], "open");
  json config = status()["config"];
  EXPECT_EQ(config["rules"], 1);
  EXPECT_EQ(config["error"], "");
  EXPECT_EQ(config["needs_restart"], json::array({"[gpu]"}));
  FakeClient later(config_.socket, {.label = "x"});
  EXPECT_NE(later.attached().flags & ipc::kFailClosed, 0u);
  EXPECT_NE(end_log().find("client_terms_changed"), std::string::npos);
}

TEST_F(HangupTest, ARefusedConfigurationChangesNothingAndIsShown) {
  configure("[[rule]]\nlabel = 'x'\npriority = 8\n");
  start_configured();
  FakeClient attached(config_.socket, {.label = "x"});
  hang_up("[[rule]]\nlabel = 'x'\npriorty = 1\n");
  const std::string error = status()["config"]["error"];
  EXPECT_NE(error.find("heddled.toml:3: unknown key rule.priorty"), std::string::npos) << error;
  EXPECT_EQ(client()["priority"], 8);
  hang_up("[[rule]]\nlabel = 'x'\nuid = 'no-such-user'\npriority = 1\n");
  EXPECT_TRUE(eventually([&] { return status()["config"]["error"] == ""; }));
  const json config = status()["config"];
  EXPECT_EQ(config["unresolved"], json::parse(R"([{"rule": "rule 1", "user": "no-such-user"}])"));
  EXPECT_EQ(client()["priority"], 5) << "nobody, and so by default";
}

TEST_F(HangupTest, APromiseThatThePolicyDoesNotKeepIsLoggedAtTheStartAndThen) {
  const std::string rule = "[[rule]]\nname = 'service'\nlabel = 'x'\nslowdown_max = 1.1\n";
  const auto told = [&] { return count(log_text(), "level=warning event=promise_unkept"); };
  configure(rule);
  start_configured();
  EXPECT_TRUE(eventually([&] { return told() == 1; })) << log_text();
  hang_up(rule + "share = 2\n");
  EXPECT_TRUE(eventually([&] { return told() == 2; })) << log_text();
  hang_up("[policy]\nname = 'no-such-policy'\n" + rule);
  EXPECT_TRUE(eventually([&] { return told() == 3; })) << log_text();
  hang_up("");
  EXPECT_EQ(told(), 3u);
}

TEST_F(HangupTest, AnEndIsNoWarning) {
  configure("");
  start_configured();
  const std::string log = end_log();
  EXPECT_NE(log.find("event=stopped"), std::string::npos);
  EXPECT_EQ(log.find("event=bypass"), std::string::npos) << log;
}

}  // namespace
}  // namespace heddle::testing
