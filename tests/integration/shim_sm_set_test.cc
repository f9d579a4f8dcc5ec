// The built shim's SM sets: the detour of a launch, what takes none, and who ends what.
#include <gtest/gtest.h>
#include <poll.h>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

constexpr uint32_t kSet = 5;   // the first group, and what the split left over
constexpr uint32_t kLast = 4;  // what the split left over

class ShimSmSet : public Shim {
 protected:
  // An application that is to keep to kSet, and whose policies may keep launches to `sizes`.
  void start_on_set(Application& app, uint32_t sizes = 0) {
    start(app, kLease);
    predict(10);
    daemon_.control().devices[0].sm_set = kSet;
    daemon_.control().devices[0].set_sizes = sizes;
    app("retain");
    app("set fake_noting 1");
  }
  struct OnSet : Application {
    explicit OnSet(ShimSmSet& shim, uint32_t sizes = 0) : Application(shim.environment()) {
      shim.start_on_set(*this, sizes);
    }
  };

  // Launches; the lane that it took, "" if none.
  std::string lane_of(Application& app, const std::string& launch = "launch 64") {
    app("ops");
    app(launch);
    const std::string seen = app("ops");
    const size_t at = seen.find("launch 3");
    return at != std::string::npos ? seen.substr(at + 7, 4) : "";
  }
  static std::string detour(const std::string& lane, const std::string& stream) {
    return "record " + stream + ",wait " + lane + ",launch " + lane + ",record " + lane + ",wait " +
           stream + ",";
  }
  uint64_t on_sm_set() { return daemon_.client().counters.on_sm_set; }
  uint64_t off_sm_set() { return daemon_.client().counters.off_sm_set; }
};

TEST_F(ShimSmSet, SaysHowTheDeviceSplitsAndWhatItWasAskedFor) {
  auto variables = environment();
  variables.push_back("HEDDLE_SMS=25%");
  Application app(variables);
  start(app, kLease);
  EXPECT_EQ(daemon_.sms, "25%");
  EXPECT_EQ(daemon_.groups, (std::vector<uint16_t>{8, 8, 8}));
}

TEST_F(ShimSmSet, AHeldLaunchStandsAtItsGateBeforeTheDetour) {
  daemon_.has_gates = true;
  Application app(environment());
  start(app, kGate);
  daemon_.control().devices[0].sm_set = kSet;
  app("retain");
  expect_asks(app, "launch 64");  // nothing is known of the kernel
  predict(10);
  app("set fake_noting 1");
  daemon_.records();
  const std::string lane = lane_of(app);
  ASSERT_NE(lane, "");
  app("launch 64");
  EXPECT_EQ(app("ops"), detour(lane, "64")) << "the rest of the unit needs no gate";
  const auto seen = records(wire::Kind::KERNEL);
  ASSERT_EQ(seen.size(), 2u);
  for (const auto& record : seen) {
    EXPECT_EQ(record.admission, wire::Admission::GATED);
    EXPECT_FALSE(record.unmovable);
  }
}

// The lane's queue in the driver ends as a stream's does: there the driver would make the thread
// wait.
TEST_F(ShimSmSet, DetoursOfHeldLaunchesCountAsAhead) {
  daemon_.has_gates = true;
  Application app(environment());
  start(app, kGate);
  daemon_.control().devices[0].sm_set = kSet;
  app("retain");
  expect_asks(app, "launch 64");
  predict(1);
  daemon_.records();
  for (int i = 0; i < 134; ++i) ASSERT_EQ(app("launch 64"), "0");
  app.send("launch 64");
  poll(nullptr, 0, 50);
  EXPECT_FALSE(app.answered());
  daemon_.gates->word[0] = ipc::gate_open(1'000);
  EXPECT_EQ(app.receive(), "0");
}

TEST_F(ShimSmSet, ALaunchIsTiedToItsStreamOnBothSides) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  EXPECT_EQ(app("get fake_groups"), std::to_string(kSet));
  EXPECT_EQ(app("get fake_lane_priority"), "-3") << "the application's stream's own";
  const uint64_t before = on_sm_set();
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("ops"), detour(lane, "64"));
  EXPECT_EQ(on_sm_set(), before + 1);
  // The default stream has a lane of its own.
  const std::string other = lane_of(app, "launch 0");
  EXPECT_NE(other, lane);
  EXPECT_EQ(app("launch 0"), "0");
  EXPECT_EQ(app("ops"), detour(other, "0"));
  EXPECT_EQ(app("get fake_green_contexts"), "1");
}

