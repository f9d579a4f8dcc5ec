// budget.fits, budget.slowdown and g.budget in Lua.
#include "tests/unit/policy_fixture.h"

namespace heddle::policy {
namespace {

TEST_F(PolicyTest, BudgetFitsSaysWhatTheCoreSays) {
  load(
      with_hooks("enqueue = function(k) trace('%s', tostring(budget.fits(k, 64))) return RUN end"));
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->trace_lines().back(), "true");
  EXPECT_EQ(gpu_.budget_sm, 64u);
}

TEST_F(PolicyTest, ALaunchThatDoesNotFitComesWithItsChannel) {
  gpu_.budget = {false, 1, core::Channel::kDram};
  load(
      with_hooks("enqueue = function(k) local fits, by = budget.fits(k) "
                 "trace('%s %s', tostring(fits), by) return RUN end"));
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->trace_lines().back(), "false dram");
  gpu_.budget.known = false;
  policy_->enqueue(gpu_, 7);
  EXPECT_EQ(policy_->trace_lines().back(), "false unknown");
}

TEST_F(PolicyTest, BudgetSlowdownIsOfAClient) {
  dispatch("for c in g:clients() do trace('%.1f', budget.slowdown(c)) end");
  EXPECT_EQ(policy_->trace_lines().back(), "1.3");
  EXPECT_EQ(dispatch("return IDLE, budget.slowdown(g)").result, HookResult::kFault);
  expect_fault("error", "budget.slowdown: argument 1 is no client");
}

TEST_F(PolicyTest, GBudgetHasWhatIsLeftOfEachChannel) {
  dispatch("trace('%.1f %.1f', g.budget.issue, g.budget.dram)");
  EXPECT_EQ(policy_->trace_lines().back(), "0.0 0.8");
  EXPECT_EQ(dispatch("return IDLE, g.budget.drum").result, HookResult::kFault);
  expect_fault("error", "g.budget has no field 'drum'; did you mean 'dram'?");
}

TEST_F(PolicyTest, MistakesWithBudgetsNameThePlace) {
  load(with_hooks("enqueue = function(k) budget.fits(k, -1) return RUN end"));
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kFault);
  expect_fault("error", "budget.fits: a size is 0 (all) to 1024 SMs");
  load(with_hooks("enqueue = function(k) budget.fits(3) return RUN end"));
  EXPECT_EQ(policy_->enqueue(gpu_, 7).result, HookResult::kFault);
  expect_fault("error", "budget.fits: argument 1 is no launch");
}

}  // namespace
}  // namespace heddle::policy
