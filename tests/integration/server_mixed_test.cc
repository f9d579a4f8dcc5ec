// Today's daemon and a shim of protocol 1's first build, which knows nothing of unobserved
// launches, rows, SM sets and fail-closed clients.
#include <bit>

#include "tests/integration/first_build.h"
#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

class MixedBuilds : public ServerTest {
 protected:
  static FakeClient::Options old(int priority) {
    return {.priority = priority, .first_build = true};
  }
  // As that shim did: every launch is told, whatever the words say that it does not read.
  static void launch(FakeClient& client, int launches) {
    for (int i = 0; i < launches; ++i) ASSERT_TRUE(client.post(0, {}));
    client.memory().counters.launches += static_cast<uint64_t>(launches);
    client.complete_all(0);
    ASSERT_TRUE(eventually([&] {  // the ring has room again
      return client.control().grants[0].ring_tail == client.memory().threads[0].ring_head;
    }));
  }
  json only() { return ps().at(0); }
};

TEST_F(MixedBuilds, AnOlderShimAttachesAndIsTold) {
  start();
  FakeClient client(config_.socket, old(7));
  const auto answer = std::bit_cast<first_build::Attached>(client.attached());
  EXPECT_EQ(answer.version, 1u);
  EXPECT_EQ(answer.managed, 1u);
  EXPECT_EQ(answer.priority, 7u);
  EXPECT_STRNE(answer.rule, "");
  EXPECT_EQ(std::string(answer.reason, sizeof answer.reason), std::string(256, '\0'));
  first_build::Header header;
  std::memcpy(&header, &client.control().header, sizeof header);
  EXPECT_EQ(header.magic, ipc::kControlMagic);
  EXPECT_GT(header.starvation_ms, 0u);
  EXPECT_EQ(status()["devices"].at(0)["sm_total"], 64);
}

TEST_F(MixedBuilds, AnOlderShimsLaunchesAreCountedOnceThoughItNeedNotTellThem) {
  config_.core.measure_runs = 10;
  config_.core.measure_us = 0;
  start();
  FakeClient client(config_.socket, old(0));
  uint64_t told = 0;
  const auto launch_until = [&](const std::atomic<uint32_t>& word) {
    return eventually([&] {
      launch(client, 100);
      told += 100;
      return word != 0;
    });
  };
  ASSERT_TRUE(launch_until(client.control().header.sparse));
  ASSERT_TRUE(launch_until(client.control().header.unobserved));
  for (int i = 0; i < 20; ++i) {
    launch(client, 100);
    told += 100;
  }
  EXPECT_TRUE(eventually([&] { return only()["devices"][0]["launches"] == told; }))
      << only()["devices"][0]["launches"] << " of " << told;
  EXPECT_EQ(only()["counters"]["malformed"], 0);
  EXPECT_EQ(only()["counters"]["dropped"], 0);
}

TEST_F(MixedBuilds, AnOlderShimIsSaidToKeepToNoMemoryLimit) {
  server::Rule rule;
  rule.terms.memory = "20GiB";
  config_.rules = {rule};
  start();
  FakeClient client(config_.socket, old(7));
  EXPECT_EQ(client.attached().managed, 1u);
  EXPECT_EQ(only()["memory"], "20GiB");
  EXPECT_EQ(only()["memory_by"], "none");
}

TEST_F(MixedBuilds, AnOlderShimIsGatedAndLetGo) {
  start("valve");
  FakeClient client(config_.socket, old(9));
  EXPECT_EQ(client.window(), ipc::kWindowGate);
  client.ask(0, 1);
  EXPECT_TRUE(eventually([&] { return stats()["asked"] == 1; })) << stats();
  EXPECT_FALSE(client.granted(0, 1));
  valve_.open = true;
  client.ring();
  EXPECT_TRUE(client.wait_granted(0, 1));
}

}  // namespace
}  // namespace heddle::testing