// Between a thread's record and its wait another's may come.
TEST_F(ShimSmSet, EachThreadTiesWithEventsOfItsOwn) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  app("launch 64");
  const std::string tie = app("get fake_tie");
  app.send("@launch 64");
  app("result");
  EXPECT_NE(app("get fake_tie"), tie);
  app("launch 64");
  EXPECT_EQ(app("get fake_tie"), tie);
}

// What came between would overlap with the launch: the stream waits for that only at the end.
TEST_F(ShimSmSet, NoOtherThreadPutsWorkIntoAStreamAmidADetour) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  for (const char* beside : {"launch 64", "coop 64", "memset 64"}) {
    EXPECT_EQ(app(beside), "0");  // known by now
    app("ops");
    app("set fake_lane_pause_ms 50");
    app.send("@launch 64");
    while (app("get fake_lane_pauses") == "0") {
    }
    app("set fake_lane_pause_ms 0");
    EXPECT_EQ(app(beside), "0");
    EXPECT_EQ(app("result"), "0");
    EXPECT_EQ(app("ops").find(detour(lane, "64")), 0u) << beside;
  }
}

TEST_F(ShimSmSet, WithoutAnSmSetNothingIsMade) {
  Attached app(*this, kLease);
  predict(10);
  app("retain");
  app("again 200");
  EXPECT_EQ(app("get fake_green_contexts"), "0");
  EXPECT_EQ(on_sm_set() + off_sm_set(), 0u);
}

TEST_F(ShimSmSet, AGrantSaysWhere) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  daemon_.control().devices[0].leased = kGate;
  expect_asks(app, "launch 64", 0, 0u, 0u);
  const std::string seen = app("ops");
  EXPECT_EQ(seen.find(lane), std::string::npos) << seen;
  expect_asks(app, "launch 64", 0, 0u, kSet);
  EXPECT_NE(app("ops").find(detour(lane, "64")), std::string::npos);
}

// What stays where it is says so before the daemon counts on its SM set.
TEST_F(ShimSmSet, AnAskSaysWhatCannotMove) {
  Attached app(*this, kGate);
  predict(10);
  daemon_.control().devices[0].set_sizes = 0b11;
  app("retain");
  app("set fake_noting 1");
  const auto unmovable = [&](const std::string& launch, uint32_t sm_set) {
    return expect_asks(app, launch, 0, 0u, sm_set).unmovable;
  };
  for (const char* launch : {"launch 64", "launch 72"}) EXPECT_FALSE(unmovable(launch, 0));
  EXPECT_FALSE(unmovable("graph", 0)) << "it may have a twin";
  EXPECT_TRUE(unmovable("coop 64", 0));
  app("ops");
  EXPECT_FALSE(unmovable("launch 64", kLast));
  EXPECT_NE(app("ops").find("launch 3"), std::string::npos) << "it moved";
  EXPECT_TRUE(unmovable("coop 64", 0));
}

TEST_F(ShimSmSet, ARecordSaysWhatStayed) {
  OnSet app(*this);
  lane_of(app);
  const auto stayed = [&](const std::string& launch) {
    daemon_.records();
    EXPECT_EQ(app(launch), "0");
    for (const ipc::RecordFields& record : daemon_.records()) {
      if (record.kind <= wire::Kind::GRAPH) return record.unmovable;
    }
    ADD_FAILURE() << "no record of " << launch;
    return false;
  };
  EXPECT_FALSE(stayed("launch 64"));
  EXPECT_TRUE(stayed("coop 64"));
  EXPECT_TRUE(stayed("graph")) << "it has no twin";
  app("set fake_no_lane 1");
  EXPECT_TRUE(stayed("launch 80")) << "its lane could not be made";
  app("set fake_no_lane 0");
  daemon_.control().devices[0].sm_set = 0;
  EXPECT_FALSE(stayed("coop 64")) << "it has no SM set";
  for (int i = 0; i < 8; ++i) {
    daemon_.control().hints[0].kernels[i].special = ipc::pack_special({.size = ipc::GroupCount(1)});
  }
  EXPECT_TRUE(stayed("coop 64")) << "its kernel has";
}

