// Clients whose launches stand at gates on the GPU: what lets them go, what stops them, and what is
// known of them.
#include <functional>

#include "tests/unit/core_gap_fixture.h"

namespace heddle::core {
namespace {

constexpr uint16_t kGate = kTicketThreads;
constexpr uint16_t kInside = 24;  // gates, of a graph of 5 ms

struct Ordering : Giving {
  explicit Ordering(std::function<void(Gpu&)> what) : order(std::move(what)) {}
  HookResult tick(Gpu& g) override { return order(g), HookResult::kDecided; }
  bool hears_tick() const override { return true; }
  std::function<void(Gpu&)> order;
};

// Client 1 (Q0) is active and has nothing on the device; client 2 (Q9) has gates.
class GatesTest : public CoreTest {
 protected:
  void begin() {
    attach(1, 0);
    attach_gates(2);
    kernel(1, 0, 11);
    kernel(2, 0, 22);
    post(1);
    done(1);
  }
  void attach_gates(ClientId id) { attach(id, 9, true); }
  void use(DispatchVerdict verdict) {
    policy_.verdict = verdict;
    CoreTest::use(&policy_);
  }
  Event at_gate(EventKind kind, ClientId id, uint32_t unit, uint16_t inside = 0) {
    Event e = launch(kind, id, Admission::kGated);
    e.launch.ask_seq = unit;
    e.launch.may_follow = inside;
    if (kind == EventKind::kAsked) e.launch.thread = kGate;
    return e;
  }
  void ask_at_gate(ClientId id, uint32_t unit, uint16_t inside = 0) {
    step(at_gate(EventKind::kAsked, id, unit, inside));
  }
  void gated(ClientId id, uint32_t unit) { step(at_gate(EventKind::kPosted, id, unit)); }
  void work(ClientId id) {  // until it is done
    post(id);
    wait(id);
  }
  // The last launch, a graph, stands at a gate inside.
  Event recalled(ClientId id) {
    --stream_seq_[id];
    return at_gate(EventKind::kRecalled, id, 0, kInside);
  }
  double duration_us(ClientId id) { return core_->view().outlook(id, now_, 0).duration_us; }
  ClientStatus status(ClientId id) {
    for (const ClientStatus& c : core_->view().clients()) {
      if (c.view.id == id) return c;
    }
    return {};
  }

  Giving policy_;
};

TEST_F(GatesTest, TheBuiltInOpensTheGatesWhileNobodyAboveWorks) {
  begin();
  ask_at_gate(2, 7);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].thread, kGate);
  EXPECT_EQ(grants_[0].ask_seq, 7u);
  EXPECT_EQ(allowed(2), Allowance::kOpen);
}

TEST_F(GatesTest, GatesAreWantedOfWhoAlwaysAsksUnlessItIsAlone) {
  struct : Giving {
    AllowanceVerdict client_init(Gpu&, ClientId) override { return {HookResult::kDecided}; }
  } gating;
  CoreTest::use(&gating);
  take(core_->set_alone(true, now_));
  attach_gates(1);
  ASSERT_EQ(allowed(1), Allowance::kGated);
  EXPECT_FALSE(allowance_[1].gates_soon);
  take(core_->set_alone(false, now_));
  EXPECT_TRUE(allowance_[1].gates_soon);
}

