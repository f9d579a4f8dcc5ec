// What a policy hears of its own end, of launches that begin, and of clients whose terms change.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

struct LifePolicy : Policy {
  std::vector<std::string> said;
  std::vector<LaunchView> begun;
  bool updates = true, faulty = false, stays = true, starts = true;

  std::string_view name() const override { return "life"; }
  bool take_over(Policy& before) override {
    said.push_back("after " + std::string(before.name()));
    return stays;
  }
  HookResult init(Gpu& g) override {
    g.queue_create("q");
    return starts ? HookResult::kDefault : HookResult::kFault;
  }
  std::string dump(Gpu& g) override {
    return "queued " + std::to_string(g.queue_len(g.queue_create("q")));
  }
  void exit(Gpu&, Ending ending) override {
    said.push_back(ending == Ending::kReplaced ? "replaced" : "faulted");
  }
  AllowanceVerdict client_init(Gpu&, ClientId id) override {
    said.push_back("init " + std::to_string(id));
    return {};
  }
  HookResult client_exit(Gpu&, ClientId id) override {
    said.push_back("exit " + std::to_string(id));
    return HookResult::kDefault;
  }
  AllowanceVerdict client_update(Gpu&, ClientId id) override {
    said.push_back("update " + std::to_string(id));
    return {HookResult::kDecided, false, Allowance::kGated};
  }
  bool hears_updates() const override { return updates; }
  EnqueueVerdict enqueue(Gpu& g, LaunchId k) override {
    g.queue_insert(g.queue_create("q"), k, 0);
    return EnqueueVerdict{HookResult::kDecided};
  }
  DispatchVerdict dispatch(Gpu&) override {
    return DispatchVerdict{faulty ? HookResult::kFault : HookResult::kDecided};
  }
  HookResult running(Gpu&, const LaunchView& k) override {
    begun.push_back(k);
    return HookResult::kDefault;
  }
  bool hears_running() const override { return true; }
};

class PolicyLifeTest : public CoreTest {
 protected:
  bool use(Policy* policy) {
    bool ok = false;
    take(core_->set_policy(policy, now_, ok));
    return ok;
  }
  // Clients ask until the policy has lost its place.
  void fail() {
    for (ClientId id = 3; id < 60 && core_->view().last_words().at < 0; ++id) {
      attach(id, 9);
      ask(id);
    }
    ASSERT_TRUE(core_->take_quarantined());
  }
  void terms(ClientId id, uint8_t priority) {
    Event e(EventKind::kTerms, now_, id);
    e.terms = {1, 0, priority, {}};
    step(e);
  }
  LifePolicy policy_;
};

TEST_F(PolicyLifeTest, IsToldThatAnotherTakesItsPlace) {
  ASSERT_TRUE(use(&policy_));
  LifePolicy next;
  next.stays = false;
  EXPECT_FALSE(use(&next)) << "it will not take over";
  EXPECT_TRUE(policy_.said.empty()) << policy_.said.back();
  next.stays = true;
  EXPECT_TRUE(use(&next));
  EXPECT_EQ(policy_.said, std::vector<std::string>{"replaced"});
  EXPECT_EQ(next.said, (std::vector<std::string>{"after life", "after life"}));
  EXPECT_TRUE(use(nullptr));
  EXPECT_EQ(next.said.back(), "replaced");
}

// As where another device refuses the successor.
TEST_F(PolicyLifeTest, ASuccessorThatOnlyStartedChangesNothing) {
  ASSERT_TRUE(use(&policy_));
  contend();
  LifePolicy candidate, next;
  ASSERT_TRUE(core_->begin_shadow(candidate, {}, now_));
  const std::vector<std::string> said = policy_.said;
  EXPECT_TRUE(core_->start_policy(next, now_));
  EXPECT_EQ(next.said, std::vector<std::string>{"after life"}) << "not after what stands before it";
  EXPECT_EQ(policy_.said, said);
  EXPECT_TRUE(core_->shadow().has_value() && !core_->shadow_is_over());
  EXPECT_EQ(core_->waiting(), 1U);
  next.starts = false;
  EXPECT_FALSE(core_->start_policy(next, now_));
  EXPECT_TRUE(use(nullptr));
  EXPECT_EQ(policy_.said.back(), "replaced");
}

TEST_F(PolicyLifeTest, LeavesItsLastWordsWhenItFaults) {
  ASSERT_TRUE(use(&policy_));
  EXPECT_EQ(core_->view().last_words().at, -1);
  contend();
  policy_.faulty = true;
  fail();
  EXPECT_EQ(policy_.said.back(), "faulted");
  const LastWords& words = core_->view().last_words();
  ASSERT_EQ(words.queues.size(), 1u);
  EXPECT_EQ(words.queues[0].name, "q");
  EXPECT_GT(words.queues[0].waiting, 1u);
  EXPECT_EQ(words.dump, "queued " + std::to_string(words.queues[0].waiting));
}

TEST_F(PolicyLifeTest, ADecisionIsAmongTheLastWords) {
  ASSERT_TRUE(use(nullptr));
  attach_both();
  post(1);
  for (size_t i = 0; i < kLastDecisions + 6; ++i) {
    ask(2);
    now_ += 50 * kUs;
    done(1);
    done(2);
    post(1);
  }
  ASSERT_GT(grants_.size(), kLastDecisions);
  policy_.faulty = true;
  ASSERT_TRUE(use(&policy_));
  fail();
  const std::vector<Decision>& last = core_->view().last_words().decisions;
  ASSERT_EQ(last.size(), kLastDecisions);
  EXPECT_TRUE(std::is_sorted(last.begin(), last.end(),
                             [](const Decision& a, const Decision& b) { return a.at < b.at; }));
  EXPECT_EQ(last.back().client, 2u);
}

TEST_F(PolicyLifeTest, HearsThatALaunchBegins_PostedOrGranted) {
  ASSERT_TRUE(use(&policy_));
  attach(1, 0);
  post(1);
  ASSERT_EQ(policy_.begun.size(), 1u);
  EXPECT_EQ(policy_.begun[0].client, 1u);
  ASSERT_TRUE(use(nullptr));
  post(1);
  EXPECT_EQ(policy_.begun.size(), 1u);
}

TEST_F(PolicyLifeTest, HearsOfOtherTermsOnceOrAsOfOneWhoLeftAndCame) {
  ASSERT_TRUE(use(&policy_));
  attach(1, 0);
  policy_.said.clear();
  terms(1, 3);
  EXPECT_EQ(policy_.said, std::vector<std::string>{"update 1"});
  EXPECT_EQ(allowed(1), Allowance::kGated);
  policy_.updates = false;
  policy_.said.clear();
  terms(1, 5);
  EXPECT_EQ(policy_.said, (std::vector<std::string>{"exit 1", "init 1"}));
}

}  // namespace
}  // namespace heddle::core