// cuGreenCtxCreate waits for kernels that run, and launches wait behind it: a program whose kernel
// waits for another thread's launch would hang.
TEST_F(ShimSmSet, NoContextIsMadeWhileAKernelRuns) {
  Attached app(*this, kGate);
  predict(10);
  app("retain");
  app("set fake_spinning 1");
  app("set fake_noting 1");
  for (int i = 0; i < 50; ++i) {
    expect_asks(app, "launch 64", 0, 0u, kSet);
  }
  EXPECT_EQ(app("get fake_green_contexts"), "0");
  EXPECT_EQ(off_sm_set(), 50u);
  app("set fake_spinning 0");
}

TEST_F(ShimSmSet, TheFamilyIsMadeBeforeTheFirstLaunch) {
  OnSet app(*this, 0b11);
  EXPECT_EQ(app("get fake_green_contexts"), "2") << "the rule's two groups, and the last of them";
  app("retain");
  EXPECT_EQ(app("get fake_green_contexts"), "2");
  EXPECT_NE(lane_of(app), "") << "its first launch moves";
}

TEST_F(ShimSmSet, TheNextDaemonHearsWhichSetsThereAre) {
  Attached app(*this, kLease);
  ASSERT_EQ(daemon_.made_sets.size(), 2U) << "devices";
  EXPECT_FALSE(daemon_.made_sets[0].any()) << "none yet";
  constexpr ipc::MadeSets kMade{ipc::SetSizes(0b10), {.anchor = 2, .positions = 1}};
  daemon_.control().devices[0].set_sizes = kMade.sizes.bits();
  daemon_.control().devices[0].ring = ipc::pack_ring(kMade.ring);
  app("retain");
  daemon_.hang_up();
  daemon_.accept(kLease);
  ASSERT_EQ(daemon_.made_sets.size(), 2U) << "devices";
  EXPECT_EQ(daemon_.made_sets[0], kMade);
  app("call cuDevicePrimaryCtxRelease_v2");
}

TEST_F(ShimSmSet, ASetOutsideTheFamilyBecomesTheNextLargerMember) {
  Attached app(*this, kLease);
  predict(10);
  daemon_.control().devices[0].set_sizes = 0b10;
  app("retain");
  app("set fake_noting 1");
  EXPECT_EQ(app("get fake_groups"), "6");
  daemon_.control().devices[0].sm_set = kLast;
  daemon_.records();
  EXPECT_NE(lane_of(app), "");
  EXPECT_EQ(on_sm_set(), 1u);
  const auto records = daemon_.records();
  ASSERT_FALSE(records.empty());
  EXPECT_TRUE(records[0].unmovable) << "how long it takes tells nothing of the set";
  daemon_.control().devices[0].sm_set = kSet;  // no member holds the first group
  EXPECT_EQ(lane_of(app), "");
  EXPECT_EQ(off_sm_set(), 1u);
}

TEST_F(ShimSmSet, StreamsOfTheApplicationsOwnGreenContextsStayAndAreCounted) {
  OnSet app(*this);
  EXPECT_EQ(lane_of(app, "launch 2560"), "");
  EXPECT_EQ(lane_of(app, "launch 2568"), "");
  EXPECT_NE(lane_of(app, "launch 64"), "");
  EXPECT_EQ(daemon_.client().counters.green_streams, 2u);
}

TEST_F(ShimSmSet, ALaneThatFailsIsTriedAgainAndStopsNoOther) {
  OnSet app(*this);
  app("set fake_no_lane 1");
  EXPECT_EQ(lane_of(app), "");
  EXPECT_NE(lane_of(app, "launch 72"), "");
  const auto moves = [&] { return lane_of(app) != ""; };
  bool moved = false;
  for (int i = 0; i < 20'000 && !moved; ++i) moved = moves();
  EXPECT_TRUE(moved);
}

// Captures that the shim did not see begin: by the driver's own file, or through an export table.
TEST_F(ShimSmSet, NoCallOfOursEndsACaptureThatWeDoNotSee) {
  OnSet app(*this);
  app("set fake_unseen 1");
  lane_of(app);
  lane_of(app, "second 72");
  daemon_.control().devices[0].leased = kGate;
  for (int i = 0; i < 20; ++i) {
    expect_asks(app, "launch 64", 0, 0u, kSet);
  }
  daemon_.control().hints[0].kernels[0].predicted_us = 0;  // timed by a pair of events
  daemon_.control().devices[0].leased = kLease;
  app("again 100");
  EXPECT_GT(std::stoi(app("get fake_event_calls")), 0);
  EXPECT_EQ(app("get fake_ended"), "0");
}

TEST_F(ShimSmSet, ALaunchThatItsSetRefusesRunsOnceOnItsOwnStream) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  const int launched = std::stoi(app("get fake_launches"));
  app("set fake_lane_refuses 1");
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("ops"), "record 64,wait " + lane + ",launch " + lane + ",launch 64,");
  EXPECT_EQ(std::stoi(app("get fake_launches")), launched + 1);
  app("launch 64");  // the kernel stays there from now on,
  EXPECT_EQ(app("ops"), "launch 64,");
  app("second 64");  // another one does not
  EXPECT_EQ(app("ops"), detour(lane, "64"));
}

