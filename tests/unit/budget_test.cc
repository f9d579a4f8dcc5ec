// Promises: what a launch beside a client is charged, what that client's account can afford, and
// how its measured runs correct both.
#include "daemon/core/budget.h"

#include <cmath>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

constexpr uint64_t kVictim = 1, kNeighbour = 2;

// A launch that no gap holds.
Price beside(double us, Channel channel = Channel::kDram) { return {us, channel, 2 * us + 1}; }

TEST(AccountTest, RefillsByTheTimeAtWorkAndAimsLower) {
  Account account;
  account.promise(1.10);
  EXPECT_FALSE(account.affords(beside(1)));
  account.at_work(10'000, false);
  EXPECT_TRUE(account.affords(beside(699)));
  EXPECT_FALSE(account.affords(beside(701)));
}

TEST(AccountTest, SavesUpToALimitAndThenAffordsAnything) {
  Account account;
  account.promise(1.10);
  account.at_work(1e9, false);
  const double most = Account::kSavedUs * 0.07;
  EXPECT_NEAR(account.status().balance_us, most, 1e-6);
  EXPECT_TRUE(account.affords(beside(100 * most)));
  account.charge(kNeighbour, beside(1, Channel::kDram));
  EXPECT_FALSE(account.affords(beside(100 * most)));
}

// However little a launch is predicted to cost: the prediction may be wrong.
TEST(AccountTest, InDebtOnlyWhatFitsAGapIsAfforded) {
  Account account;
  account.promise(1.10);
  EXPECT_TRUE(account.affords(beside(0)));
  account.charge(kNeighbour, beside(1));
  EXPECT_FALSE(account.affords(beside(0)));
  EXPECT_TRUE(account.affords({0, Channel::kSlots, 100, true}));
}

TEST(AccountTest, WithoutAPromiseNothingIsKept) {
  Account account;
  EXPECT_FALSE(account.promised());
  account.end_run(2, 1, true);
  EXPECT_EQ(account.status().blocks, 0u);
  account.promise(1.5);
  account.at_work(1000, false);
  account.promise(0);
  EXPECT_FALSE(account.promised());
  EXPECT_EQ(account.status().balance_us, 0);
}

// Charges of which a run shows that they were too much are given back, and of too little taken.
TEST(AccountTest, AMeasuredRunPutsTheAccountRight) {
  Account account;
  account.promise(1.10);
  account.at_work(100'000, false);  // 7 000 us
  account.charge(kNeighbour, beside(1000, Channel::kDram));
  account.end_run(10'200, 10'000, true);
  EXPECT_NEAR(account.status().balance_us, 6'800, 1);
  account.end_run(10'300, 10'000, true);
  EXPECT_NEAR(account.status().balance_us, 6'500, 1);
}

// Of a neighbour that nobody asks the account about: after it the promise is kept again soon.
TEST(AccountTest, DebtIsNoMoreThanABlockMayLoseAndOneLaunch) {
  Account account;
  account.promise(1.10);
  account.at_work(100'000, false);
  for (int i = 0; i < 1000; ++i) {
    account.charge(kNeighbour, beside(500, Channel::kDram));
    account.end_run(1800, 1000, true);
  }
  EXPECT_LT(account.status().balance_us, -100'000);
  EXPECT_GT(account.status().balance_us, -100'000 - 3000) << "a launch costs 800 here";
  account.at_work(1.6e6, false);
  EXPECT_TRUE(account.affords(beside(500, Channel::kDram)));
}

// It is let go at a full account whatever it costs, and is paid for all the same.
TEST(AccountTest, ALaunchDearerThanABlockMayLoseIsPaidInFull) {
  Account account;
  account.promise(1.10);
  account.at_work(100'000, false);
  account.charge(kNeighbour, beside(400'000, Channel::kDram));
  EXPECT_NEAR(account.status().balance_us, 7'000 - 400'000, 1);
  account.at_work(410'000, true);
  account.end_run(410'000, 10'000, true);
  for (int i = 0; i < 150; ++i) account.end_run(10'000, 10'000, false);
  EXPECT_LT(account.status().balance_us, -350'000) << "in the next block too";
}

// A neighbour that costs three times what is predicted is soon charged so.
TEST(AccountTest, AMeasuredRunCorrectsThePriceOfItsNeighbour) {
  Account account;
  account.promise(1.5);
  for (int i = 0; i < 100; ++i) {
    const double predicted = 200.0 + 10 * (i % 20);
    account.at_work(10'000, false);
    account.charge(kNeighbour, beside(predicted, Channel::kIssue));
    account.end_run(10'000 + 3 * predicted, 10'000, true);
  }
  EXPECT_NEAR(account.corrected(kNeighbour, beside(100, Channel::kIssue)).us, 300, 15);
  EXPECT_EQ(account.corrected(kNeighbour + 1, beside(100, Channel::kIssue)).us, 100);
}

// A launch that goes late in a run adds little to it, and much to the next. All prices are alike,
// as of a graph that is launched again and again.
TEST(AccountTest, ALaunchsPriceHoldsWhatItAddsToTheNextRun) {
  Account account;
  account.promise(1.5);
  for (int i = 0; i < 200; ++i) {
    account.charge(kNeighbour, beside(2800));
    account.end_run(3100, 3100, true);
    account.end_run(5500, 3100, true);
  }
  EXPECT_NEAR(account.corrected(kNeighbour, beside(2800)).us, 2400, 50);
}

// Nothing is known of whom to blame for runs that were longer alone.
TEST(AccountTest, ARunAloneIsNobodysDoing) {
  Account account;
  account.promise(1.5);
  account.charge(kNeighbour, beside(1000));
  account.end_run(4000, 3000, true);
  const double before = account.corrected(kNeighbour, beside(1000)).us;
  for (int i = 0; i < 50; ++i) account.end_run(4000, 3000, false);
  EXPECT_EQ(account.corrected(kNeighbour, beside(1000)).us, before);
}

TEST(AccountTest, AFreeLaunchGetsAPriceIfItCosts) {
  Account account;
  account.promise(1.5);
  const Price free{0, Channel::kDram, 1000};
  for (int i = 0; i < 2000; ++i) {
    account.charge(kNeighbour, free);
    account.end_run(10'500, 10'000, true);
  }
  EXPECT_NEAR(account.corrected(kNeighbour, free).us, 500, 50);
  for (int i = 0; i < 20'000; ++i) {
    account.charge(kNeighbour, free);
    account.end_run(10'000, 10'000, true);
  }
  EXPECT_LT(account.corrected(kNeighbour, free).us, 5);
}

// Prices keep apart what is beside a victim at the same time.
TEST(AccountTest, OneNeighbourDoesNotPayForAnother) {
  constexpr ClientId kOther = kNeighbour + 1;
  Account account;
  account.promise(1.5);
  const auto run = [&](bool costly, bool harmless) {
    if (costly) account.charge(kNeighbour, beside(500));
    if (harmless) account.charge(kOther, beside(500));
    account.end_run(10'000 + (costly ? 1000 : 0), 10'000, true);
  };
  for (int i = 0; i < 400; ++i) run(true, false), run(false, true), run(true, true);
  EXPECT_NEAR(account.corrected(kNeighbour, beside(500)).us, 1000, 100);
  EXPECT_LT(account.corrected(kOther, beside(500)).us, 100);
}

// Longer by more than it takes alone: the host's doing, unless others were at work so long.
TEST(AccountTest, TimeThatOthersDidNotHaveIsNotCharged) {
  Account account;
  account.promise(1.10);
  account.at_work(100'000, false);
  account.end_run(50'000, 1000, true);
  EXPECT_NEAR(account.status().balance_us, 6000, 1);
  account.at_work(20'000, true);
  account.end_run(50'000, 1000, true);
  EXPECT_NEAR(account.status().balance_us, 7000 - 20'000, 1);
}

TEST(AccountTest, ABrokenPromiseIsCountedWithItsChannel) {
  Account account;
  account.promise(1.10);
  const auto block = [&](double took_us) {
    for (int i = 0; i < 100; ++i) {
      account.charge(kNeighbour, beside(10, Channel::kIssue));
      account.charge(kNeighbour, beside(20, Channel::kDram));
      account.end_run(took_us, 10'000, true);
    }
  };
  block(10'900);
  EXPECT_EQ(account.status().blocks, 1u);
  EXPECT_EQ(account.status().broken, 0u);
  block(11'200);
  EXPECT_EQ(account.status().blocks, 2u);
  EXPECT_EQ(account.status().broken, 1u);
  EXPECT_EQ(account.status().channel, Channel::kDram);
  EXPECT_GT(account.status().slowdown, 1.10);
  for (int i = 0; i < 200; ++i) account.end_run(11'200, 10'000, false);
  EXPECT_GE(account.status().broken, 2u);
  EXPECT_FALSE(account.status().channel) << "nothing was charged";
}

// Runs that nobody knows alone say nothing, and leave the charge as it was predicted.
TEST(AccountTest, ARunOfAnUnknownKindIsNotJudged) {
  Account account;
  account.promise(1.10);
  account.at_work(100'000, false);
  account.charge(kNeighbour, beside(1000, Channel::kDram));
  account.end_run(20'000, 0, true);
  EXPECT_NEAR(account.status().balance_us, 6'000, 1);
  EXPECT_EQ(account.status().blocks, 0u);
}

TEST(RecentMixTest, FollowsWhatItsClientLaunches) {
  RecentMix recent;
  Use dram, issue;
  dram[Channel::kDram] = 0.8F;
  issue[Channel::kDram] = 0;
  issue[Channel::kIssue] = 0.9F;
  recent.add(&dram, {132, 128, 32, 0, 0}, 1'000);
  EXPECT_FLOAT_EQ(recent.mix().use[Channel::kDram], 0.8F);
  const uint32_t version = recent.version();
  for (int i = 0; i < 40; ++i) recent.add(&issue, {264, 256, 64, 0, 0}, 1'000);
  EXPECT_LT(recent.mix().use[Channel::kDram], 0.01F);
  EXPECT_NEAR(static_cast<double>(recent.mix().use[Channel::kIssue]), 0.9, 0.01);
  EXPECT_EQ(recent.mix().shape.threads, 256u);
  EXPECT_NE(recent.version(), version);
}

// A victim (client 1, Q0) that was promised 1.10, always at work, and a neighbour (2, Q9) that
// asks.
class BudgetTest : public CoreTest {
 protected:
  // Asks whether each launch that waits fits, and lets it go if so.
  class Asking final : public Policy {
   public:
    std::string_view name() const override { return "asking"; }
    EnqueueVerdict enqueue(Gpu&, LaunchId id) override {
      waiting = id;
      return {HookResult::kDecided, false};
    }
    DispatchVerdict dispatch(Gpu& gpu) override {
      LaunchView view;
      DispatchVerdict verdict;
      verdict.result = HookResult::kDecided;
      if (!gpu.launch(waiting, view)) return verdict;
      last = gpu.budget_fits(waiting, {});
      slowdown = gpu.slowdown(kVictim);
      dram_left = gpu.channel_left(Channel::kDram);
      if (last.fits) verdict.run = waiting;
      return verdict;
    }
    LaunchId waiting = 0;
    BudgetVerdict last;
    double slowdown = 0, dram_left = 0;
  };

  void SetUp() override {
    Config config;
    config.mps = true;
    config.switch_us = 10;
    reset(config);
    CoreTest::use(&policy_);
    promise(1.10f);
    attach(kNeighbour, 9);
    kernel(kVictim, 0, 100);
    kernel(kNeighbour, 0, 200);
    use(kVictim, 100, 0.9F);
  }

  void promise(float slowdown_max) {
    Event e(EventKind::kAttached, now_, kVictim);
    e.attached = {};
    e.attached.task = kVictim;
    e.attached.share = 1;
    e.attached.slowdown_max = {slowdown_max};
    step(e);
  }

  void use(ClientId task, uint64_t kernel_id, float dram) {
    Use use;
    use[Channel::kDram] = dram;
    core_->set_use(0, task, kernel_id, use);
  }

  // The victim works for so long, and stays at it.
  void work(double ms) {
    for (double done_ms = 0; done_ms < ms; done_ms += 1) {
      post(kVictim);
      now_ += kMs;
      done(kVictim, 1000, Evidence::kMarker);
    }
    post(kVictim);
  }

  // How many launches of the neighbour go until one does not, 1 000 at most.
  int let_go() {
    int count = 0;
    for (; count < 1000; ++count) {
      const size_t before = grants_.size();
      ask(kNeighbour);
      if (grants_.size() == before) {
        Event e = launch(EventKind::kWithdrawn, kNeighbour, Admission::kAsk);
        e.launch.ask_seq = ask_seq_[kNeighbour];
        step(e);
        break;
      }
      done(kNeighbour, 100, Evidence::kMarker);
    }
    return count;
  }

  double balance() { return core_->view().clients()[0].promise.balance_us; }

  Asking policy_;
};

TEST_F(BudgetTest, ALaunchThatWouldOverdrawWaits) {
  use(kNeighbour, 200, 0.9F);
  work(20);
  EXPECT_NEAR(balance(), 20 * 70, 150);
  const int count = let_go();
  // 100 us of a kernel that makes the victim's take 1.73 times as long: 42 us each.
  EXPECT_NEAR(count, 20 * 70 / 42, 4);
  EXPECT_FALSE(policy_.last.fits);
  EXPECT_EQ(policy_.last.victim, kVictim);
  EXPECT_EQ(policy_.last.channel, Channel::kDram);
  work(20);
  EXPECT_GT(let_go(), 10);
}

TEST_F(BudgetTest, AHarmlessNeighbourCostsNothing) {
  use(kNeighbour, 200, 0);
  work(20);
  EXPECT_EQ(let_go(), 1000);
  EXPECT_NEAR(balance(), 20 * 70, 150);
}

// A profiler's launch is longer than one here, so that here a kernel uses a larger part of the
// DRAM.
TEST_F(BudgetTest, AProfiledUseIsTakenToTheDurationHere) {
  const auto profiled = [&](ClientId client, uint64_t id, double us) {
    Event e(EventKind::kKernel, now_, client);
    e.kernel = {};
    e.kernel.id = id;
    e.kernel.grid_blocks = 66;
    e.kernel.block_threads = 256;
    e.kernel.metrics.set(ipc::metric_of("dram_pct"), 1);
    e.kernel.metrics.set(ipc::metric_of("us_profiled"), us);
    e.kernel.metrics.set(ipc::metric_of("dram_read_mb"), 200);  // 2 TB/s in 100 us, 0.1 in 2 ms
    step(e);
  };
  profiled(kNeighbour, 200, 2000);
  work(20);
  ask(kNeighbour);
  done(kNeighbour, 100, Evidence::kMarker);
  EXPECT_LT(let_go(), 100);
}

// Nobody measured it: half of its time is charged until runs say better.
TEST_F(BudgetTest, AnUnknownNeighbourIsChargedHalf) {
  work(20);
  EXPECT_NEAR(let_go(), 20 * 70 / 50, 8);
}

// Its blocks leave no room: the victim waits for its end, whatever channels say.
TEST_F(BudgetTest, ANeighbourThatLeavesNoSlotIsChargedNearlyAll) {
  Event e(EventKind::kKernel, now_, kNeighbour);
  e.kernel = {};
  e.kernel.id = 200;
  e.kernel.grid_blocks = 264;
  e.kernel.block_threads = 1024;
  step(e);
  use(kNeighbour, 200, 0);
  post(kVictim);
  done(kVictim, 20, Evidence::kMarker);
  work(20);
  EXPECT_LT(let_go(), 20 * 70 / 5);
  EXPECT_EQ(policy_.last.channel, Channel::kSlots);
}

// Its blocks leave the victim some slots for five of its launches: the account is full, and the
// estimator cannot say what that costs.
TEST_F(BudgetTest, ANeighbourWhoseCostNobodyKnowsDoesNotJoin) {
  const auto blocks = [&](ClientId client, uint64_t id, uint32_t count) {
    Event e(EventKind::kKernel, now_, client);
    e.kernel = {};
    e.kernel.id = id;
    e.kernel.grid_blocks = count;
    e.kernel.block_threads = 1024;
    step(e);
  };
  blocks(kVictim, 100, 264);
  use(kNeighbour, 200, 0);
  for (const bool leaves_some : {false, true}) {
    blocks(kNeighbour, 200, leaves_some ? 100 : 264);
    teach(kNeighbour, 5000, 0, 8);
    work(200);
    ask(kNeighbour);
    EXPECT_EQ(policy_.last.fits, !leaves_some);
    EXPECT_EQ(policy_.last.known, !leaves_some);
  }
  post(kNeighbour);
  tick(2 * kMs);
  EXPECT_TRUE(std::isinf(policy_.slowdown));
}

// Of a gap, what work that is in flight already leaves.
TEST_F(BudgetTest, AGapHoldsWhatIsInFlightAndOneMoreLaunch) {
  teach(kNeighbour, 400, 2000);
  Event e(EventKind::kTerms, now_, kVictim);
  e.terms = {1, 0, 0, {1.0001f}};
  step(e);
  teach(kVictim, 1000, 500);
  now_ -= 490 * kUs;  // its gap has just begun
  ask(kNeighbour);
  EXPECT_TRUE(policy_.last.fits);
  ask(kNeighbour, 1);
  EXPECT_FALSE(policy_.last.fits);
  EXPECT_NEAR(balance(), 0, 10) << "the first is free";
}

TEST_F(BudgetTest, WithoutAPromiseNothingIsCharged) {
  Event e(EventKind::kTerms, now_, kVictim);
  e.terms = {1, 0, 0, {}};
  step(e);
  work(5);
  EXPECT_EQ(let_go(), 1000);
  EXPECT_EQ(core_->view().clients()[0].promise.slowdown_max, 0);
}

TEST_F(BudgetTest, TimeSlicedAllOfANeighboursTimeIsCharged) {
  reset({});
  CoreTest::use(&policy_);
  promise(1.10f);
  attach(kNeighbour, 9);
  kernel(kVictim, 0, 100);
  kernel(kNeighbour, 0, 200);
  use(kNeighbour, 200, 0);
  work(20);
  EXPECT_NEAR(let_go(), 20 * 70 / 170, 3);
}

TEST_F(BudgetTest, PoliciesSeeSlowdownsAndWhatIsLeft) {
  use(kNeighbour, 200, 0.5F);
  work(20);
  ask(kNeighbour);
  EXPECT_NEAR(policy_.slowdown, 1, 1e-6);
  EXPECT_NEAR(policy_.dram_left, 0.1, 0.02);
  ask(kNeighbour, 1);
  EXPECT_GT(policy_.slowdown, 1.1);
  EXPECT_EQ(policy_.dram_left, 0);
}

// Runs beside equal or more important work say nothing, so that no charge for it would be mended.
TEST_F(BudgetTest, AMoreImportantClientIsNotCharged) {
  attach(3, 0);
  Event e(EventKind::kTerms, now_, kVictim);
  e.terms = {1, 0, 5, {1.10F}};
  step(e);
  work(5);
  const double before = balance();
  for (int i = 0; i < 100; ++i) {
    post(3);
    done(3, 100, Evidence::kMarker);
  }
  EXPECT_GE(balance(), before);
}

TEST_F(BudgetTest, ALessImportantPromiseHoldsNobodyMoreImportant) {
  Event e(EventKind::kTerms, now_, kNeighbour);
  e.terms = {1, 0, 5, {}};
  step(e);
  e = Event(EventKind::kTerms, now_, kVictim);
  e.terms = {1, 0, 9, {1.10F}};
  step(e);
  use(kNeighbour, 200, 0.9F);
  work(1);
  EXPECT_EQ(let_go(), 1000);
}

TEST_F(BudgetTest, AVictimThatLeavesIsNotCharged) {
  work(5);
  step(Event(EventKind::kDetached, now_, kVictim));
  EXPECT_EQ(let_go(), 1000);
}

}  // namespace
}  // namespace heddle::core
