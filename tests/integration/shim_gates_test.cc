// Gates on the device under the built shim: what goes behind one, what asks, and who opens.
#include <atomic>
#include <thread>

#include "tests/integration/shim_gates_fixture.h"

namespace heddle::shim_test {
namespace {

TEST_F(ShimGates, AHeldLaunchGoesBehindAGateAndItsThreadGoesOn) {
  expect_gated("launch", 1);
  EXPECT_EQ(app_("get fake_registered"), "1");
  EXPECT_EQ(app_("ops"), "gate 0,launch 0,");
}

TEST_F(ShimGates, LaunchesOf150MicrosecondsShareAGate) {
  for (int i = 0; i < 7; ++i) expect_gated(i % 2 == 0 ? "launch" : "second", 1);
  expect_gated("launch", 2);
  EXPECT_EQ(app_("ops"),
            "gate 0,launch 0,launch 0,launch 0,launch 0,launch 0,launch 0,launch 0,"
            "done 0,gate 0,launch 0,");
}

TEST_F(ShimGates, AnotherStreamHasAGateOfItsOwn) {
  expect_gated("launch 64", 1);
  expect_gated("launch 72", 2);
  expect_gated("launch 64", 3);
}

TEST_F(ShimGates, AnotherThreadEndsAUnit) {
  expect_gated("launch 64", 1);
  app_.send("@launch 72");
  EXPECT_EQ(app_("result"), "0");
  daemon_.records();
  expect_gated("launch 64", 3);
}

TEST_F(ShimGates, AnotherThreadHasAGateOfItsOwnInTheSameStream) {
  expect_gated("launch 64", 1);
  app_.send("@launch 64");
  EXPECT_EQ(app_("result"), "0");
  EXPECT_EQ(records(Kind::KERNEL).at(0).ask_seq, kFirst + 2);
}

// Whatever lets it go has to let the later one go.
TEST_F(ShimGates, ALaunchHasTheTicketOfALaterGateThatIsInItsStreamBefore) {
  EXPECT_EQ(app_("set fake_held_ticket " + std::to_string(kFirst + 1)), std::to_string(kFirst + 1));
  app_.send("@launch 64");
  ASSERT_TRUE(soon([&] { return app_("get fake_ticket") == std::to_string(kFirst + 1); }));
  expect_gated("launch 64", 2);
  EXPECT_EQ(app_("set fake_held_ticket 0"), "0");
  EXPECT_EQ(app_("result"), "0");
  EXPECT_EQ(records(Kind::KERNEL).at(0).ask_seq, kFirst + 2);
}

TEST_F(ShimGates, ALaunchWhoseThreadWaitsEndsAUnit) {
  expect_gated("launch", 1);
  predict(0);
  expect_asks("launch");
  predict(20);
  daemon_.records();
  expect_gated("launch", 3);
}

// Its handle and its place may be those of the one before.
TEST_F(ShimGates, AnotherStreamInTheSamePlaceHasAGateOfItsOwn) {
  expect_gated("launch 64", 1);
  EXPECT_EQ(app_("destroy 64"), "0");
  app_("ops");
  expect_gated("launch 64", 2);
  EXPECT_EQ(app_("ops"), "gate 64,launch 64,") << "nothing was before it in this stream";
}

TEST_F(ShimGates, WhereTheDriverTakesNoBatchThereAreGatesAlone) {
  EXPECT_EQ(app_("set fake_no_batch 1"), "1");
  predict(150);
  for (const uint32_t ticket : {1, 2, 3}) expect_gated("launch", ticket);
  EXPECT_EQ(app_("ops"), "gate 0,launch 0,gate 0,launch 0,gate 0,launch 0,");
}

TEST_F(ShimGates, ALeaseHasNoGatesThoughItMaySoonHaveThem) {
  daemon_.gates->wanted[0] = 1;
  daemon_.control().devices[0].leased = kLease;
  EXPECT_EQ(launch("launch").admission, Admission::LEASE);
}

TEST_F(ShimGates, TheDaemonIsWokenForTheFirstLaunchOfAUnitThatStands) {
  daemon_.control().sleeping = ipc::kWakeOnAny;
  expect_gated("launch", 1);
  EXPECT_TRUE(daemon_.rung());
  for (int i = 0; i < 6; ++i) expect_gated("launch", 1);
  EXPECT_FALSE(daemon_.rung());
  expect_gated("launch", 2);
  EXPECT_TRUE(daemon_.rung());
}

TEST_F(ShimGates, TheDaemonIsNotWokenWhileTheGatesStandOpen) {
  daemon_.gates->word[0] = ipc::gate_open(0);
  predict(150);
  expect_gated("launch", 1);  // and what asked before is told to be over
  daemon_.control().sleeping = ipc::kWakeOnAny;
  for (const uint32_t ticket : {2, 3, 4}) expect_gated("launch", ticket);
  EXPECT_FALSE(daemon_.rung());
}

TEST_F(ShimGates, AHeldLaunchRunsOnAllSms) { EXPECT_TRUE(launch("launch").unmovable); }

TEST_F(ShimGates, AHeldLaunchHasItsClientsPriority) {
  daemon_.control().devices[0].launch_priority = -3;
  expect_gated("launch", 1);
  EXPECT_EQ(app_("get fake_priority"), "-3");
}

TEST_F(ShimGates, AHeldLaunchThatTheDriverRefusesIsNotToldAsOver) {
  EXPECT_EQ(app_("set fake_fail 1"), "1");
  EXPECT_EQ(app_("launch"), "1");
  for (const RecordFields& record : records(Kind::COMPLETION)) {
    EXPECT_NE(record.evidence, wire::Evidence::FAILED);
  }
}

TEST_F(ShimGates, ATimedPairStandsBehindItsGate) {
  daemon_.control().hints[0].kernels[0].special = ipc::pack_special({.measure = 1});
  expect_gated("launch", 1);
  EXPECT_EQ(app_("ops"), "gate 0,record 0,launch 0,record 0,");
}

TEST_F(ShimGates, TheFirstLaunchOfAKernelWaitsInItsThread) {
  predict(0);
  expect_asks("launch");
}

TEST_F(ShimGates, CooperativeLaunchesWaitInTheirThread) { expect_asks("coop"); }

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
  EXPECT_EQ(app_("call cuDevicePrimaryCtxRelease_v2"), "0");
  EXPECT_EQ(app_("get fake_clones"), "0");
}

TEST_F(ShimGates, ALongGraphWaitsInItsThreadWhereTheDriverTellsNoEdges) {
  daemon_.gates->wanted[0] = ipc::kGatesSoon | ipc::kGatesInside;
  predict(3'000);
  expect_asks("graph");
}

TEST_F(ShimGates, ALeaseHasNoGates) {
  daemon_.control().devices[0].leased = kLease;
  EXPECT_EQ(app_("launch"), "0");
  EXPECT_EQ(app_("get fake_registered"), "0");
}

TEST_F(ShimGates, WhereTheDriverTakesNoGateTheThreadWaits) {
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

TEST_F(ShimGates, AStreamOfAContextThatMayOutliveThePageStandsAtNoGate) {
  expect_gated("launch 64", 1);
  daemon_.control().devices[1].leased = kGate;
  EXPECT_EQ(app_("context 2"), "0");
  expect_asks("launch 4096");
}

TEST_F(ShimGates, APageInThePrimaryContextIsForAllContexts) {
  EXPECT_EQ(app_("set fake_primary 1"), "1");
  EXPECT_EQ(app_("context 2"), "0");
  daemon_.control().devices[1].leased = kGate;
  expect_gated("launch 4096", 1, 0);
}

TEST_F(ShimGates, AThreadThatIsFarAheadWaitsUntilSomeAreLetGo) {
  EXPECT_EQ(app_("burst 250"), "0");  // 5 ms
  app_.send("launch");
  poll(nullptr, 0, 20);
  EXPECT_FALSE(app_.answered());
  let_go(1);
  EXPECT_EQ(app_.receive(), "0");
}

TEST_F(ShimGates, CopiesEventsAndWaitsCountAsAhead) {
  predict(1);
  EXPECT_EQ(app_("launch 64"), "0");
  for (int i = 0; i < 140; ++i) {
    for (const char* command : {"memset 64", "record 64", "call cuStreamWaitEvent 64"}) {
      ASSERT_EQ(app_(command), "0");
    }
  }
  app_.send("launch 64");
  poll(nullptr, 0, 20);
  EXPECT_FALSE(app_.answered());
  let_go(1);
  EXPECT_EQ(app_.receive(), "0");
}

TEST_F(ShimGates, AThreadIsNotFarAheadWhileTheGatesStandOpen) {
  daemon_.gates->word[0] = ipc::gate_open(0);
  EXPECT_EQ(app_("burst 900"), "0");  // which the ring has room for
}

TEST_F(ShimGates, TheyAreOpenedWhenTheDaemonHangsUp) {
  expect_gated("launch", 1);
  daemon_.hang_up();
  EXPECT_TRUE(soon([&] { return open(); }));
}

TEST_F(ShimGates, TheyAreOpenedWhenTheHeartbeatStops) {
  expect_gated("launch", 1);
  daemon_.gates->heartbeat_ns = 0;
  EXPECT_TRUE(soon([&] { return open(); }));
}

TEST_F(ShimGates, TheyCloseAgainWhenItGoesOn) {
  expect_gated("launch", 1);
  daemon_.gates->heartbeat_ns = 0;
  ASSERT_TRUE(soon([&] { return open(); }));
  daemon_.gates->heartbeat_ns = INT64_MAX;
  ASSERT_TRUE(soon([&] { return floor() == kFirst + 1; })) << "what was posted goes, and no more";
  let_go(1);  // as heddled does at its next look
  expect_gated("launch", 2);
  EXPECT_TRUE(stands_at(1));
}

TEST_F(ShimGates, AnotherSessionHasItsOwn) {
  expect_gated("launch", 1);
  const ipc::GatePage* const first = daemon_.gates;
  daemon_.hang_up();
  daemon_.accept(kGate);
  predict(20);
  ASSERT_TRUE(soon([&] { return ipc::gate_is_open(first->word[0], 1); }));
  ASSERT_NE(daemon_.gates, first);
  // Until the new session is current, launches pass straight through.
  ASSERT_TRUE(soon([&] {
    EXPECT_EQ(app_("launch"), "0");
    return !daemon_.records().empty();
  }));
  EXPECT_EQ(daemon_.gates->word[0], 0u);
  EXPECT_EQ(floor(), 0u);
}

TEST_F(ShimGates, WorkThatOthersWaitForIsNotHeldLongerThanALaunchMayBe) {
  daemon_.control().header.starvation_ms = 50;
  expect_floor("nccl");
  expect_held_again();
}

TEST_F(ShimGates, WorkThatOthersWaitForWaitsUntilWhatIsBeforeItGoes) {
  expect_gated("launch", 1);
  std::atomic<bool> over{false};
  std::thread program([&] {
    EXPECT_EQ(app_("nccl"), "0");
    over = true;
  });
  for (int i = 0; i < 50; ++i, poll(nullptr, 0, 1)) EXPECT_FALSE(over.load());
  let_go(1);
  program.join();
  EXPECT_EQ(floor(), kFirst + 1);
}

TEST_F(ShimGates, WorkThatOthersWaitForLetsThePostedGoThoughItsThreadHasNoSlot) {
  daemon_.control().header.starvation_ms = 60'000;
  expect_gated("launch", 1);
  EXPECT_EQ(app_("threads_nccl 65"), "65");
  EXPECT_GE(floor(), kFirst + 1);
}

TEST_F(ShimGates, WhatIsBeforeAWrittenValueGoes) { expect_floor("call cuStreamWriteValue32_v2"); }

TEST_F(ShimGates, WhatIsBeforeAHostFunctionGoes) {
  daemon_.control().header.starvation_ms = 50;
  expect_floor("call cuLaunchHostFunc");
  expect_held_again();
}

TEST_F(ShimGates, WhatIsBeforeACallbackGoes) {
  daemon_.control().header.starvation_ms = 50;
  expect_floor("call cuStreamAddCallback");
  expect_held_again();
}

TEST_F(ShimGates, WhatIsBeforeASharedEventGoes) { expect_floor("call cuIpcOpenEventHandle"); }

TEST_F(ShimGates, AFullRingMakesItsThreadWaitAndOpensNothing) {
  daemon_.gates->word[0] = ipc::gate_open(0);
  constexpr uint32_t kLaunches = ipc::kRingRecords + 100;
  std::atomic<bool> over{false};
  std::thread program([&] {
    for (uint32_t i = 0; i < kLaunches; ++i) app_("launch");
    over = true;
  });
  EXPECT_TRUE(
      soon([&] { return daemon_.client().threads[0].ring_head.load() >= ipc::kRingRecords - 16; }));
  for (int i = 0; i < 50; ++i, poll(nullptr, 0, 1)) {  // that nothing happens is seen after a while
    ASSERT_FALSE(floor() != 0 || over.load());
  }
  uint32_t told = 0;
  const auto read = [&] {
    for (const RecordFields& record : daemon_.records()) {
      told += record.admission == Admission::GATED ? 1 : 0;
    }
  };
  while (!over) {
    read();
    std::this_thread::yield();
  }
  program.join();
  read();
  EXPECT_EQ(told, kLaunches);
  EXPECT_EQ(floor(), 0u);
}

TEST_F(ShimGates, AForkedChildHasNone) {
  expect_gated("launch 64", 1);
  EXPECT_EQ(app_("fork"), "0");
  expect_gated("launch 72", 2);
}

TEST_F(Shim, OfAProgramThatWantsNoGatesTheThreadsWait) {
  daemon_.has_gates = true;
  std::vector<std::string> all = environment();
  all.push_back("HEDDLE_GATES=0");
  Application app(all);
  start(app, kGate);
  predict(20);
  expect_asks(app, "launch");
  EXPECT_EQ(app("get fake_registered"), "0");
}

TEST_F(Shim, UnderADaemonThatHoldsNothingOnTheGpuTheThreadsWait) {
  Attached app(*this, kGate);
  predict(20);
  for (int i = 0; i < 3; ++i) expect_asks(app, "launch");
  EXPECT_EQ(app("get fake_registered"), "0");
}

// The daemon lets go a prefix, whoever waits.
TEST_F(ShimGates, TicketsOfThreadsAndOfGatesAreOneOrder) {
  expect_gated("launch 64", 1);
  app_.send("@coop 72");
  const RecordFields ask = daemon_.wait_for_ask(1);
  EXPECT_EQ(ask.ask_seq, kFirst + 2);
  expect_gated("launch 64", 3);
  daemon_.grant(ask, 0, 1);
  EXPECT_EQ(app_("result"), "0");
  EXPECT_TRUE(stands_at(2)) << "and the gate behind it stands";
}

// Also where the daemon says nothing to it: its client's floor moved, or its gates stand open.
TEST_F(ShimGates, AThreadGoesWhenItsTicketIsBeforeTheWord) {
  for (const uint32_t word : {kFirst + 1, ipc::gate_open(kFirst + 2)}) {
    app_.send("coop");
    daemon_.wait_for_ask();
    daemon_.gates->word[0] = word;
    EXPECT_EQ(app_.receive(), "0");
  }
}

}  // namespace
}  // namespace heddle::shim_test
