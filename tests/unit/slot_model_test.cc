// Exhaustive: every interleaving of two clients and a daemon, with a death anywhere.
#include "tests/unit/slot_model.h"
#include "tests/sanitized.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace heddle::slot_model {
namespace {

// A grant is for its ask and whole; a record is of the ask that announced it; no waiter is left
// asleep while a daemon is there to wake it; what a daemon believes to have run is what ran, each
// launch once.
void expect_sound(const Budget& budget) {
  const Result result = explore(budget, Mutation::kNone);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.states, 10'000u);
  std::printf("%llu states\n", static_cast<unsigned long long>(result.states));
}

// Sanitizers see the same accesses in a smaller world; HEDDLE_MODEL_DEEP=1 explores a larger one
// (minutes, and some GiB).
#ifdef HEDDLE_SANITIZED
constexpr bool kSmall = true;
#else
constexpr bool kSmall = false;
#endif

TEST(SlotModel, HoldsWhenNothingFails) {
  expect_sound({.asks = {1, 1}, .deaths = 0, .timeouts = 0, .holds = 1});
  if (!kSmall) expect_sound({.asks = {2, 2}, .deaths = 0, .timeouts = 0, .holds = 0});
}

TEST(SlotModel, HoldsWhenWaitersGiveUp) {
  if (kSmall) GTEST_SKIP() << "too large for a sanitizer";
  expect_sound({.asks = {1, 1}, .deaths = 0, .timeouts = 1, .holds = 1});
  expect_sound({.asks = {2, 1}, .deaths = 0, .timeouts = 1, .holds = 0});
}

TEST(SlotModel, HoldsWhenAnybodyDiesAnywhere) {
  if (kSmall) GTEST_SKIP() << "too large for a sanitizer";
  expect_sound({.asks = {1, 1}, .deaths = 1, .timeouts = 0, .holds = 0});
}

TEST(SlotModel, HoldsWhenTheDaemonComesBackAndDiesAgain) {
  expect_sound({.asks = {2, 0}, .deaths = 1, .timeouts = 0, .holds = 0});
  if (!kSmall) expect_sound({.asks = {2, 0}, .deaths = 2, .timeouts = 1, .holds = 0});
}

TEST(SlotModel, HoldsInALargerWorld) {
  if (std::getenv("HEDDLE_MODEL_DEEP") == nullptr) GTEST_SKIP() << "HEDDLE_MODEL_DEEP=1 runs it";
  expect_sound({.asks = {2, 2}, .deaths = 0, .timeouts = 0, .holds = 1});
  expect_sound({.asks = {2, 0}, .deaths = 2, .timeouts = 1, .holds = 1});
  expect_sound({.asks = {1, 1}, .deaths = 0, .timeouts = 2, .holds = 1});
  expect_sound({.asks = {1, 1}, .deaths = 1, .timeouts = 1, .holds = 0});
  expect_sound({.asks = {1, 1}, .deaths = 2, .timeouts = 0, .holds = 0});
  expect_sound({.asks = {2, 1}, .deaths = 1, .timeouts = 0, .holds = 0});
}

class Mutated : public ::testing::TestWithParam<Mutation> {};

TEST_P(Mutated, IsFound) {
  if (kSmall) GTEST_SKIP() << "too large for a sanitizer";
  const Result result = explore({.deaths = 0, .timeouts = 1, .holds = 0}, GetParam());
  EXPECT_NE(result.violation, "");
  std::printf("%s, after %llu states\n", result.violation.c_str(),
              static_cast<unsigned long long>(result.states));
}

INSTANTIATE_TEST_SUITE_P(SlotModel, Mutated,
                         ::testing::Values(Mutation::kAskNotFenced, Mutation::kPollLooksOnce,
                                           Mutation::kAnswerBeforeFields,
                                           Mutation::kAnswerNotFenced, Mutation::kLookBeforeAnswer,
                                           Mutation::kSelfNotReported, Mutation::kNapsAlike));

}  // namespace
}  // namespace heddle::slot_model
