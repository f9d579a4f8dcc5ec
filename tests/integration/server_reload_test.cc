// What makes the server look at its policies again.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/server/engine.h"
#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

TEST_F(ServerTest, ReloadsWhenAFileIsSavedAndKeepsWhatRunsOnError) {
  start();
  std::ofstream(directory_ + "/policies/current.lua") << "valve";
  EXPECT_TRUE(eventually([&] { return status()["policy"]["name"] == "valve"; }));
  // As editors do it: a new file, renamed over the old one.
  std::ofstream(directory_ + "/policies/new") << "broken";
  ASSERT_EQ(rename((directory_ + "/policies/new").c_str(),
                   (directory_ + "/policies/current.lua").c_str()),
            0);
  EXPECT_TRUE(
      eventually([&] { return status()["policy"]["error"] == "broken:1: no such policy"; }));
  EXPECT_EQ(status()["policy"]["name"], "valve");
}

TEST_F(ServerTest, AMistakeUndoneIsForgottenAndWhatRunsGoesOn) {
  valve_.stuck = true;
  start("valve");
  FakeClient client(config_.socket, {.priority = 5});
  EXPECT_EQ(status()["policy"]["error"], "valve: init failed: it is faulty");
  const json reloads = status()["policy"]["reloads"];
  std::ofstream(directory_ + "/policies/current.lua") << "broken";
  EXPECT_TRUE(eventually([&] { return status()["policy"]["reload_errors"] == 1; }));
  valve_.stuck = false;
  std::ofstream(directory_ + "/policies/current.lua") << "valve";
  EXPECT_TRUE(eventually([&] { return status()["policy"]["error"] == ""; }));
  EXPECT_EQ(status()["policy"]["reloads"], reloads) << "its state was lost";
  client.ask(0, 1);
  ASSERT_TRUE(eventually([&] { return stats()["asked"] == 1; }));
  EXPECT_FALSE(client.granted(0, 1)) << "the built-in decides";
}

