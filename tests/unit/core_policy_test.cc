// The core under policies: their hooks, their mistakes, and what the built-in does then.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

// A policy made of functions, so that each test says only what matters to it.
struct TestPolicy : Policy {
  std::function<EnqueueVerdict(Gpu&, LaunchId)> on_enqueue;
  std::function<DispatchVerdict(Gpu&)> on_dispatch;
  std::function<AllowanceVerdict(Gpu&, ClientId)> on_init;
  std::function<AllowanceVerdict()> on_active;
  std::vector<LaunchView> stopped;
  uint32_t weight = 1;

  uint32_t fault_weight() const override { return weight; }
  std::string_view name() const override { return "test"; }
  AllowanceVerdict client_init(Gpu& g, ClientId c) override {
    return on_init ? on_init(g, c) : AllowanceVerdict{};
  }
  AllowanceVerdict client_active(Gpu&, ClientId) override {
    return on_active ? on_active() : AllowanceVerdict{};
  }
  EnqueueVerdict enqueue(Gpu& g, LaunchId k) override {
    return on_enqueue ? on_enqueue(g, k) : EnqueueVerdict{};
  }
  DispatchVerdict dispatch(Gpu& g) override {
    return on_dispatch ? on_dispatch(g) : DispatchVerdict{};
  }
  HookResult stopping(Gpu&, const LaunchView& k) override {
    stopped.push_back(k);
    return HookResult::kDecided;
  }
  bool hears_stopping() const override { return true; }
};

class PolicyTest : public CoreTest {
 protected:
  // Every ask goes into one queue, where the policy may leave it.
  void place_all() {
    policy_.on_enqueue = [](Gpu& g, LaunchId k) {
      g.queue_insert(g.queue_create("q"), k, 0);
      return EnqueueVerdict{HookResult::kDecided};
    };
  }
  TestPolicy policy_;
};

TEST_F(CoreTest, OtherTermsApplyToThoseWhoAreThere) {
  contend();
  EXPECT_EQ(allowed(2), Allowance::kGated);
  EXPECT_TRUE(grants_.empty());
  const auto terms = [&](ClientId id, uint8_t priority) {
    Event e(EventKind::kTerms, now_, id);
    e.terms = {1, 0, priority, {}};
    step(e);
  };
  terms(1, 9);
  terms(2, 0);
  ASSERT_EQ(grants_.size(), 1u) << "who waits is judged anew";
  EXPECT_EQ(grants_[0].client, 2u);
  EXPECT_EQ(allowed(2), Allowance::kLeased);
  EXPECT_EQ(allowed(1), Allowance::kGated);
  const auto rejected = core_->stats().rejected;
  terms(1, kPriorityCount);
  EXPECT_EQ(core_->stats().rejected, rejected + 1);
}

// Or it would be asked no more, and fault no more.
TEST_F(PolicyTest, WhoseLaunchThePolicyFailedOnAsksItAgain) {
  policy_.on_enqueue = [](Gpu&, LaunchId) { return EnqueueVerdict{HookResult::kFault}; };
  policy_.on_dispatch = [](Gpu&) { return DispatchVerdict{HookResult::kDecided}; };
  policy_.on_active = [] {
    return AllowanceVerdict{HookResult::kDecided, false, Allowance::kGated};
  };
  attach(1, 0);
  attach(2, 9, true);
  use(&policy_);
  for (const ClientId id : {1, 2}) kernel(id, 0, id);
  step(launch(EventKind::kAsked, 2, Admission::kGated));
  ASSERT_EQ(grants_.size(), 1u) << "the built-in decides this once";
  EXPECT_EQ(allowed(2), Allowance::kGated);
}