// The next request of client 1 may have waited for the one before it.
TEST_F(GatesTest, ALongUnitWaitsUntilAPauseHasLasted) {
  begin();
  teach(2, 5'000, 0, 4);
  for (const bool by_policy : {false, true}) {
    if (by_policy) use({});
    done(2);
    post(1);
    ask_at_gate(2, by_policy ? 2 : 1);
    const size_t before = grants_.size();
    now_ += 50 * kUs;
    policy_.fit = {};
    done(1);
    tick(480 * kUs);
    EXPECT_EQ(grants_.size(), before) << "its pause just began";
    EXPECT_EQ(policy_.fit.predicted_us, 0) << "the policy sees what it can let go, and no more";
    tick(40 * kUs);
    EXPECT_EQ(grants_.size(), before + 1);
  }
}

// Client 2's kernel in one stream may wait for a launch in another, which client 1 holds up.
class StuckTest : public GatesTest {
 protected:
  // Two streams of client 2 are known; a kernel of it goes, and client 1 works until the end.
  void begin_stuck(double predicted_us = kDefaultUs) {
    begin();
    if (predicted_us != kDefaultUs) teach(2, predicted_us, 0, 4);
    ask_in(1);
    end_in(1);
    tick(kMs);  // a pause
    use({});
    ask_in(0);
    ASSERT_EQ(grants_.size(), 2u);
    seq_ = stream_seq_[2];
    post(1);
    wait(1);
  }
  void ask_in(uint16_t stream) {
    Event e = at_gate(EventKind::kAsked, 2, ++unit_);
    e.launch.stream = stream;
    step(e);
  }
  void end_in(uint16_t stream, uint64_t seq = 0) {
    Event e(EventKind::kCompleted, now_, 2);
    e.done = {seq != 0 ? seq : stream_seq_[2], 0, stream, Evidence::kMarker};
    step(e);
  }
  // Until what stands at the gate goes.
  double waits_ms() {
    const size_t before = grants_.size();
    const TimeNs since = now_;
    while (grants_.size() == before && now_ - since < 2'000 * kMs) tick(kMs / 4);
    return static_cast<double>(now_ - since) / 1e6;
  }

  uint32_t unit_ = 0;
  uint64_t seq_ = 0;  // of what is stuck
};

TEST_F(StuckTest, AKernelFarPastItsPredictionLetsGoWhatItMayWaitFor) {
  begin_stuck();
  ask_in(1);
  EXPECT_NEAR(waits_ms(), 3.5, 1);
  EXPECT_EQ(grants_.back().decider, Decider::kBuiltin);
  EXPECT_EQ(core_->view().explain(2).past.at(0).reason,
            "its client's oldest launch takes far longer than predicted, and may wait for it");
  end_in(1);
  end_in(0, seq_);
  ask_in(0);
  EXPECT_GT(waits_ms(), 900) << "nothing is stuck any more";
}

TEST_F(StuckTest, ALongKernelHasEightTimesItsPrediction) {
  begin_stuck(5'000);
  ask_in(1);
  EXPECT_NEAR(waits_ms(), 40.5, 1);
}

TEST_F(StuckTest, WhatMayBeOverWithoutAWordOpensTheClientEverMoreRarely) {
  begin_stuck();
  const TimeNs since = now_;
  TimeNs last = 0;
  while (now_ - since < 500 * kMs) {
    if (core_->waiting() == 0) {  // what went is over
      last = now_ - since;
      end_in(1);
      ask_in(1);
    }
    tick(kMs);
  }
  EXPECT_GT(grants_.size(), 7u);
  EXPECT_LT(grants_.size(), 20u);
  EXPECT_LT(last, 50 * kMs);
}

TEST_F(StuckTest, AProgramOfOneStreamIsNotStuck) {
  begin();
  use({});
  ask_in(0);
  post(1);
  wait(1);
  ask_in(0);
  EXPECT_GT(waits_ms(), 900);
}

TEST_F(GatesTest, UnderAPolicyThatChoosesPerLaunchItAsks) {
  struct : Policy {
    std::string_view name() const override { return "chooses"; }
  } choosing;
  choosing.chooses_per_launch = true;
  begin();
  EXPECT_TRUE(status(2).view.gates);
  EXPECT_FALSE(allowance_[2].kernels_ask);
  CoreTest::use(&choosing);
  EXPECT_FALSE(status(2).view.gates);
  EXPECT_TRUE(allowance_[2].kernels_ask);
  EXPECT_TRUE(allowance_[2].gates_inside) << "of long graphs";
  CoreTest::use(nullptr);
  EXPECT_TRUE(status(2).view.gates);
  EXPECT_FALSE(allowance_[2].kernels_ask);
}

TEST_F(GatesTest, AThreadThatAsksOpensNoGates) {
  begin();
  use({.open = true});
  ask(2);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(allowed(2), Allowance::kGated);
}

TEST_F(GatesTest, OpenGatesOutlastTheGapAndCloseWhenSomebodyAboveLaunches) {
  attach(1, 0);
  attach_gates(2);
  kernel(1, 0, 11);
  teach(1, 500, 300);
  ask_at_gate(2, 1);
  tick(1 * kMs);
  EXPECT_EQ(allowed(2), Allowance::kOpen) << "the gap is longer than it was predicted to be";
  post(1);
  EXPECT_EQ(allowed(2), Allowance::kGated);
}

TEST_F(GatesTest, SomebodyAboveWhoAsksClosesTheGates) {
  begin();
  ask_at_gate(2, 1);
  ASSERT_EQ(allowed(2), Allowance::kOpen);
  ask(1);
  EXPECT_EQ(allowed(2), Allowance::kGated);
}

TEST_F(GatesTest, AnEqualThatWaitsClosesThemAndOneBelowDoesNot) {
  begin();
  Event e(EventKind::kTerms, now_, 2);
  e.terms = {1, 0, 8, {}};
  step(e);
  attach_gates(3);
  ask_at_gate(2, 1);
  ask_at_gate(3, 1);
  EXPECT_EQ(allowed(2), Allowance::kOpen) << "client 3 is below";
  attach_gates(4);
  e.client = 4;
  step(e);
  ask_at_gate(4, 1);
  EXPECT_EQ(allowed(2), Allowance::kGated) << "client 4 is as important";
}

TEST_F(GatesTest, WhoAsksIsToldWithWhatWentAtOpenGatesBefore) {
  begin();
  use({.open = true});
  policy_.open = true;
  ask_at_gate(2, 1);
  ASSERT_EQ(allowed(2), Allowance::kOpen);
  EXPECT_DOUBLE_EQ(status(2).view.inflight_us, kDefaultUs) << "open gates are not work in flight";
  gated(2, 1);  // of the unit that was granted
  gated(2, 2);
  EXPECT_DOUBLE_EQ(status(2).view.inflight_us, 3 * kDefaultUs);
  post(1);
  policy_.open = false;
  ask_at_gate(2, 3);
  EXPECT_DOUBLE_EQ(policy_.asked.open_us, kDefaultUs);
}

TEST_F(GatesTest, APolicyThatGatesAClientClosesWhatAGrantOpened) {
  Ordering gating([](Gpu& g) { g.set_allowance(2, Allowance::kGated, 0); });
  begin();
  ask_at_gate(2, 1);
  ASSERT_EQ(allowed(2), Allowance::kOpen);
  CoreTest::use(&gating);
  tick(kMs);
  EXPECT_EQ(allowed(2), Allowance::kGated);
}

TEST_F(GatesTest, AUnitIsPredictedAsAWholeAndAGraphByThePiece) {
  begin();
  policy_.open = false;
  use({});
  Event e = at_gate(EventKind::kAsked, 2, 1);
  e.launch.unit_us = 140;
  step(e);
  EXPECT_DOUBLE_EQ(policy_.asked.predicted_us, 140);
  attach_gates(3);
  ask_at_gate(3, 1, 3);
  EXPECT_DOUBLE_EQ(policy_.asked.predicted_us, kDefaultUs / 4);
}

TEST_F(GatesTest, ARecalledGraphIsNotInFlightAndTeachesNothing) {
  begin();
  teach(2, 5'000, 0, 4);
  done(1);
  post(1);
  done(1);
  ASSERT_NEAR(duration_us(2), 5'000, 1);
  const uint64_t launches = status(2).launches;
  ask_at_gate(2, 1, kInside);
  now_ += 2 * kMs;
  post(1);
  step(recalled(2));
  EXPECT_EQ(status(2).outstanding_us, 0);
  --stream_seq_[2];
  ask_at_gate(2, 1, kInside);
  now_ += 1 * kMs;
  done(1);
  tick(100 * kUs);
  ASSERT_EQ(grants_.back().client, 2u);
  EXPECT_NEAR(status(2).outstanding_us, 3'000, 1) << "the rest of it";
  now_ += 3 * kMs;
  const double before_us = status(2).gpu_us;
  done(2, 6'000);
  EXPECT_NEAR(duration_us(2), 5'000, 1) << "the millisecond at the gate is not learned";
  EXPECT_LT(status(2).gpu_us - before_us, 3'001);
  EXPECT_EQ(status(2).launches, launches + 1) << "what goes on is the same launch";
}

TEST_F(GatesTest, AGraphBehindClosedGatesIsStoppedForSomebodyMoreImportant) {
  begin();
  use({});
  ask_at_gate(2, 1, kInside);
  ASSERT_EQ(allowed(2), Allowance::kGated);
  const uint32_t before = allowances_told_[2];
  post(1);
  EXPECT_GT(allowances_told_[2], before);
}

TEST_F(GatesTest, AGraphBesideSomebodyMoreImportantGoesForAPiece) {
  begin();
  teach(2, 5'000, 0, 4);
  policy_.open = false;
  use({});
  work(1);
  ask_at_gate(2, 1, kInside);
  const uint32_t before = allowances_told_[2];
  struct Beside : Giving {
    DispatchVerdict dispatch(Gpu& g) override {
      DispatchVerdict v = Giving::dispatch(g);
      v.run = g.queue_peek(g.queue_create("q"));
      return v;
    }
  } beside;
  CoreTest::use(&beside);
  ASSERT_EQ(grants_.back().thread, kGate);
  EXPECT_NEAR(status(2).outstanding_us, 200, 1) << "a piece";
  tick(100 * kUs);
  EXPECT_EQ(allowances_told_[2], before) << "the piece still runs";
  EXPECT_LE(core_->next_deadline(), now_ + 100 * kUs);
  tick(100 * kUs);
  EXPECT_GT(allowances_told_[2], before);
}

TEST_F(GatesTest, WhoWaitsAtAClosedGateHasNoWork) {
  begin();
  ask_at_gate(2, 1);
  wait(2);
  gated(2, 1);
  post(1);
  Event e(EventKind::kCompleted, now_, 2);
  e.done = {stream_seq_[2], 0, 0, Evidence::kMarker};
  step(e);
  ASSERT_TRUE(core_->view().outlook(2, now_, 0).busy) << "its thread waits for the device";
  ask_at_gate(2, 2);
  EXPECT_FALSE(core_->view().outlook(2, now_, 0).busy);
}

TEST_F(GatesTest, ASynchronizingCallEndsWhatWasLetGoAfterItBegan) {
  begin();
  ask_at_gate(2, 1);
  wait(2);
  now_ += 50 * kUs;
  gated(2, 2);
  Event e(EventKind::kCompleted, now_, 2);
  e.done = {0, 0, kEveryStream, Evidence::kSynchronized};
  step(e);
  EXPECT_EQ(status(2).outstanding_us, 0);
}

TEST_F(GatesTest, AGraphThatIsStoppedAgainAndAgainStarvesFromItsFirstAsk) {
  begin();
  const auto stop = [&] {
    post(1);
    step(recalled(2));
    --stream_seq_[2];
    ask_at_gate(2, 1, kInside);
  };
  ask_at_gate(2, 1, kInside);
  stop();
  tick(900 * kMs);
  done(1);
  ASSERT_EQ(grants_.size(), 2u);
  stop();
  tick(60 * kMs);
  ASSERT_EQ(grants_.size(), 3u);
  EXPECT_EQ(grants_[2].decider, Decider::kStarvation);
  const uint32_t before = allowances_told_[2];
  tick(10 * kMs);
  EXPECT_EQ(allowances_told_[2], before) << "then it goes to its end";
}

TEST_F(GatesTest, GraphsOfEqualsGoSideBySide) {
  begin();
  attach_gates(3);
  kernel(3, 0, 33);
  teach(2, 5'000, 0, 4);
  teach(3, 5'000, 0, 4);
  done(1);
  post(1);
  done(1);
  ask_at_gate(2, 1, kInside);
  ASSERT_EQ(grants_.back().client, 2u);
  const uint32_t before = allowances_told_[2];
  ask_at_gate(3, 1, kInside);
  EXPECT_EQ(grants_.back().client, 3u);
  tick(1 * kMs);
  EXPECT_EQ(allowances_told_[2], before)
      << "whoever stopped the other would be stopped by it at once";
}

TEST_F(GatesTest, BelowQ4EvenTheMostImportantStandsAtGatesThatAreOpen) {
  attach_gates(2);
  EXPECT_EQ(allowed(2), Allowance::kOpen);
  EXPECT_TRUE(allowance_[2].gates_soon) << "somebody may come";
  EXPECT_FALSE(allowance_[2].gates_inside);
  attach(1, 0);
  EXPECT_TRUE(allowance_[2].gates_inside);
  EXPECT_EQ(allowed(2), Allowance::kOpen) << "what stands there can be held";
  EXPECT_FALSE(allowance_[1].gates_soon) << "it is leased";
  step(Event(EventKind::kDetached, now_, 1));
  EXPECT_FALSE(allowance_[2].gates_inside);
}

TEST_F(GatesTest, WhoLeftItsGatesAsksAsOthersDo) {
  begin();
  EXPECT_TRUE(status(2).view.gates);
  step(Event(EventKind::kGatesLeft, now_, 2));
  EXPECT_FALSE(status(2).view.gates);
  EXPECT_FALSE(allowance_[2].gates_soon);
  EXPECT_EQ(allowed(2), Allowance::kOpen) << "as its page says";
}

TEST_F(GatesTest, TheBoundIsAUnitOrAPiece) {
  begin();
  teach(2, 5'000, 0, 4);
  post(1);
  done(1);
  ask_at_gate(2, 1, kInside);
  ASSERT_EQ(allowed(2), Allowance::kOpen);
  const double around_us = core_->config().switch_us + 70;
  EXPECT_NEAR(status(1).added_us_max, 200 + around_us, 1);
}

TEST_F(GatesTest, AClientWithoutWorkLeavesNoGateOpen) {
  begin();
  ask_at_gate(2, 1);
  done(2);
  const uint32_t before = allowances_told_[2];
  tick(60 * kMs);
  EXPECT_GT(allowances_told_[2], before);
}

}  // namespace
}  // namespace heddle::core