TEST_F(ServerTest, ReloadsBesideALogThatGrows) {
  start();
  std::jthread logger([this](const std::stop_token& end) {
    while (!end.stop_requested()) {
      std::ofstream(directory_ + "/policies/some.log", std::ios::app) << "line\n";
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  std::ofstream(directory_ + "/policies/current.lua") << "valve";
  EXPECT_TRUE(eventually([&] { return status()["policy"]["name"] == "valve"; }));
}

TEST_F(ServerTest, ReloadsOnceAnotherDirectoryHasThePlace) {
  const std::string place = directory_ + "/policies", current = place + "/current.lua";
  const auto runs = [&](const char* policy) {
    return eventually([&] { return status()["policy"]["name"] == policy; });
  };
  start();
  std::ofstream(current) << "valve";
  EXPECT_TRUE(runs("valve"));
  ASSERT_EQ(mkdir((directory_ + "/new").c_str(), 0700), 0);
  std::ofstream(directory_ + "/new/current.lua") << "builtin";
  std::filesystem::rename(place, directory_ + "/old");
  std::filesystem::rename(directory_ + "/new", place);
  EXPECT_TRUE(runs("builtin"));
  // Made again at once it often has its number again.
  std::filesystem::remove_all(place);
  std::filesystem::create_directory(place);
  std::ofstream(current) << "valve";
  EXPECT_TRUE(runs("valve"));
  std::ofstream(current) << "builtin";
  EXPECT_TRUE(runs("builtin"));
  std::filesystem::rename(place, directory_ + "/one");
  std::filesystem::create_directory_symlink("one", place);
  std::ofstream(current) << "valve";
  EXPECT_TRUE(runs("valve"));
  std::filesystem::copy(directory_ + "/one", directory_ + "/two");
  std::ofstream(directory_ + "/two/current.lua") << "builtin";
  std::filesystem::create_directory_symlink("two", directory_ + "/link");
  std::filesystem::rename(directory_ + "/link", place);
  EXPECT_TRUE(runs("builtin"));
}

TEST_F(ServerTest, APolicyLoadedForAWhileRevertsUnlessItIsKept) {
  const auto runs = [&](const char* policy) {
    return eventually([&] { return status()["policy"]["name"] == policy; });
  };
  const auto ask = [&](Request r) { return server::Reply(request(config_.socket, r)); };
  start();
  Request trial;
  trial.kind = Request::Kind::kPolicyLoad;
  trial.policy = "valve";
  trial.for_s = 600;
  Request keep;
  keep.kind = Request::Kind::kPolicyKeep;
  EXPECT_FALSE(ask(keep).ok) << "nothing runs for a while only";
  ASSERT_TRUE(ask(trial).ok);
  const json policy = status()["policy"];
  EXPECT_EQ(policy["loaded_by"]["how"], "load");
  EXPECT_EQ(policy["loaded_by"]["uid"], geteuid());
  EXPECT_EQ(policy["loaded_by"]["pid"], getpid());
  EXPECT_NEAR(policy["trial"]["left_s"].get<double>(), 600, 60);
  EXPECT_EQ(policy["trial"]["back_to"].get<int>() + 1, policy["generation"].get<int>());
  EXPECT_TRUE(ask(keep).ok);
  EXPECT_TRUE(status()["policy"]["trial"].is_null());
  ASSERT_TRUE(load("builtin")["ok"]);
  trial.for_s = 0.05;
  ASSERT_TRUE(ask(trial).ok);
  EXPECT_TRUE(runs("builtin"));
  EXPECT_EQ(status()["policy"]["loaded_by"]["how"], "revert");
  // Another order is no trial any more.
  trial.for_s = 0.3;
  ASSERT_TRUE(ask(trial).ok);
  ASSERT_TRUE(load("valve")["ok"]);
  trial.policy = "nowhere";
  EXPECT_FALSE(ask(trial).ok);
  Request back;
  back.kind = Request::Kind::kPolicyRollback;
  back.generation = 1;
  ASSERT_TRUE(ask(back).ok);
  EXPECT_EQ(status()["policy"]["name"], "builtin");
  EXPECT_GE(ask_daemon(Request::Kind::kPolicyHistory)["generations"].size(), 7u);
}

// A reload of the service for a rule is no order about the policy.
TEST_F(ServerTest, AHangupForARuleKeepsTheTrialUntilThePolicyTableChanges) {
  std::atomic<bool> rule{false}, other_policy{false};
  auto made = server::Server::make(config_, *store_, *log_);
  ASSERT_TRUE(made) << made.error().message;
  server_ = std::move(*made);
  server_->handle_signals({[&]() -> Result<server::Config> {
                             server::Config fresh = config_;
                             if (rule) fresh.rules.emplace_back();
                             if (other_policy) fresh.policy.params.emplace_back("a", "1");
                             return fresh;
                           },
                           {}});
  thread_ = std::thread([this] { server_->run(); });
  Request order;
  order.kind = Request::Kind::kPolicyLoad;
  order.policy = "valve";
  order.for_s = 600;
  ASSERT_TRUE(request(config_.socket, order).ok);
  order.kind = Request::Kind::kPolicyShadow;
  ASSERT_TRUE(request(config_.socket, order).ok);
  rule = true;
  ASSERT_EQ(kill(getpid(), SIGHUP), 0);
  ASSERT_TRUE(eventually([&] { return status()["config"]["rules"] == 1; }));
  ask_daemon(Request::Kind::kPolicyList);  // jobs are carried out in their order
  json policy = status()["policy"];
  EXPECT_EQ(policy["name"], "valve");
  EXPECT_TRUE(policy["trial"].is_object()) << policy;
  Request beside;
  beside.kind = Request::Kind::kPolicyPromote;
  beside.slowdown_max = 1.2;
  beside.for_s = 600;
  EXPECT_TRUE(request(config_.socket, beside).ok) << "the candidate has ended";
  other_policy = true;
  ASSERT_EQ(kill(getpid(), SIGHUP), 0);
  EXPECT_TRUE(eventually([&] { return status()["policy"]["name"] == "builtin"; }));
  EXPECT_EQ(status()["policy"]["loaded_by"]["how"], "config");
}

// Beside another, then live until its first fault; or until it is quarantined as it meets what
// waits, when nothing that has proved itself is at hand.
TEST_F(ServerTest, APromotedPolicyGoesBackAtItsFirstFault) {
  const auto ask = [&](Request::Kind kind, const std::string& policy = "") {
    Request r;
    r.kind = kind;
    r.policy = policy;
    r.slowdown_max = 1.2;
    r.for_s = 600;
    return server::Reply(request(config_.socket, r));
  };
  config_.core.fault_max = 3;
  start();
  EXPECT_FALSE(ask(Request::Kind::kPolicyShadowTold).ok) << "nobody ran";
  EXPECT_FALSE(ask(Request::Kind::kPolicyShadowStop).ok);
  EXPECT_FALSE(ask(Request::Kind::kPolicyPromote).ok);
  EXPECT_FALSE(ask(Request::Kind::kPolicyShadow, "nowhere").ok);
  EXPECT_FALSE(ask(Request::Kind::kPolicyShadow, "builtin").ok);
  FakeClient client(config_.socket, {.priority = 5});
  ASSERT_TRUE(ask(Request::Kind::kPolicyShadow, "valve").ok);
  EXPECT_TRUE(ask(Request::Kind::kPolicyShadowTold).ok);
  EXPECT_EQ(status()["policy"]["name"], "builtin");
  ASSERT_TRUE(ask(Request::Kind::kPolicyPromote).ok);
  EXPECT_FALSE(ask(Request::Kind::kPolicyPromote).ok) << "the candidate ended as it went live";
  json policy = status()["policy"];
  EXPECT_EQ(policy["name"], "valve");
  EXPECT_EQ(policy["loaded_by"]["how"], "promote");
  EXPECT_EQ(policy["trial"]["promoted"], true);
  EXPECT_TRUE(policy["trial"]["slowdown"].is_null()) << "no runs yet";
  valve_.faults = 1;
  client.ask(0, 1);
  EXPECT_TRUE(eventually([&] { return status()["policy"]["name"] == "builtin"; }));
  policy = status()["policy"];
  EXPECT_EQ(policy["loaded_by"]["how"], "rolled back by itself: 1 faults");
  EXPECT_NE(policy["error"].get<std::string>().find("1 faults"), std::string::npos);

  ASSERT_TRUE(load("valve")["ok"]);  // closed: what asks waits
  const json before = status()["policy"]["generation"];
  for (uint16_t thread = 1; thread <= 3; ++thread) client.ask(thread, 1);
  ASSERT_TRUE(eventually([&] { return status()["devices"][0]["waiting"] == 1; }))
      << status()["devices"][0];
  ASSERT_TRUE(ask(Request::Kind::kPolicyShadow, "valve").ok);
  valve_.faults = 3;
  ASSERT_TRUE(ask(Request::Kind::kPolicyPromote).ok);
  EXPECT_TRUE(eventually([&] { return status()["policy"]["loaded_by"]["how"] == "fallback"; }));
  policy = status()["policy"];
  EXPECT_EQ(policy["name"], "valve") << "not what is good: nothing is";
  EXPECT_GT(policy["generation"], before);
}

TEST_F(ServerTest, AnInvariantOfOneClientCostsThatClientOnly) {
  server::ProfileStore profiles("", {});
  server::Engine engine(config_, *store_, profiles, *log_);
  std::vector<server::Client*> clients;
  for (int i = 0; i < 2; ++i) {
    server::Identity who;
    who.id = engine.roster.next_id();
    auto made = server::Client::make(who);
    ASSERT_TRUE(made) << made.error().message;
    clients.push_back(&engine.attach(std::move(*made), 1));
  }
  engine.mistakes.on_broken({"a == b", "a.cc", 1, clients[0]->identity().id});
  engine.tick(2);
  EXPECT_FALSE(clients[0]->managed());
  EXPECT_TRUE(clients[1]->managed());
  EXPECT_FALSE(engine.devices.bypass());
  EXPECT_EQ(engine.mistakes.count(), 1U);
}

// A mistake of heddled's own: nobody waits for what it decides from then on.
TEST_F(ServerTest, OpensTheBypassOnceAnInvariantIsBroken) {
  const core::Broken one{"a == b", "a.cc", 1}, other{"c == d", "a.cc", 2};
  ::testing::internal::CaptureStderr();
  auto lines = std::make_unique<server::Log>(server::LogLevel::kWarning);
  server::ProfileStore profiles("", {});
  server::Engine engine(config_, *store_, profiles, *lines);
  engine.tick(1);
  EXPECT_FALSE(engine.devices.bypass());
  for (int i = 0; i < 3; ++i) engine.mistakes.on_broken(one);
  engine.tick(2);
  EXPECT_TRUE(engine.devices.bypass());
  engine.set_bypass(false, 3);
  engine.tick(4);
  EXPECT_FALSE(engine.devices.bypass()) << "nothing is broken since";
  engine.mistakes.on_broken(one);
  engine.mistakes.on_broken(other);
  engine.tick(5);
  EXPECT_TRUE(engine.devices.bypass());
  EXPECT_EQ(engine.mistakes.count(), 5U);
  lines.reset();  // all is written
  const std::string log = ::testing::internal::GetCapturedStderr();
  size_t told = 0;
  for (size_t at = log.find("invariant_broken"); at != log.npos;
       at = log.find("invariant_broken", at + 1)) {
    ++told;
  }
  EXPECT_EQ(told, 2U) << log;
}

}  // namespace
}  // namespace heddle::testing
