// The built shim where a policy gave a kernel a size or a priority: no launch asks for it.
#include <gtest/gtest.h>

#include "ipc/sm_set.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

constexpr ipc::GroupCount kTwo(2);
constexpr uint32_t kFirstTwo = 0b011, kLastTwo = 0b110;  // of the fake device's three groups

class ShimSize : public Shim {
 protected:
  // An application whose family is the set of two groups, or of these sizes, where the ring says.
  struct Sized : Attached {
    explicit Sized(ShimSize& shim, ipc::SmRing ring = {}, uint32_t sizes = 0b10)
        : Attached(shim, kLease) {
      shim.predict(10);
      ipc::DeviceTerms& terms = shim.daemon_.control().devices[0];
      terms.set_sizes = sizes;
      terms.ring = ipc::pack_ring(ring);
      (*this)("retain");
      (*this)("set fake_noting 1");
    }
  };
  void tell(ipc::Special special) {
    for (int i = 0; i < 8; ++i)
      daemon_.control().hints[0].kernels[i].special = ipc::pack_special(special);
  }
  static bool moved(Application& app, const std::string& launch) {
    app("ops");
    EXPECT_EQ(app(launch), "0");
    return app("ops").find("launch 3") != std::string::npos;  // lanes are above 0x300
  }
};

TEST_F(ShimSize, AKernelsSizeHoldsUnderALease) {
  Sized app(*this);
  EXPECT_FALSE(moved(app, "launch 64")) << "no size yet";
  tell({.size = kTwo});
  EXPECT_TRUE(moved(app, "launch 64")) << "the very next launch";
  EXPECT_EQ(app("get fake_groups"), std::to_string(kLastTwo));
  tell({});
  EXPECT_FALSE(moved(app, "launch 64"));
}

TEST_F(ShimSize, AKernelsSizeHoldsWhereTheGatesStandOpen) {
  Sized app(*this);
  tell({.size = kTwo});
  daemon_.control().devices[0].leased = kGate;
  daemon_.gates->word[0] = ipc::gate_open(0);
  EXPECT_TRUE(moved(app, "launch 64"));
}

TEST_F(ShimSize, TheSetLiesWhereTheAnchorSays) {
  Sized app(*this, {.anchor = 1});
  tell({.size = kTwo});
  EXPECT_TRUE(moved(app, "launch 64"));
  EXPECT_EQ(app("get fake_groups"), std::to_string(kFirstTwo));
}

TEST_F(ShimSize, ASizeAtSeveralPositionsIsMadeAtEach) {
  Sized app(*this, {.anchor = 1, .positions = 3});
  EXPECT_EQ(app("get fake_green_contexts"), "3");
}

// Each lane has memory of the device; only the largest set's, which a rule's is, are for all.
TEST_F(ShimSize, ManyStreamsHaveFewLanesInSmallSets) {
  Sized app(*this, {}, 0b11);
  app("set fake_noting 0");
  for (const ipc::GroupCount size : {ipc::GroupCount(1), kTwo}) {
    tell({.size = size});
    for (int i = 0; i < 200; ++i) app("launch " + std::to_string(64 + 8 * i));
  }
  EXPECT_EQ(app("get fake_lanes_made"), "328");
  for (int i = 0; i < 200; ++i) app("destroy " + std::to_string(64 + 8 * i));
  app("set fake_noting 1");
  app("launch 64");
  EXPECT_EQ(app("ops").find("launch 64,"), std::string::npos)
      << "streams that come have the lanes of those that went";
  EXPECT_EQ(app("get fake_lanes_made"), "328");
}

TEST_F(ShimSize, CooperativeKernelsStay) {
  Sized app(*this);
  tell({.size = kTwo});
  EXPECT_FALSE(moved(app, "coop 64"));
}

// ---- graphs ----

class ShimTwins : public ShimSize {
 protected:
  // Launches until it runs on these groups and at that priority.
  static bool comes_to(Application& app, int groups, int priority) {
    for (int i = 0; i < 2'000; ++i) {
      EXPECT_EQ(app("graph_run"), "0");
      if (app("get fake_graph_groups") == std::to_string(groups) &&
          app("get fake_graph_priority") == std::to_string(priority)) {
        return true;
      }
      usleep(1'000);
    }
    return false;
  }
  // An application with a graph that runs on two groups.
  struct Moved : Sized {
    explicit Moved(ShimTwins& shim) : Sized(shim) {
      shim.tell({.size = kTwo});
      EXPECT_EQ((*this)("graph_make"), "0");
      EXPECT_TRUE(comes_to(*this, kLastTwo, 0));
    }
  };
  // Launches for long enough that the helper would have made one.
  static bool stays(Application& app) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(app("graph_run"), "0");
      if (app("get fake_graph_groups") != "0" || app("get fake_graph_priority") != "0") {
        return false;
      }
      usleep(1'000);
    }
    return true;
  }
  uint64_t count(int fate) { return daemon_.client().counters.graphs >> (8 * fate) & 0xff; }
};