TEST_F(ShimSmSet, ALaunchThatFailsEverywhereFailsOnce) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  app("set fake_lane_refuses 1");
  app("set fake_fail 1");
  EXPECT_EQ(app("launch 64"), "1");
  app("ops");
  app("launch 64");
  EXPECT_EQ(app("ops"), detour(lane, "64")) << "it was not for the SM set";
}

// Without a call that waits in the driver: the work may wait for this thread's next launch.
TEST_F(ShimSmSet, WhereTheWayBackFailsTheThreadLooksUntilItIsDoneAndTheStreamRests) {
  OnSet app(*this);
  EXPECT_NE(lane_of(app), "");
  app("set fake_lane_deaf 1");
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("get fake_lane_syncs"), "0");
  EXPECT_EQ(app("get fake_lane_looks"), "1");
  EXPECT_NE(lane_of(app, "launch 72"), "");
}

TEST_F(ShimSmSet, ALaunchThatMustSeeTheWholeDeviceStays) {
  OnSet app(*this);
  lane_of(app, "launch 0");
  const uint64_t before = off_sm_set();
  for (const char* launch : {"graph", "coop 0", "nccl 0"}) {
    app("ops");
    EXPECT_EQ(app(launch), "0");
    // Behind a graph an event may be recorded, if its twin was made meanwhile.
    EXPECT_EQ(app("ops").find("launch 0,"), 0u) << launch;
  }
  EXPECT_EQ(off_sm_set(), before + 3);
}

TEST_F(ShimSmSet, ALaunchWithMoreAttributesThanThereIsRoomForStays) {
  OnSet app(*this);
  lane_of(app);
  daemon_.control().devices[0].launch_priority = -5;
  EXPECT_EQ(app("attributes 64"), "0");
  EXPECT_EQ(app("ops"), "launch 64,");
  EXPECT_EQ(app("get fake_prioritized"), "0");
}

TEST_F(ShimSmSet, ALaunchThatIsRefusedForItsPriorityMovesWithoutIt) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  daemon_.control().devices[0].launch_priority = -5;
  app("set fake_refusing 1");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(app("launch 64"), "0");
    EXPECT_EQ(app("ops"), detour(lane, "64"));
  }
  EXPECT_EQ(app("get fake_prioritized"), "1");
}

TEST_F(ShimSmSet, AClusterMovesAndOverlapsNothingThere) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  EXPECT_EQ(app("pdl 64"), "0");
  EXPECT_EQ(app("ops"), detour(lane, "64"));
  EXPECT_EQ(app("get fake_clusters"), "1");
  EXPECT_EQ(app("get fake_dependent"), "0");
  app("set fake_lane_refuses 1");  // as if the SM set were too small for a cluster
  EXPECT_EQ(app("pdl 64"), "0");
  EXPECT_EQ(app("get fake_dependent"), "1") << "then it goes as it was made";
  app("ops");
  EXPECT_EQ(app("pdl 64"), "0");
  EXPECT_EQ(app("ops"), "launch 64,");
}

TEST_F(ShimSmSet, NothingMovesWhileAnythingCaptures) {
  OnSet app(*this);
  lane_of(app);
  app("capture 72");
  app("ops");
  app("launch 64");
  EXPECT_EQ(app("ops"), "launch 64,");
  app("end_capture 72");
  app("launch 64");
  EXPECT_NE(app("ops"), "launch 64,");
}

