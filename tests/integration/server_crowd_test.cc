// A crowd of clients hides nobody, and what many of them meet is told now and then.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "daemon/server/engine.h"
#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

TEST_F(ServerTest, PsTellsOfEveryClientOfACrowd) {
  constexpr size_t kCrowd = 200;
  start();
  std::vector<std::unique_ptr<FakeClient>> crowd;
  for (size_t i = 0; i < kCrowd; ++i) {
    crowd.push_back(std::make_unique<FakeClient>(
        config_.socket, FakeClient::Options{.label = std::string(120, 'x')}));
  }
  EXPECT_TRUE(ask_daemon(Request::Kind::kPs)["truncated"]) << "one answer holds them all";
  const cli::Answer all = cli::ask_ps(config_.socket);
  ASSERT_EQ(all.code, cli::kOk) << all.error;
  EXPECT_FALSE(all.json["truncated"]);
  EXPECT_EQ(all.json["total"], kCrowd);
  std::set<int> pids;
  for (const json& client : all.json["clients"]) pids.insert(client["pid"].get<int>());
  EXPECT_EQ(all.json["clients"].size(), kCrowd);
  for (const auto& client : crowd) EXPECT_TRUE(pids.count(client->pid())) << client->pid();
  const json recorded = ask_daemon(Request::Kind::kRecord);
  EXPECT_TRUE(recorded.contains("ps")) << "a crowd keeps nobody from recording";
}

TEST_F(ServerTest, RefusedAllocationsAreInTheLogNowAndThen) {
  ::testing::internal::CaptureStderr();
  auto lines = std::make_unique<server::Log>(server::LogLevel::kWarning);
  {
    server::ProfileStore profiles("", {});
    server::Engine engine(config_, *store_, profiles, *lines);
    server::Identity who;
    who.id = engine.roster.next_id();
    who.pid = 42;
    who.terms.memory = "1GiB";
    auto made = server::Client::make(who);
    ASSERT_TRUE(made) << made.error().message;
    const server::Client& client = engine.attach(std::move(*made), 1);
    // The program's own to write.
    auto& refused = const_cast<ipc::ClientMemory&>(client.memory()).threads[0].memory_refused;
    refused = 2;
    engine.heartbeat(1);
    refused = 5;
    engine.heartbeat(2);
    refused = 7;
    engine.heartbeat(1 + server::Untold::kTellNs);
  }
  lines.reset();  // all is written
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string line = "event=memory_refused client=1 pid=42 label=\"\" allocations=";
  const size_t first = log.find(line + "2 limit=1GiB"), last = log.find(line + "7 limit=1GiB");
  EXPECT_LT(first, last) << log;
  EXPECT_NE(last, log.npos) << log;
  EXPECT_EQ(log.find(line + "5"), log.npos) << "a line for each refusal is too many: " << log;
}

}  // namespace
}  // namespace heddle::testing