TEST_F(ShimTwins, AGraphIsPutOnItsSizeAndHasItsPriority) {
  Sized app(*this);
  EXPECT_EQ(app("graph_make"), "0");
  EXPECT_TRUE(stays(app)) << "nobody asked for anything";
  tell({.size = kTwo});
  records(wire::Kind::GRAPH);
  EXPECT_TRUE(comes_to(app, kLastTwo, 0));
  const auto told = records(wire::Kind::GRAPH);
  EXPECT_TRUE(told.front().unmovable) << "its twin was yet to be made";
  EXPECT_FALSE(told.back().unmovable);
  tell({.size = kTwo, .raised = true, .launch_priority = -5});
  EXPECT_TRUE(comes_to(app, kLastTwo, -5));
  tell({.raised = true, .launch_priority = -5});
  EXPECT_TRUE(comes_to(app, 0, -5));
  tell({});
  EXPECT_TRUE(comes_to(app, 0, 0)) << "the application's own";
  EXPECT_EQ(count(0), 3U);
  EXPECT_EQ(app("get fake_execs"), "4");
  EXPECT_EQ(app("graph_end"), "0");
  EXPECT_EQ(app("get fake_execs"), "0");
  EXPECT_EQ(app("get fake_clones"), "0");
}

TEST_F(ShimTwins, FifthPlaceTakesThatOfTheTwinThatIsIdleForLongest) {
  Sized app(*this);
  EXPECT_EQ(app("graph_make"), "0");
  for (int priority = -1; priority >= -5; --priority) {
    tell({.raised = true, .launch_priority = priority});
    EXPECT_TRUE(comes_to(app, 0, priority));
  }
  EXPECT_LE(std::stoi(app("get fake_execs")), 6) << "four twins, and one that is given up";
  EXPECT_EQ(app("graph_end"), "0");
  EXPECT_EQ(app("get fake_execs"), "0");
}

TEST_F(ShimTwins, TwinsOfAThousandNodesEachShareARoomThatIdleOnesGiveUp) {
  Sized app(*this);
  tell({.size = kTwo});
  const auto launch_until = [&](auto done) {
    for (int n = 0; n < 20'000 && !done(); ++n) {
      EXPECT_EQ(app("graph_run"), "0");
      usleep(1'000);
    }
    return done();
  };
  for (uint64_t i = 1; i <= 88; ++i) {  // of 1 500 nodes each: 87 go into 131 072
    EXPECT_EQ(app("graph_make_many"), "0");
    EXPECT_TRUE(launch_until([&] { return count(0) + count(6) == i; })) << i;
  }
  EXPECT_EQ(count(0), 87U);
  EXPECT_EQ(count(6), 1U);
  EXPECT_TRUE(launch_until([&] { return count(0) == 88; })) << "the first was idle for long";
  EXPECT_EQ(app("get fake_execs"), "175") << "88 executables, and one twin fewer";
}

TEST_F(ShimTwins, AHundredGraphsHaveTheirTwins) {
  Sized app(*this);
  tell({.size = kTwo});
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(app("graph_make"), "0");
    EXPECT_TRUE(comes_to(app, kLastTwo, 0)) << i;
  }
}

TEST_F(ShimTwins, ItsChildrenMoveToo) {
  Sized app(*this);
  tell({.size = kTwo});
  EXPECT_EQ(app("graph_make_child"), "0");
  EXPECT_TRUE(comes_to(app, kLastTwo, 0));
}

TEST_F(ShimTwins, AGraphThatCannotMoveRunsAsItIsAndIsCounted) {
  Sized app(*this);
  tell({.size = kTwo, .raised = true, .launch_priority = -5});
  const std::vector<std::pair<const char*, int>> graphs = {
      {"graph_make_alloc", 1}, {"graph_make_free", 1},   {"graph_make_while", 1},
      {"graph_make_far", 1},   {"graph_make_device", 2}, {"graph_make_coop", 3}};
  uint64_t stayed[4] = {};
  for (const auto& [make, fate] : graphs) {
    EXPECT_EQ(app(make), "0");
    EXPECT_TRUE(stays(app)) << make;
    EXPECT_EQ(count(fate), ++stayed[fate]) << make;
  }
  EXPECT_EQ(app("get fake_clones"), "0");
  EXPECT_EQ(app("get fake_refused"), "0") << "the driver was asked for no clone that it refuses";
}

