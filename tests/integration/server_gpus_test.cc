// The server and clients that see different GPUs of one host, each by numbers of its own.
#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

class GpusTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    measure_briefly();
  }
  static void launch(FakeClient& client, uint8_t device) {
    ipc::RecordFields launched;
    launched.device = device;
    client.post(0, launched);
  }
  static bool gates(FakeClient& working, uint8_t device, FakeClient& other) {
    return eventually([&] {
      launch(working, device);
      return other.gated();
    });
  }
};

TEST_F(GpusTest, AClientOfAnotherGpuIsNotHeldBack) {
  start();
  FakeClient high(config_.socket, {.priority = 0, .gpus = "a"});
  FakeClient same(config_.socket, {.priority = 9, .gpus = "a"});
  FakeClient other(config_.socket, {.priority = 9, .gpus = "b"});
  ASSERT_TRUE(gates(high, 0, same));
  launch(other, 0);
  launch(high, 0);
  ASSERT_TRUE(eventually([&] { return status()["devices"].size() == 2; }));
  EXPECT_FALSE(other.gated());
  EXPECT_EQ(status()["devices"][1]["uuid"], "GPU-62626262-6262-6262-6262-626262626262");
}

TEST_F(GpusTest, AWaitForAnotherGpuConcernsNoClientOfThisOne) {
  start("valve");
  FakeClient high(config_.socket, {.priority = 0, .gpus = "a"});
  FakeClient other(config_.socket, {.priority = 4, .gpus = "b"});
  FakeClient waiting(config_.socket, {.priority = 9, .gpus = "a"});
  waiting.ask(0, 1);
  EXPECT_TRUE(eventually([&] { return high.control().header.contended == 1; }));
  EXPECT_EQ(other.control().header.contended, 0u);
  FakeClient late(config_.socket, {.priority = 1, .gpus = "a"});
  EXPECT_EQ(late.control().header.contended, 1u);
  FakeClient also(config_.socket, {.priority = 5, .gpus = "b"});
  also.ask(0, 1);
  EXPECT_TRUE(eventually([&] { return other.control().header.contended == 1; }));
  FakeClient between(config_.socket, {.priority = 6, .gpus = "b"});
  EXPECT_EQ(between.control().header.contended, 0u) << "who is less important waits elsewhere";
}

TEST_F(GpusTest, ClientsOfOneGpuAreHeldBackUnderWhateverNumber) {
  start();
  FakeClient high(config_.socket, {.priority = 0, .devices = 2, .gpus = "ab"});
  FakeClient low(config_.socket, {.priority = 9, .gpus = "b"});
  ASSERT_TRUE(gates(high, 1, low));
  EXPECT_TRUE(high.leased(1));
  for (const auto& client : ps()) {
    const bool is_low = client["id"] == low.attached().client_id;
    EXPECT_EQ(client["devices"].back()["device"], 1) << is_low;
    EXPECT_EQ(client["devices"].size(), is_low ? 1u : 2u);
  }
  low.ask(0, 1);
  high.kill_process();
  EXPECT_TRUE(low.wait_granted(0, 1));
}

// The same kernel is another one's length on another GPU.
TEST_F(GpusTest, AKernelsHintIsThatOfItsDevice) {
  start();
  FakeClient client(config_.socket, {.priority = 0, .devices = 2, .gpus = "ab"});
  client.register_kernel(0, 77, "a kernel");
  const auto hinted_us = [&](size_t device) {
    return client.control().hints[device].kernels[0].predicted_us.load();
  };
  for (const uint8_t device : {uint8_t{1}, uint8_t{0}}) {
    const float us = device == 0 ? 100 : 300;
    ipc::RecordFields launched;
    launched.device = device;
    launched.stream = device;
    launched.kernel = 0;
    client.set_clock(-5'000'000);
    client.post(device, launched);
    client.set_clock(0);
    launched.kind = wire::Kind::COMPLETION;
    launched.stream_seq = 2 - device;
    launched.duration_us = us;
    client.post(device, launched);
    EXPECT_TRUE(eventually([&] { return hinted_us(device) == us; }))
        << hinted_us(0) << ", " << hinted_us(1);
  }
  EXPECT_EQ(hinted_us(1), 300);
}

TEST_F(GpusTest, ALoneClientIsLeasedUntilAnotherComesToAnyGpu) {
  start();
  FakeClient alone(config_.socket, {.priority = 9, .gpus = "a"});
  EXPECT_FALSE(alone.leased()) << "others may be on their way back to a new daemon";
  EXPECT_TRUE(eventually([&] { return alone.leased(); }));
  {
    FakeClient other(config_.socket, {.priority = 9, .gpus = "b"});
    EXPECT_FALSE(alone.leased());
    launch(other, 0);
    EXPECT_TRUE(!other.leased() && !other.gated());
  }
  EXPECT_TRUE(eventually([&] { return alone.leased(); }));
  alone.kill_process();
  ASSERT_TRUE(eventually([&] { return ps().empty(); }));
  FakeClient next(config_.socket, {.priority = 9, .gpus = "a"});
  EXPECT_TRUE(next.leased()) << "beside nobody for as long as it lives, however short";
}