TEST_F(PolicyTest, IdleHoldsWhatThePolicyPlaced) {
  policy_.on_enqueue = [](Gpu& g, LaunchId k) {
    return EnqueueVerdict{g.queue_insert(g.queue_create("q"), k, 0) ? HookResult::kDecided
                                                                    : HookResult::kFault};
  };
  bool open = false;
  policy_.on_dispatch = [&](Gpu& g) {
    return DispatchVerdict{HookResult::kDecided, open ? g.queue_peek(g.queue_create("q")) : 0};
  };
  use(&policy_);
  contend();
  now_ += 50 * kUs;
  done(1);
  EXPECT_TRUE(grants_.empty());
  open = true;
  tick(2 * kMs);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kPolicy);
}

TEST_F(PolicyTest, RefusingHoldsBackOnlyWhoFailsClosed) {
  policy_.on_init = [](Gpu&, ClientId) { return AllowanceVerdict{HookResult::kDecided, true}; };
  use(&policy_);
  attach(1, 5);
  EXPECT_EQ(allowed(1), Allowance::kLeased) << "refused is unmanaged";
  post(1);
  EXPECT_EQ(allowance_[1].managed, 0) << "active, and refused still";
  Event e(EventKind::kAttached, now_, 2);
  e.attached = {};
  e.attached.priority = 5;
  e.attached.fail_closed = true;
  step(e);
  EXPECT_EQ(allowed(2), Allowance::kGated);
  ask(2);
  tick(2'000 * kMs);
  EXPECT_TRUE(grants_.empty()) << "beyond the starvation bound";
  take(core_->set_bypass(true, now_));
  EXPECT_EQ(grants_.size(), 1u);
  take(core_->set_bypass(false, now_));
  ask(2);
  use(nullptr);
  done(1);
  done(2);
  tick(2'000 * kMs);
  EXPECT_EQ(grants_.size(), 2u) << "another policy's refusal is over with it";
}

TEST_F(PolicyTest, AFaultLiftsNoRefusal) {
  policy_.on_init = [](Gpu&, ClientId) { return AllowanceVerdict{HookResult::kDecided, true}; };
  policy_.on_active = [] { return AllowanceVerdict{HookResult::kFault}; };
  use(&policy_);
  attach(1, 5);
  post(1);
  EXPECT_EQ(allowance_[1].managed, 0);
  EXPECT_EQ(allowed(1), Allowance::kLeased);
}

TEST_F(PolicyTest, SaysThatARefusalEndedWhereTheWindowStays) {
  policy_.on_init = [](Gpu&, ClientId) { return AllowanceVerdict{HookResult::kDecided, true}; };
  use(&policy_);
  attach(1, 0);
  post(1);
  EXPECT_EQ(allowance_[1].managed, 0);
  use(nullptr);
  EXPECT_EQ(allowed(1), Allowance::kLeased);
  EXPECT_EQ(allowance_[1].managed, 1);
}

TEST_F(PolicyTest, ALaunchThatThePolicyDidNotPlaceIsServedByTheBuiltin) {
  policy_.on_dispatch = [](Gpu&) { return DispatchVerdict{HookResult::kDecided, 0}; };
  use(&policy_);
  contend();
  now_ += 50 * kUs;
  done(1);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kBuiltin);
}

TEST_F(PolicyTest, AFaultFallsToTheBuiltinAndEnoughOfThemQuarantine) {
  policy_.on_dispatch = [](Gpu&) { return DispatchVerdict{HookResult::kFault}; };
  use(&policy_);
  attach_both();
  for (int i = 0; i < 10; ++i) {
    post(1);
    ask(2);
    now_ += 50 * kUs;
    done(1);
    now_ += 50 * kUs;
    done(2);
  }
  EXPECT_EQ(grants_.size(), 10u);
  EXPECT_EQ(core_->stats().policy_faults, 8u);
  EXPECT_TRUE(core_->take_quarantined());
  EXPECT_FALSE(core_->take_quarantined());
}

TEST_F(PolicyTest, ASlowFaultCountsForTheTimeThatItTook) {
  policy_.on_dispatch = [](Gpu&) { return DispatchVerdict{HookResult::kFault}; };
  policy_.weight = 71;
  use(&policy_);
  contend();
  EXPECT_EQ(core_->stats().policy_faults, 1u);
  EXPECT_TRUE(core_->take_quarantined());
}

TEST_F(PolicyTest, APolicyThatIsLostAsItGoesLiveIsAskedNoMoreAndLeavesNothing) {
  Config config;
  config.fault_max = 2;
  reset(config);
  for (ClientId id = 1; id <= 5; ++id) attach(id, 9);
  std::vector<ClientId> asked;
  policy_.on_init = [&](Gpu&, ClientId id) {
    asked.push_back(id);
    const bool faults = id == 2 || id == 3;
    return AllowanceVerdict{faults ? HookResult::kFault : HookResult::kDecided, false,
                            Allowance::kLeased};
  };
  use(&policy_);
  EXPECT_EQ(asked, (std::vector<ClientId>{1, 2, 3}));
  EXPECT_TRUE(core_->take_quarantined());
  for (ClientId id = 1; id <= 5; ++id) {
    EXPECT_EQ(allowed(id), Allowance::kOpen) << "client " << id;
    EXPECT_EQ(allowance_[id].decider, Decider::kBuiltin) << "client " << id;
  }
}

TEST_F(PolicyTest, APolicyThatIsLostAsItGatesLeavesNothingOfItAtTheNextTick) {
  Config config;
  config.fault_max = 1;
  reset(config);
  policy_.on_init = [](Gpu&, ClientId) {
    return AllowanceVerdict{HookResult::kDecided, false, Allowance::kLeased};
  };
  policy_.on_enqueue = [](Gpu&, LaunchId) { return EnqueueVerdict{}; };
  policy_.on_dispatch = [](Gpu& g) {
    g.set_allowance(2, Allowance::kGated, 0);
    return DispatchVerdict{HookResult::kFault, 0};
  };
  use(&policy_);
  attach(1, 9);
  attach(2, 9);
  step(launch(EventKind::kPosted, 2, Admission::kLease));
  now_ += kUs;
  for (int i = 0; i < 5; ++i) step(launch(EventKind::kPosted, 2, Admission::kLease));
  ask(2);
  EXPECT_TRUE(core_->take_quarantined());
  EXPECT_LE(core_->next_deadline(), now_);
  tick(0);
  for (const ClientId id : {1, 2}) {
    EXPECT_EQ(allowed(id), Allowance::kOpen) << "client " << id;
  }
}

TEST_F(PolicyTest, AStaleHandleIsAFaultNotASecondRun) {
  LaunchId kept = 0;
  policy_.on_enqueue = [&](Gpu& g, LaunchId k) {
    if (kept == 0) kept = k;
    g.queue_insert(g.queue_create("q"), k, 0);
    return EnqueueVerdict{HookResult::kDecided};
  };
  policy_.on_dispatch = [&](Gpu&) { return DispatchVerdict{HookResult::kDecided, kept}; };
  use(&policy_);
  attach(1, 9);
  attach(2, 0);
  post(2);
  ask(1);
  EXPECT_EQ(grants_.size(), 1u);
  done(2);
  done(1);
  post(2);
  ask(1);
  EXPECT_EQ(core_->stats().policy_faults, 1u);
  std::set<uint32_t> seqs;
  for (const Decision& d : grants_) EXPECT_TRUE(seqs.insert(d.ask_seq).second);
}

TEST_F(PolicyTest, ReplacingAPolicyLosesNothing) {
  TestPolicy greedy;
  greedy.on_enqueue = [](Gpu& g, LaunchId k) {
    g.queue_insert(g.queue_create("never"), k, 0);
    return EnqueueVerdict{HookResult::kDecided};
  };
  greedy.on_dispatch = [](Gpu&) { return DispatchVerdict{HookResult::kDecided, 0}; };
  use(&greedy);
  contend();
  now_ += 50 * kUs;
  done(1);
  EXPECT_TRUE(grants_.empty());
  use(nullptr);
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(PolicyTest, ClientInitChoosesTheAllowance) {
  policy_.on_init = [](Gpu&, ClientId) {
    return AllowanceVerdict{HookResult::kDecided, false, Allowance::kGated};
  };
  use(&policy_);
  attach(1, 0);
  EXPECT_EQ(allowed(1), Allowance::kGated);
}

TEST_F(PolicyTest, ALentLeaseEndsByItself) {
  double for_us = 1'500;
  policy_.on_enqueue = [&](Gpu& g, LaunchId) {
    EXPECT_TRUE(g.set_allowance(2, Allowance::kLeased, for_us));
    return EnqueueVerdict{};
  };
  use(&policy_);
  attach_both();
  post(1);
  EXPECT_EQ(allowed(2), Allowance::kGated);
  ask(2);
  EXPECT_EQ(allowed(2), Allowance::kLeased);
  EXPECT_LE(core_->next_deadline(), now_ + 1'500 * kUs);
  tick(1'499 * kUs);
  EXPECT_EQ(allowed(2), Allowance::kLeased);
  tick(kUs);
  EXPECT_EQ(allowed(2), Allowance::kGated);
  // It goes with its policy.
  done(2);
  for_us = 1e6;
  ask(2);
  EXPECT_EQ(allowed(2), Allowance::kLeased);
  post(1);
  EXPECT_EQ(allowed(2), Allowance::kLeased);
  use(nullptr);
  EXPECT_EQ(allowed(2), Allowance::kGated);
}

TEST_F(PolicyTest, ALentGateEndsByItself) {
  policy_.on_enqueue = [](Gpu& g, LaunchId) {
    EXPECT_TRUE(g.set_allowance(2, Allowance::kGated, 1e6));
    return EnqueueVerdict{};
  };
  use(&policy_);
  attach_both();
  post(1);
  ask(2);
  done(1);
  tick(60 * kMs);
  EXPECT_EQ(allowed(2), Allowance::kGated) << "client 1 is idle";
  tick(939 * kMs);
  EXPECT_EQ(allowed(2), Allowance::kGated);
  tick(kMs);
  EXPECT_EQ(allowed(2), Allowance::kGated) << "as the built-in has it";
}

TEST_F(PolicyTest, ALaunchPriorityGoesWithWindowsAndGrantsUntilThePolicyChanges) {
  Config config;
  config.mps = true;
  reset(config);
  for (int priority = 0; priority < kPriorityCount; ++priority) {  // ten queues on six levels
    attach(static_cast<ClientId>(priority + 1), priority);
    EXPECT_EQ(allowance_[static_cast<ClientId>(priority + 1)].launch_priority,
              std::min(0, priority - 5));
  }
  policy_.on_init = [](Gpu& g, ClientId c) {
    EXPECT_FALSE(g.set_launch_priority(99, 0));
    if (c == 1) g.set_launch_priority(c, -2);
    if (c == 10) g.set_launch_priority(c, -4);
    return AllowanceVerdict{};
  };
  const uint32_t before = allowances_told_[2];
  use(&policy_);
  EXPECT_EQ(allowance_[1].launch_priority, -2);
  EXPECT_EQ(allowance_[10].launch_priority, -4);
  EXPECT_EQ(allowances_told_[2], before);  // nothing changes for whom it did not name
  post(1);
  ask(10);
  now_ += 50 * kUs;
  done(1);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].launch_priority, -4);

  use(nullptr);
  EXPECT_EQ(allowance_[1].launch_priority, -5);
  EXPECT_EQ(allowance_[10].launch_priority, 0);
}

TEST_F(PolicyTest, StoppingReportsMeasuredTimes) {
  use(&policy_);
  attach(1, 0);
  kernel(1, 0, 11);
  post(1);
  now_ += 500 * kUs;
  done(1, 480);
  ASSERT_EQ(policy_.stopped.size(), 1u);
  EXPECT_NEAR(policy_.stopped[0].run_us, 480, 1);
}

TEST_F(PolicyTest, GapIsRelativeToPriorityAndCorrectedOnline) {
  double gap = -1, top = -1;
  policy_.on_dispatch = [&](Gpu& g) {
    gap = g.gap_us(9);
    top = g.gap_us(0);
    return DispatchVerdict{HookResult::kDecided, 0};
  };
  place_all();
  use(&policy_);
  attach_both();
  kernel(1, 0, 11);
  teach(1, 500, 1500);
  post(1);
  ask(2);
  EXPECT_EQ(gap, 0);
  EXPECT_EQ(top, kUnlimitedUs);
  now_ += 500 * kUs;
  done(1, 500);
  EXPECT_NEAR(gap, 1500, 50);
  tick(1000 * kUs);
  EXPECT_NEAR(gap, 500, 50);
  tick(5 * kMs);
  EXPECT_EQ(gap, kUnlimitedUs);  // idle
  // Shorter gaps than predicted pull the estimate down.
  teach(1, 500, 300, 30);
  post(1);
  now_ += 500 * kUs;
  done(1, 500);
  EXPECT_LT(gap, 400);
}

TEST_F(PolicyTest, IdleTimeCountsWhileNobodyAboveHasWork) {
  double idle_low = 0, idle_high = 0;
  policy_.on_dispatch = [&](Gpu& g) {
    idle_low = g.idle_us(9);
    idle_high = g.idle_us(0);
    return DispatchVerdict{HookResult::kDecided, 0};
  };
  place_all();
  use(&policy_);
  attach_both();
  attach(3, 0);  // idle all the time: it takes nothing from anybody
  kernel(1, 0, 11);
  teach(1, 600, 400);
  post(1);
  ask(2);
  const double low = idle_low, high = idle_high;
  for (int i = 0; i < 10; ++i) {
    now_ += 600 * kUs;
    done(1, 600);
    tick(400 * kUs);
    post(1);
  }
  now_ += 600 * kUs;
  done(1, 600);
  EXPECT_NEAR(idle_low - low, 10 * 400, 50);
  EXPECT_NEAR(idle_high - high, 10 * 1000 + 600, 50);
}

// Policies' objects are used again: a view may still have the facts of a client that is gone.
TEST_F(PolicyTest, ALaunchOfAKernelThatNobodyAnnouncedHasNoFactsOfAnother) {
  const ipc::KernelFacts other{};
  LaunchView v;
  v.facts = &other;
  v.metrics = &other.metrics;
  v.launches = 7;
  policy_.on_enqueue = [&](Gpu& g, LaunchId k) {
    EXPECT_TRUE(g.launch(k, v));
    return EnqueueVerdict{};
  };
  use(&policy_);
  contend();
  EXPECT_EQ(v.client, 2u);
  EXPECT_EQ(v.facts, &kUnknownFacts);
  EXPECT_EQ(v.metrics, &kUnknownFacts.metrics);
  EXPECT_EQ(v.launches, 0u);
}

TEST_F(PolicyTest, HearsOfTheEndOfEveryLaunchItLetGo) {
  const auto ended = [&] {
    return std::count_if(policy_.stopped.begin(), policy_.stopped.end(),
                         [](const LaunchView& k) { return k.client == 2; });
  };
  place_all();
  bool open = true;
  policy_.on_dispatch = [&](Gpu& g) {
    return DispatchVerdict{HookResult::kDecided, open ? g.queue_peek(g.queue_create("q")) : 0};
  };
  use(&policy_);
  contend();
  ASSERT_EQ(grants_.size(), 1u);
  done(2, 0, Evidence::kFailed);  // it never ran
  EXPECT_EQ(ended(), 1);
  ask(2);
  ASSERT_EQ(grants_.size(), 2u);
  open = false;
  ask(2, 1);  // another thread waits already, and nothing is ever heard of the launch before
  for (int i = 0; i < 10; ++i) tick(10 * kMs);
  EXPECT_EQ(ended(), 2);
}

}  // namespace
}  // namespace heddle::core