// A kernel on an SM set can update no node of a graph of the primary context.
class ShimUpdatable : public ShimTwins, public testing::WithParamInterface<const char*> {};

TEST_P(ShimUpdatable, WhereTheDeviceUpdatesNodesNothingMoves) {
  Sized app(*this);
  tell({.size = kTwo});
  EXPECT_EQ(app("graph_make"), "0");
  EXPECT_TRUE(comes_to(app, kLastTwo, 0));
  EXPECT_TRUE(moved(app, "launch 64"));
  EXPECT_EQ(app(GetParam()), "0");
  EXPECT_EQ(count(2), 1U);
  EXPECT_TRUE(stays(app));
  EXPECT_FALSE(moved(app, "launch 64"));
  EXPECT_EQ(app("graph_make"), "0");
  EXPECT_TRUE(stays(app));
}

INSTANTIATE_TEST_SUITE_P(Graphs, ShimUpdatable,
                         testing::Values("graph_make_updatable", "graph_make_updatable_child"));

TEST_F(ShimTwins, AnUpdatedGraphGoesOnAsTheApplicationHasIt) {
  Moved app(*this);
  EXPECT_EQ(app("graph_update"), "0");
  EXPECT_TRUE(stays(app));
  EXPECT_EQ(count(4), 1U);
  EXPECT_EQ(app("get fake_execs"), "1");
}

TEST_F(ShimTwins, AGraphThatIsUpdatedAsAWholeHasTwinsAnew) {
  Moved app(*this);
  for (uint64_t update = 1; update <= 16; ++update) {
    EXPECT_EQ(app("graph_update_all"), "0");
    EXPECT_EQ(app("get fake_execs"), "1") << "none of what it was";
    EXPECT_TRUE(comes_to(app, kLastTwo, 0)) << update;
    EXPECT_EQ(count(0), update + 1);
  }
  EXPECT_EQ(count(4), 0U);
}

