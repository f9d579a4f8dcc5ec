// Gates on the device under the built shim: what goes behind one, what asks, and who opens.
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <string>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Admission;
using wire::Kind;

class ShimGates : public Shim {
 protected:
  ShimGates() : app_(gated()) {
    start(app_, kGate);
    // At first sight of a kernel it asks: nothing is known of it.
    for (const char* command : {"launch", "second"}) expect_asks(command);
    predict(20);
    EXPECT_EQ(app_("set fake_noting 1"), "1");
    daemon_.records();
  }
  std::vector<std::string> gated() {
    std::vector<std::string> all = environment();
    all.push_back("HEDDLE_GATES=1");
    return all;
  }

  void expect_asks(const std::string& command) {
    app_.send(command);
    const auto ask = daemon_.wait_for_ask();
    EXPECT_EQ(ask.admission, Admission::ASK) << command;
    daemon_.grant(ask);
    EXPECT_EQ(app_.receive(), "0");
  }
  void expect_gated(const std::string& command, uint32_t ticket) {
    EXPECT_EQ(app_(command), "0");
    const auto seen = records(Kind::KERNEL);
    ASSERT_EQ(seen.size(), 1u) << command;
    EXPECT_EQ(seen[0].admission, Admission::GATED) << command;
    EXPECT_EQ(seen[0].ask_seq, ticket) << command;
    EXPECT_EQ(app_("get fake_ticket"), std::to_string(ticket));
  }
  bool open() const { return ipc::gate_is_open(daemon_.gates->released[0], 1'000); }
  static bool soon(const std::function<bool()>& what) {
    for (int i = 0; i < 5'000 && !what(); ++i) poll(nullptr, 0, 1);
    return what();
  }

  Application app_;
};

TEST_F(ShimGates, AHeldLaunchGoesBehindAGateAndItsThreadGoesOn) {
  expect_gated("launch", 1);
  expect_gated("second", 2);
  EXPECT_EQ(app_("get fake_registered"), "1");
  const std::string ops = app_("ops");
  EXPECT_EQ(ops.rfind("gate 0,", 0), 0u) << ops;
  EXPECT_LT(ops.find("gate 0,"), ops.find("launch 0,")) << ops;
}

TEST_F(ShimGates, TheFirstLaunchOfAKernelAsks) {
  predict(0);
  expect_asks("launch");
}

TEST_F(ShimGates, CooperativeLaunchesAsk) { expect_asks("coop"); }

TEST_F(ShimGates, AShortGraphGoesBehindAGate) {
  EXPECT_EQ(app_("graph"), "0");
  const auto seen = records(Kind::GRAPH);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].admission, Admission::GATED);
  EXPECT_EQ(seen[0].may_follow, 0);
}

TEST_F(ShimGates, WhatGraphsHaveForGatesEndsWithTheirContext) {
  EXPECT_EQ(app_("retain"), "0");
  EXPECT_EQ(app_("graph_make"), "0");
  EXPECT_EQ(app_("get fake_clones"), "1");
  EXPECT_EQ(app_("release"), "0");
  EXPECT_EQ(app_("get fake_clones"), "0");
}

TEST_F(ShimGates, ALongGraphAsksWhereTheDriverTellsNoEdges) {
  predict(3'000);
  expect_asks("graph");
}

TEST_F(ShimGates, ALeaseHasNoGates) {
  daemon_.control().windows[0].word = kLease;
  EXPECT_EQ(app_("launch"), "0");
  EXPECT_EQ(app_("get fake_registered"), "0");
}

TEST_F(ShimGates, WhereTheDriverTakesNoGateTheLaunchAsks) {
  EXPECT_EQ(app_("set fake_no_gates 1"), "1");
  expect_asks("launch");
}

TEST_F(ShimGates, RegisteringThePageEndsNoCapture) {
  EXPECT_EQ(app_("set fake_unseen 1"), "1");
  EXPECT_EQ(app_("launch"), "0");
  EXPECT_EQ(app_("get fake_registered"), "1");
  EXPECT_EQ(app_("get fake_ended"), "0");
}

TEST_F(ShimGates, ThePageIsRegisteredAgainWhenItsContextEnded) {
  expect_gated("launch", 1);
  EXPECT_EQ(app_("destroy_context 1"), "0");
  expect_gated("launch", 2);
  EXPECT_EQ(app_("get fake_registered"), "2");
}

TEST_F(ShimGates, AThreadThatIsFarAheadWaitsUntilSomeAreLetGo) {
  for (int i = 0; i < 200; ++i) ASSERT_EQ(app_("launch"), "0");
  app_.send("launch");
  poll(nullptr, 0, 20);
  EXPECT_FALSE(app_.answered());
  daemon_.gates->released[0] = 1;
  EXPECT_EQ(app_.receive(), "0");
}

TEST_F(ShimGates, TheyAreOpenedWhenTheDaemonHangsUp) {
  expect_gated("launch", 1);
  daemon_.hang_up();
  EXPECT_TRUE(soon([&] { return open(); }));
  EXPECT_EQ(daemon_.gates->leaving, 1u);
}

TEST_F(ShimGates, TheyAreOpenedWhenTheHeartbeatStops) {
  expect_gated("launch", 1);
  daemon_.gates->heartbeat_ns = 0;
  EXPECT_TRUE(soon([&] { return open(); }));
}

TEST_F(ShimGates, AnotherSessionHasItsOwn) {
  expect_gated("launch", 1);
  const ipc::GatePage* const first = daemon_.gates;
  daemon_.hang_up();
  daemon_.accept(kGate);
  predict(20);
  ASSERT_TRUE(soon([&] { return first->leaving == 1; }));
  ASSERT_NE(daemon_.gates, first);
  // Until the new session is current, launches pass straight through.
  ASSERT_TRUE(soon([&] {
    EXPECT_EQ(app_("launch"), "0");
    return !daemon_.records().empty();
  }));
  EXPECT_EQ(daemon_.gates->released[0], 0u);
  EXPECT_EQ(daemon_.gates->leaving, 0u);
}

TEST_F(ShimGates, WorkThatOthersWaitForOpensThem) {
  expect_gated("launch", 1);
  EXPECT_EQ(app_("nccl"), "0");
  EXPECT_TRUE(soon([&] { return open(); }));
}

TEST_F(ShimGates, AWrittenValueOpensThem) {
  expect_gated("launch", 1);
  app_("write");
  EXPECT_TRUE(soon([&] { return open(); }));
}

TEST_F(ShimGates, AForkedChildHasNone) {
  expect_gated("launch", 1);
  EXPECT_EQ(app_("fork"), "0");
  expect_gated("launch", 2);
}

TEST_F(Shim, WithoutBeingWantedThereAreNoGates) {
  Application app(environment());
  start(app, kGate);
  EXPECT_EQ(daemon_.gates, nullptr);
}

TEST_F(Shim, UnderADaemonWithoutGatesItAsks) {
  daemon_.has_gates = false;
  std::vector<std::string> all = environment();
  all.push_back("HEDDLE_GATES=1");
  Application app(all);
  start(app, kGate);
  predict(20);
  app.send("launch");
  daemon_.grant(daemon_.wait_for_ask());
  EXPECT_EQ(app.receive(), "0");
}

}  // namespace
}  // namespace heddle::shim_test
