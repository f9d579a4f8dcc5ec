// A crowd of clients hides nobody.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

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

}  // namespace
}  // namespace heddle::testing