TEST_F(ShimTwins, AGraphThatIsUpdatedForEachLaunchIsClonedOnceASecond) {
  Sized app(*this);
  tell({.size = kTwo});
  EXPECT_EQ(app("graph_make"), "0");
  for (int i = 0; i < 1'000 && count(4) == 0; ++i) EXPECT_EQ(app("graph_update_all"), "0");
  EXPECT_EQ(count(4), 1U);
  EXPECT_TRUE(stays(app)) << "it is updated too often";
  EXPECT_EQ(app("get fake_clones"), "0");
  for (int i = 0; i < 3'000 && app("get fake_clones") == "0"; ++i) {
    EXPECT_EQ(app("graph_update_all"), "0");
    usleep(1'000);
  }
  EXPECT_TRUE(comes_to(app, kLastTwo, 0));
}

TEST_F(ShimTwins, ATwinThatTheDriverDoesNotLaunchIsTriedAgainLater) {
  Moved app(*this);
  app("set fake_no_twin 1");
  EXPECT_EQ(app("graph_run"), "0");
  EXPECT_EQ(app("get fake_graph_groups"), "0");
  app("set fake_no_twin 0");
  EXPECT_EQ(app("get fake_execs"), "1");
  EXPECT_TRUE(stays(app));
  EXPECT_EQ(count(5), 1U);
  EXPECT_TRUE(comes_to(app, kLastTwo, 0));
}

TEST_F(ShimTwins, OneRefusalLeavesTheTwinsThatThereAre) {
  Moved app(*this);
  EXPECT_EQ(daemon_.client().counters.twin_launches, 1U);
  tell({.size = kTwo, .raised = true, .launch_priority = -5});
  EXPECT_TRUE(comes_to(app, kLastTwo, -5));
  app("set fake_no_twin 1");
  EXPECT_EQ(app("graph_run"), "0");
  app("set fake_no_twin 0");
  EXPECT_EQ(count(5), 1U);
  tell({.size = kTwo});
  EXPECT_EQ(app("graph_run"), "0");
  EXPECT_EQ(app("get fake_graph_groups"), std::to_string(kLastTwo)) << "at once";
}

// The driver orders launches of one executable in any streams; of a twin it does not know that.
TEST_F(ShimTwins, ALaunchInAnotherStreamWaitsForTheOneBefore) {
  Moved app(*this);
  const auto told = [&](const char* launch) {
    app("ops");
    EXPECT_EQ(app(launch), "0");
    return app("ops");
  };
  EXPECT_EQ(told("graph_run 64"), "wait 64,launch 64,record 64,");
  EXPECT_EQ(told("graph_run 64"), "launch 64,record 64,") << "the stream orders them";
  tell({});
  EXPECT_EQ(told("graph_run 72"), "wait 72,launch 72,record 72,") << "the executable itself";
  app("set fake_stream_lives 1");
  EXPECT_EQ(told("graph_run 72"), "wait 72,launch 72,record 72,") << "another one's handle by now";
  tell({.size = kTwo});
  EXPECT_EQ(app("graph_update_all"), "0");
  EXPECT_EQ(told("graph_run 64"), "wait 64,launch 64,record 64,") << "an update changes no order";
  EXPECT_EQ(app("graph_update"), "0");
  EXPECT_EQ(told("graph_run 72"), "wait 72,launch 72,record 72,") << "nor do nodes of it";
}

TEST_F(ShimTwins, WhereNoEventIsBehindATwinTheThreadLooksUntilItIsDone) {
  Moved app(*this);
  const int looks = std::stoi(app("get fake_stream_looks"));
  app("set fake_event_errors 1");
  EXPECT_EQ(app("graph_run"), "0");
  EXPECT_EQ(app("get fake_graph_groups"), std::to_string(kLastTwo));
  EXPECT_EQ(app("get fake_stream_looks"), std::to_string(looks + 1));
  EXPECT_EQ(app("graph_run"), "0");
  EXPECT_EQ(app("get fake_graph_groups"), "0") << "nothing says what is before it";
  EXPECT_EQ(app("graph_run"), "0");
  EXPECT_EQ(app("get fake_graph_groups"), std::to_string(kLastTwo));
}

TEST_F(ShimTwins, PrioritiesThatTheApplicationGaveItsNodesAreLeft) {
  Sized app(*this);
  EXPECT_EQ(app("graph_make_raised"), "0");
  tell({.raised = true, .launch_priority = -5});
  EXPECT_TRUE(stays(app));
  EXPECT_EQ(app("get fake_execs"), "1");
}

// PyTorch instantiates so.
TEST_F(ShimTwins, AGraphThatIsToUseItsNodesPrioritiesAndHasNoneIsRaised) {
  Sized app(*this);
  EXPECT_EQ(app("graph_make_by_node"), "0");
  tell({.raised = true, .launch_priority = -5});
  EXPECT_TRUE(comes_to(app, 0, -5));
}

TEST_F(ShimTwins, AGatedGraphRunsWhereItsGrantSays) {
  Sized app(*this);
  EXPECT_EQ(app("graph_make"), "0");
  daemon_.control().devices[0].leased = kGate;
  for (int i = 0; i < 2'000; ++i) {
    app.send("graph_run");
    const auto ask = daemon_.wait_for_ask();
    EXPECT_FALSE(ask.unmovable);
    daemon_.grant(ask, -3, 0, kLastTwo);
    EXPECT_EQ(app.receive(), "0");
    const bool moved = app("get fake_graph_groups") == std::to_string(kLastTwo);
    if (moved) break;
    usleep(1'000);
  }
  EXPECT_EQ(app("get fake_graph_groups"), std::to_string(kLastTwo));
  EXPECT_EQ(app("get fake_graph_priority"), "-3");
}

TEST_F(ShimTwins, TheyEndWithTheirContext) {
  Moved app(*this);
  app("call cuDevicePrimaryCtxRelease_v2");
  EXPECT_EQ(app("get fake_execs"), "1") << "the application's own";
  EXPECT_EQ(app("get fake_clones"), "0");
}

TEST_F(ShimSize, AKernelsOwnPriorityComesBeforeItsWindows) {
  Sized app(*this);
  daemon_.control().devices[0].launch_priority = -5;
  tell({.raised = true, .launch_priority = -2});
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("get fake_priority"), "-2");
  tell({});
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("get fake_priority"), "-5");
}

TEST_F(ShimSize, AKernelIsOnEachDeviceAsThatDevicesHintsSay) {
  Sized app(*this);
  for (int device = 0; device < 2; ++device) {
    ipc::KernelHint& hint = daemon_.control().hints[device].kernels[0];
    hint.predicted_us = 10;
    hint.special = ipc::pack_special({.raised = true, .launch_priority = -2 - device});
  }
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("get fake_priority"), "-2");
  app("context 2");
  EXPECT_EQ(app("launch 4096"), "0");
  EXPECT_EQ(app("get fake_priority"), "-3");
  EXPECT_EQ(daemon_.records().back().device, 1);
}

TEST_F(ShimSize, ASizeThatNoSetOfTheProcessHasLeavesTheLaunchWhereItIs) {
  Attached app(*this, kLease);
  predict(10);
  app("retain");
  app("set fake_noting 1");
  tell({.size = kTwo});
  EXPECT_FALSE(moved(app, "launch 64"));
}

}  // namespace
}  // namespace heddle::shim_test
