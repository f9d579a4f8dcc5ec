// The server and a client that is alone at work: its launches need no record
// (server/reports.h).
#include "tests/integration/server_setting.h"

namespace heddle::testing {
namespace {

// Alone, measured and fast: its launches need no record, until somebody else is there.
class UnobservedTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    measure_briefly();
  }
  static bool unobserved(FakeClient& client) { return client.control().header.unobserved != 0; }
  // As the shim does: posts what somebody hears of, and counts all of it when it waits.
  static void launch(FakeClient& client) {
    constexpr int kLaunches = 100;
    uint64_t untold = 0;
    for (int i = 0; i < kLaunches; ++i) {
      if (unobserved(client)) {
        ++untold;
      } else {
        client.post(0, {});
      }
    }
    client.memory().counters.launches += kLaunches;
    client.memory().counters.unobserved += untold;
    client.complete_all(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  static bool goes_unobserved(FakeClient& client) {
    return eventually([&] {
      launch(client);
      return unobserved(client);
    });
  }
  // Another policy is current, which gates everybody.
  void gate(FakeClient& client) {
    std::ofstream(directory_ + "/policies/current.lua") << "valve";
    EXPECT_TRUE(eventually([&] { return client.gated(); }));
  }
  // It stays observed for longer than it takes to become unobserved.
  static bool stays_observed(FakeClient& client) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
    while (std::chrono::steady_clock::now() < end) {
      launch(client);
      if (unobserved(client)) return false;
    }
    return true;
  }
};

TEST_F(UnobservedTest, AnotherThatAttachesEndsIt) {
  start();
  FakeClient client(config_.socket, {.priority = 0});
  ASSERT_TRUE(goes_unobserved(client));
  EXPECT_TRUE(ask_daemon(Request::Kind::kPs)["clients"][0]["unobserved"]);
  FakeClient other(config_.socket, {.priority = 9});
  EXPECT_FALSE(unobserved(client));
}

TEST_F(UnobservedTest, LaunchesOfAnUnobservedClientAreCounted) {
  start();
  FakeClient client(config_.socket, {.priority = 0});
  ASSERT_TRUE(goes_unobserved(client));
  for (int i = 0; i < 100; ++i) launch(client);
  const auto counted = [&] {
    return ask_daemon(Request::Kind::kPs)["clients"][0]["devices"][0]["launches"];
  };
  EXPECT_TRUE(eventually([&] {
    launch(client);
    return counted() > 10'000;
  }));
  EXPECT_LE(counted(), client.memory().counters.launches.load());
}

// It has been silent for long, but what it launched runs.
TEST_F(UnobservedTest, NoClientIsUnobservedBesideAWaitingOne) {
  start();
  FakeClient client(config_.socket, {.priority = 0}), other(config_.socket, {.priority = 0});
  other.post(0, {});
  other.post(0, {.kind = wire::Kind::WAIT});
  EXPECT_TRUE(stays_observed(client));
}

TEST_F(UnobservedTest, AnotherThatAsksEndsItAndIsServed) {
  start();
  FakeClient other(config_.socket, {.priority = 9});
  FakeClient client(config_.socket, {.priority = 0});
  ASSERT_TRUE(goes_unobserved(client));
  other.ask(0, 1);
  other.ring();
  EXPECT_TRUE(other.wait_granted(0, 1)) << "once the first has been silent for a while";
  EXPECT_FALSE(unobserved(client));
}

TEST_F(UnobservedTest, AnotherPolicyEndsIt) {
  start();
  FakeClient client(config_.socket, {.priority = 0});
  ASSERT_TRUE(goes_unobserved(client));
  gate(client);
  EXPECT_FALSE(unobserved(client));
}

TEST_F(UnobservedTest, NoClientIsUnobservedWhileTwoWork) {
  start();
  FakeClient client(config_.socket, {.priority = 0}), other(config_.socket, {.priority = 0});
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  while (std::chrono::steady_clock::now() < end) {
    launch(client);
    launch(other);
    ASSERT_FALSE(unobserved(client) || unobserved(other));
  }
}

TEST_F(UnobservedTest, AClientWithUnmeasuredKernelsIsObserved) {
  config_.core.measure_runs = 1'000'000;
  start();
  FakeClient client(config_.socket, {.priority = 0});
  EXPECT_TRUE(stays_observed(client));
}

TEST_F(UnobservedTest, EveryClientIsObservedIfTheAdministratorSaysSo) {
  config_.report = server::ReportSetting::kRows;
  start();
  FakeClient client(config_.socket, {.priority = 0});
  EXPECT_TRUE(stays_observed(client));
}

// Whoever has a lease may tell of launches in rows, alone or not.
class SparseTest : public UnobservedTest {
 protected:
  static bool sparse(FakeClient& client) { return client.control().header.sparse != 0; }
  static bool goes_sparse(FakeClient& client) {
    return eventually([&] {
      launch(client);
      return sparse(client);
    });
  }
};

TEST_F(SparseTest, LeasedClientsAreSparseAndGatedOnesAreNot) {
  start();
  FakeClient client(config_.socket, {.priority = 0}), other(config_.socket, {.priority = 9});
  ASSERT_TRUE(goes_sparse(client));
  EXPECT_EQ(ipc::sparse_priority(client.control().header.sparse),
            client.control().devices[0].launch_priority);
  EXPECT_TRUE(ask_daemon(Request::Kind::kPs)["clients"][0]["sparse"]);
  EXPECT_FALSE(sparse(other));
}

TEST_F(SparseTest, ARowIsCounted) {
  start();
  FakeClient client(config_.socket, {.priority = 0});
  client.post(0, {});
  client.post(0, {.untold = 20});
  client.post(0, {.kind = wire::Kind::WAIT, .untold = 3});
  EXPECT_TRUE(eventually([&] {
    return ask_daemon(Request::Kind::kPs)["clients"][0]["devices"][0]["launches"] == 25;
  }));
}

TEST_F(SparseTest, AnotherPolicyEndsItAtOnce) {
  start();
  FakeClient client(config_.socket, {.priority = 0});
  ASSERT_TRUE(goes_sparse(client));
  gate(client);
  EXPECT_FALSE(sparse(client));
}

TEST_F(SparseTest, NoClientIsSparseIfTheAdministratorSaysSo) {
  config_.report = server::ReportSetting::kEach;
  start();
  FakeClient client(config_.socket, {.priority = 0});
  EXPECT_TRUE(stays_observed(client)) << "long enough";
  EXPECT_FALSE(sparse(client));
}

TEST_F(UnobservedTest, ClientWithAnSmSetIsTold) {
  start();
  FakeClient client(config_.socket, {.priority = 0, .sms = "50%"});
  EXPECT_TRUE(stays_observed(client));
}

// Neither is the daemon to sleep while stops may be due, whoever has been silent.
TEST_F(ServerTest, HearsOfEverythingWhileWhatRunsMayBeStopped) {
  config_.gpu_mode = server::GpuMode::kTimeslice;
  config_.stops = server::StopsSetting::kOn;
  start();
  FakeClient running(config_.socket, {.priority = 9});
  FakeClient launching(config_.socket, {.priority = 0});
  running.memory().threads[0].stop_able = ipc::kStopYes;
  launching.post(0, {});
  launching.complete_all(0);
  launching.ring();
  running.ask(0, 1);
  running.ring();
  ASSERT_TRUE(running.wait_granted(0, 1));
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 50; ++i) launching.post(0, {});  // each counts as 100 µs
    launching.ring();
    return ipc::unpack_stop(running.control().devices[0].stop).off;
  }));
  expect_heard(launching);  // one kernel stands meanwhile
}

}  // namespace
}  // namespace heddle::testing
