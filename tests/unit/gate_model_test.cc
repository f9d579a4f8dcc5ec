// Every interleaving around the gates of one device (gate_model.h). What must hold:
//
//   - no unit goes that nobody let go: neither the daemon, nor a thread, nor while the floor or the
//     daemon's window was open; and what goes is a prefix
//   - when nobody is inside an action, the floor is no less than what threads let go, and the word
//     no less than the floor, without another look of the daemon; and graphs run on while a unit up
//     to the floor is not over
//   - when nothing moves any more by itself, nothing is left that a thread let go, wherever the
//     daemon died; a dead daemon leaves nothing at all
//   - then the word of a daemon that lives is the later of the floor and what it stored: what stood
//     open while it was silent is closed again
#include "tests/unit/gate_model.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace heddle::ipc::gate_model {
namespace {

void expect_sound(const World& world) {
  const Result result = explore(world, Mutation::kNone);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.ends, 10u);
  std::printf("%zu states, %zu ends\n", result.states, result.ends);
}

// Launches, floors of each thread, openings, windows, runs.
constexpr World kTwoRaise{3, {1, 1}, 0, 1, 0, false};
constexpr World kOpenerAndOne{2, {1, 0}, 1, 1, 0, false};
constexpr World kOpenerAndTwo{2, {1, 1}, 1, 0, 0, true};
constexpr World kGraphs{3, {1, 0}, 0, 0, 2, false};
constexpr World kGraphsAndOpener{3, {0, 0}, 1, 0, 2, false};

TEST(GateModel, TwoThreadsLetLaunchesGoBesideAWindow) { expect_sound(kTwoRaise); }
TEST(GateModel, TheFloorOpensAndClosesBesideAThreadAndAWindow) { expect_sound(kOpenerAndOne); }
TEST(GateModel, TheFloorOpensAndClosesBesideTwoThreads) { expect_sound(kOpenerAndTwo); }
TEST(GateModel, GraphsRunOnUpToTheFloor) { expect_sound(kGraphs); }
TEST(GateModel, GraphsRunOnWhileTheFloorIsOpen) { expect_sound(kGraphsAndOpener); }

TEST(GateModel, LargerWorldOfLaunches) { expect_sound({3, {1, 0}, 1, 1, 0, true}); }
TEST(GateModel, LargerWorldOfGraphs) { expect_sound({2, {1, 0}, 1, 0, 1, true}); }

// An action's past is cut short where it does not matter (gate_model_memory.h).
TEST(GateModel, WhatIsForgottenChangesNoEnd) {
  for (World world : {World{2, {1, 1}, 0, 1, 0}, World{2, {1, 0}, 1, 0, 0}}) {
    const Result forgets = explore(world, Mutation::kNone);
    world.forgets_nothing = true;
    const Result all = explore(world, Mutation::kNone);
    EXPECT_EQ(forgets.ends, all.ends);
    EXPECT_LT(forgets.states, all.states);
    EXPECT_EQ(all.violation, "");
  }
}

struct Wrong {
  Mutation mutation;
  World world;
};

class GateMutated : public ::testing::TestWithParam<Wrong> {};

TEST_P(GateMutated, IsFound) {
  const Result result = explore(GetParam().world, GetParam().mutation);
  EXPECT_NE(result.violation, "");
  std::printf("%s, after %zu states\n", result.violation.c_str(), result.states);
}

INSTANTIATE_TEST_SUITE_P(GateModel, GateMutated,
                         ::testing::Values(Wrong{Mutation::kFloorNotReread, kTwoRaise},
                                           Wrong{Mutation::kWordPlain, kTwoRaise},
                                           Wrong{Mutation::kRunsPlain, kGraphs},
                                           Wrong{Mutation::kWordBeforeFloor, kTwoRaise},
                                           Wrong{Mutation::kCloseNotRaised, kOpenerAndOne},
                                           Wrong{Mutation::kPostedNotReread, kOpenerAndOne},
                                           Wrong{Mutation::kOpensOnce, kOpenerAndOne},
                                           Wrong{Mutation::kNoLookAfterFloor, kOpenerAndOne},
                                           Wrong{Mutation::kRunIgnoresFloor, kGraphs},
                                           Wrong{Mutation::kDoneIsNewest, kGraphs},
                                           Wrong{Mutation::kFloorRunsNothing, kGraphs},
                                           Wrong{Mutation::kNotCyclic, kTwoRaise}));

}  // namespace
}  // namespace heddle::ipc::gate_model