TEST_F(GpusTest, AClientWithoutAGpuNumberRunsFreely) {
  start();
  FakeClient many(config_.socket, {.priority = 0, .devices = 16, .gpus = "abcdefghijklmnop"});
  FakeClient one(config_.socket, {.priority = 9, .devices = 1, .gpus = "z"});
  EXPECT_EQ(one.attached().managed, 1u);
  EXPECT_TRUE(one.leased());
  launch(one, 0);
  one.complete_all(0);
  one.ask(0, 1);  // as who fails closed does once the daemon was silent
  EXPECT_TRUE(one.wait_granted(0, 1));
  EXPECT_TRUE(ps().at(1)["devices"].empty());
  EXPECT_EQ(ps().at(1)["counters"]["malformed"], 0);
}

TEST_F(GpusTest, TheNextGpuOfANumberHasASchedulerOfItsOwn) {
  start();
  {
    FakeClient many(config_.socket, {.priority = 0, .devices = 16, .gpus = "abcdefghijklmnop"});
    launch(many, 0);
    ASSERT_TRUE(eventually([&] { return stats()["posted"] == 1; }));
    many.kill_process();
    ASSERT_TRUE(eventually([&] { return ps().empty(); }));
  }
  FakeClient one(config_.socket, {.priority = 0, .gpus = "z"});
  EXPECT_EQ(status()["devices"][0]["uuid"], "GPU-7a7a7a7a-7a7a-7a7a-7a7a-7a7a7a7a7a7a");
  EXPECT_EQ(stats()["posted"], 0);
}

// What starts on the first of two GPUs alone runs on neither; nor is there a way back that fails.
TEST_F(GpusTest, APolicyThatDoesNotStartOnTheSecondGpuChangesNothingOnTheFirst) {
  start("valve");
  FakeClient one(config_.socket, {.priority = 0, .gpus = "a"});
  FakeClient two(config_.socket, {.priority = 0, .gpus = "b"});
  one.ask(0, 1);
  two.ask(0, 1);
  ASSERT_TRUE(eventually([&] {
    const json devices = status()["devices"];
    return devices.size() == 2 && devices[0]["waiting"] == 1 && devices[1]["waiting"] == 1;
  }));
  const json before = status()["policy"]["generation"];
  valve_.starts = 1;
  const json loaded = load("valve");
  EXPECT_FALSE(loaded["ok"]);
  EXPECT_EQ(loaded["error"],
            "valve: init failed: it is faulty; on device 1, the running policy stays");
  EXPECT_EQ(valve_.starts, -1) << "nobody was started anew";
  EXPECT_EQ(status()["policy"]["generation"], before);
  EXPECT_FALSE(one.granted(0, 1)) << "it holds what it held";
  valve_.open = true;
  EXPECT_TRUE(one.wait_granted(0, 1));
  EXPECT_TRUE(two.wait_granted(0, 1));
}

// Device 0 is where it was introduced; it launches nothing there.
TEST_F(GpusTest, AClientAloneOnItsSecondDeviceSamplesItsLaunches) {
  config_.report = server::ReportSetting::kRows;
  start();
  FakeClient client(config_.socket, {.priority = 0, .devices = 2, .gpus = "ab"});
  client.register_kernel(0, 42, "axpy");
  ipc::RecordFields launched, done, cleared;
  cleared.kind = wire::Kind::MEMSET;
  client.post(0, cleared);
  launched.device = done.device = 1;
  launched.kernel = 0;
  done.kind = wire::Kind::COMPLETION;
  done.evidence = wire::Evidence::SYNCHRONIZED;
  done.duration_us = 5;
  done.stream_seq = 1;  // the memset's
  EXPECT_TRUE(eventually([&] {
    client.post(0, launched);
    ++done.stream_seq;
    client.post(0, done);
    return client.control().header.sparse != 0;
  }));
}

TEST_F(ServerTest, AProcessKeepsTheSmSetsThatItMadeUnderAnotherDaemon) {
  start();
  constexpr ipc::MadeSets kMade{ipc::SetSizes(0b1010), {.anchor = 9, .positions = 1}};
  FakeClient before(config_.socket, {.made_sets = kMade, .mps = true});
  FakeClient fresh(config_.socket, {.mps = true});
  EXPECT_EQ(before.control().devices[0].ring, ipc::pack_ring(kMade.ring));
  EXPECT_EQ(before.control().devices[0].set_sizes, kMade.sizes.bits());
  EXPECT_EQ(fresh.control().devices[0].ring, ipc::pack_ring({}));
  EXPECT_NE(fresh.control().devices[0].set_sizes, kMade.sizes.bits());
}

}  // namespace
}  // namespace heddle::testing