TEST_F(ShimSmSet, AnotherContextsStreamsStay) {
  OnSet app(*this);
  daemon_.control().devices[1].sm_set = kSet;
  lane_of(app);
  app("context 2");
  app("ops");
  app("launch 4096");
  EXPECT_EQ(app("ops"), "launch 4096,");
  EXPECT_EQ(app("get fake_lanes"), "1");
}

// Drivers do not give back all memory of a Green Context's stream.
TEST_F(ShimSmSet, StreamsThatComeAndGoShareTheLanesOfThoseThatWereThereAtOnce) {
  OnSet app(*this);
  for (int wave = 0; wave < 20; ++wave) {
    for (const char* stream : {"64", "72", "80"}) lane_of(app, std::string("launch ") + stream);
    for (const char* stream : {"64", "72", "80"}) app(std::string("destroy ") + stream);
  }
  EXPECT_EQ(app("get fake_lanes_made"), "3");
  EXPECT_EQ(on_sm_set(), 60u);
  app("call cuDevicePrimaryCtxRelease_v2");
  EXPECT_EQ(app("get fake_lanes"), "0") << "they end with their context";
  EXPECT_EQ(app("get fake_green_contexts"), "0");
}

// What runs in it may wait for the new stream.
TEST_F(ShimSmSet, ALaneWithWorkOfTheStreamBeforeServesNoOther) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  app("set fake_lane_busy 1");
  app("destroy 64");
  EXPECT_NE(lane_of(app), lane);
  app("set fake_lane_busy 0");
  EXPECT_EQ(lane_of(app, "launch 72"), lane);
}

TEST_F(ShimSmSet, ALaneServesStreamsOfItsPriority) {
  OnSet app(*this);
  const std::string lane = lane_of(app);
  app("destroy 64");
  EXPECT_NE(lane_of(app, "launch 0"), lane) << "the default stream's is another";
  EXPECT_EQ(lane_of(app), lane);
}

TEST_F(ShimSmSet, TheLastReleaseEndsThePrimaryContextAllTheSame) {
  OnSet app(*this);
  app("retain");
  lane_of(app);
  app("call cuDevicePrimaryCtxRelease_v2");
  EXPECT_EQ(app("get fake_green_contexts"), "1");
  app("call cuDevicePrimaryCtxRelease_v2");
  EXPECT_EQ(app("get fake_green_contexts"), "0");
  EXPECT_EQ(app("get fake_primary"), "0");
  app("retain");
  lane_of(app);
  EXPECT_EQ(app("get fake_green_contexts"), "1");
}

TEST_F(ShimSmSet, AForkedChildThatEndsItsContextLeavesItsParentsSmSetsAlone) {
  OnSet app(*this);
  app("retain");
  lane_of(app);
  EXPECT_EQ(app("fork_release"), "1");
  EXPECT_EQ(app("fork_reset"), "1");
  EXPECT_EQ(app("get fake_green_contexts"), "1");
}

// Lanes would wait in hardware queues that streams share.
TEST_F(ShimSmSet, WithFewHardwareQueuesTheProcessKeepsTheWholeDevice) {
  for (const char* queues : {"2", "32"}) {
    auto variables = environment();
    variables.push_back(std::string("CUDA_DEVICE_MAX_CONNECTIONS=") + queues);
    Application app(variables);
    start_on_set(app);
    EXPECT_EQ(lane_of(app).empty(), std::string(queues) == "2");
    daemon_.hang_up();
  }
}

TEST_F(ShimSmSet, ADriverWithoutGreenContextsKeepsTheWholeDevice) {
  auto variables = environment();
  variables.push_back("FAKE_NO_GREEN=1");
  Application app(variables);
  start_on_set(app);
  EXPECT_TRUE(daemon_.groups.empty());
  EXPECT_EQ(app("again 100"), "100");
  EXPECT_EQ(on_sm_set(), 0u);
  EXPECT_EQ(off_sm_set(), 100u);
}

TEST_F(ShimSmSet, AForkedChildLaunchesAsItIs) {
  OnSet app(*this);
  lane_of(app);
  const uint64_t before = on_sm_set();
  EXPECT_EQ(app("fork"), "0");
  EXPECT_EQ(on_sm_set(), before);
}

}  // namespace
}  // namespace heddle::shim_test
