// The scheduler core as a state machine: events in, decisions out, time an argument.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "daemon/core/estimator.h"
#include "daemon/core/queues.h"
#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

TEST_F(CoreTest, LeasesALatencyClientAndABatchClientThatIsAlone) {
  attach(2, 9);
  EXPECT_EQ(allowed(2), Allowance::kOpen);
  take(core_->set_alone(true, now_));
  EXPECT_EQ(allowed(2), Allowance::kLeased);
  take(core_->set_alone(false, now_));
  attach(1, 0);  // and may start work at any time
  EXPECT_EQ(allowed(1), Allowance::kLeased);
  EXPECT_EQ(allowed(2), Allowance::kGated) << "what it launched cannot be held";
}

// Nobody above works, and may at any time.
TEST_F(CoreTest, WhatCannotBeHeldGoesLittleAheadOfTime) {
  attach_both();
  const auto ask_in = [&](uint16_t stream) {
    Event e = launch(EventKind::kAsked, 2, Admission::kAsk);
    e.launch.stream = stream;
    const size_t before = grants_.size();
    step(e);
    return grants_.size() > before;
  };
  int went = 0;
  while (went < 30 && ask_in(0)) ++went;
  EXPECT_EQ(went, 11) << "of 100 us each: a millisecond, and one more";
  now_ += 200 * kUs;
  Event over(EventKind::kCompleted, now_, 2);
  over.done = {2, 0, 0, Evidence::kMarker};
  step(over);
  EXPECT_EQ(grants_.size(), 12u) << "as what was there is seen to be over";
  went = 0;
  for (uint16_t stream = 1; stream < 20 && ask_in(stream); ++stream) ++went;
  EXPECT_EQ(went, 7) << "one in each of eight streams";
}

TEST_F(CoreTest, GatesWhenHigherPriorityStartsWork) {
  attach(1, 0);
  attach(2, 9, true);
  EXPECT_EQ(allowed(2), Allowance::kOpen);
  const uint32_t before = allowances_told_[2];
  post(1);
  EXPECT_EQ(allowed(2), Allowance::kGated);
  EXPECT_GT(allowances_told_[2], before);
}

TEST_F(CoreTest, OpensOnceHigherPriorityIsIdle) {
  attach(1, 5);
  attach(2, 5);
  attach(3, 4);
  step(Event(EventKind::kDetached, now_, 3));
  EXPECT_EQ(allowed(2), Allowance::kOpen);
  attach(3, 4);
  post(3);
  now_ += 100 * kUs;
  done(3);
  EXPECT_EQ(allowed(2), Allowance::kGated);
  step(Event(EventKind::kDetached, now_, 3));
  EXPECT_EQ(allowed(2), Allowance::kOpen);
}

TEST_F(CoreTest, EqualsAtTheTopAllRunFree) {
  attach(1, 3);
  attach(2, 3);
  post(1);
  post(2);
  EXPECT_EQ(allowed(1), Allowance::kLeased);
  EXPECT_EQ(allowed(2), Allowance::kLeased);
}

TEST_F(CoreTest, HoldsAnAskWhileHigherPriorityWorkIsOutstanding) {
  attach_both();
  kernel(1, 0, 11);
  teach(1, 500, 100);
  post(1);
  ask(2);
  EXPECT_TRUE(grants_.empty());
  tick(400 * kUs);
  EXPECT_TRUE(grants_.empty());
  done(1, 400);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].client, 2u);
  EXPECT_EQ(grants_[0].ask_seq, 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kBuiltin);
}

TEST_F(CoreTest, AThreadInsideASynchronizeKeepsItsClientBusyBeyondThePrediction) {
  attach_both();
  kernel(1, 0, 11);
  teach(1, 500, 100);
  post(1);
  step(Event(EventKind::kWaiting, now_, 1));
  ask(2);
  tick(5 * kMs);  // ten times the prediction
  EXPECT_TRUE(grants_.empty());
  done(1);
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(CoreTest, AClientThatWaitsForItsPeersInACollectiveHoldsNobodyUp) {
  attach_both();
  step(launch(EventKind::kPosted, 1, Admission::kSelfExempt));
  step(Event(EventKind::kWaiting, now_, 1));
  ask(2);
  tick(kMs);
  EXPECT_EQ(grants_.size(), 1u);
  done(1);
  post(1);  // work of its own is another matter
  step(Event(EventKind::kWaiting, now_, 1));
  ask(2);
  tick(10 * kMs);
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(CoreTest, PredictedEndOpensTheGapWithoutAnyMarker) {
  attach_both();
  kernel(1, 0, 11);
  teach(1, 500, 100);
  post(1);
  ask(2);
  tick(501 * kUs);
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(CoreTest, ServesTheMoreImportantAskFirst) {
  attach_both();
  attach(3, 6);
  post(1);
  ask(2);
  ask(3);
  now_ += 50 * kUs;
  done(1);
  ASSERT_GE(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].client, 3u);
}

TEST_F(CoreTest, ThreadsBuyNoShareAmongEquals) {
  attach_both();
  attach(3, 9);
  post(1);
  for (uint16_t thread = 0; thread < 6; ++thread) ask(2, thread);
  ask(3);
  std::map<ClientId, int> first_two;
  now_ += 50 * kUs;
  done(1);
  for (const Decision& d : grants_) ++first_two[d.client];
  EXPECT_EQ(first_two[3], 1);
  EXPECT_EQ(first_two[2], 1);
}

TEST_F(CoreTest, NothingWaitsBeyondTheStarvationBound) {
  attach_both();
  post(1);
  step(Event(EventKind::kWaiting, now_, 1));
  ask(2);
  for (int i = 0; i < 94; ++i) tick(10 * kMs);
  EXPECT_TRUE(grants_.empty());
  tick(20 * kMs);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kStarvation);
  EXPECT_EQ(core_->stats().starved, 1u);
}

TEST_F(CoreTest, EachIsLetGoAtItsOwnStarvationBound) {
  Config config;
  config.starvation_us = 100'000;
  reset(config);
  contend();
  step(Event(EventKind::kWaiting, now_, 1));
  attach(3, 9);
  tick(50 * kMs);
  ask(3);
  tick(46 * kMs);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].client, 2u);
  tick(48 * kMs);
  ASSERT_EQ(grants_.size(), 1u);
  tick(2 * kMs);
  ASSERT_EQ(grants_.size(), 2u);
  EXPECT_EQ(grants_[1].client, 3u);
}

TEST_F(CoreTest, ASilentClientIsRetiredByTheEventsOfAnother) {
  attach(1, 0);
  attach(2, 0);
  post(1);
  done(1);
  const TimeNs idle_at = now_ + 2 * kMs;
  while (now_ + 100 * kUs < idle_at) {
    now_ += 100 * kUs;
    post(2);
    done(2);
    EXPECT_TRUE(core_->view().active(1));
    EXPECT_LE(core_->next_deadline(), idle_at);
  }
  now_ = idle_at;
  post(2);
  EXPECT_FALSE(core_->view().active(1));
}

TEST_F(CoreTest, ALaunchThatTheDriverRefusedEndsAlone) {
  attach_both();
  kernel(1, 0, 11);
  teach(1, 500, 100);
  post(1);
  post(1);
  done(1, 0, Evidence::kFailed);  // the second of two
  ask(2);
  tick(400 * kUs);
  EXPECT_TRUE(grants_.empty());  // the first still runs
  tick(101 * kUs);
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(CoreTest, HintsWhatItLearnedAndLearnsOnlyAlone) {
  attach(1, 0);
  kernel(1, 0, 11);
  teach(1, 500, 100, 3);
  EXPECT_NEAR(hint_[0], 500, 1);
  // The next process of the same task starts with it.
  core_->step(Event(EventKind::kDetached, now_, 1));
  hint_.clear();
  attach(1, 0);
  kernel(1, 0, 11);
  EXPECT_NEAR(hint_[0], 500, 1);
}

TEST_F(CoreTest, BypassGrantsEveryAskAndLeasesEveryone) {
  contend();
  EXPECT_TRUE(grants_.empty());
  take(core_->set_bypass(true, now_));
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].decider, Decider::kBypass);
  EXPECT_EQ(allowed(2), Allowance::kLeased);
}

TEST_F(CoreTest, AWithdrawnAskIsForgotten) {
  contend();
  Event withdrawn = launch(EventKind::kWithdrawn, 2, Admission::kSelfStarved);
  withdrawn.launch.ask_seq = 1;
  step(withdrawn);
  EXPECT_EQ(core_->waiting(), 0u);
  now_ += 50 * kUs;
  done(1);
  EXPECT_TRUE(grants_.empty());
}

TEST_F(CoreTest, ADeadClientsAskIsForgottenAndOthersGoOn) {
  attach_both();
  attach(3, 9);
  post(1);
  ask(2);
  ask(3);
  step(Event(EventKind::kDetached, now_, 2));
  EXPECT_EQ(core_->waiting(), 1u);
  step(Event(EventKind::kDetached, now_, 1));
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].client, 3u);
}

TEST_F(CoreTest, LaunchPriorityFollowsTheQueueUnderMpsOnly) {
  Config config;
  config.mps = true;
  reset(config);
  attach(1, 0);
  attach(2, 4);
  attach(3, 9);
  EXPECT_EQ(allowance_[1].launch_priority, -5);
  EXPECT_EQ(allowance_[2].launch_priority, -1);
  EXPECT_EQ(allowance_[3].launch_priority, 0);
  reset({});
  attach(1, 0);
  EXPECT_EQ(allowance_[1].launch_priority, 0);
}

TEST_F(CoreTest, AnotherModeReachesClientsThatAreThereAlready) {
  attach_both();
  take(core_->set_mode(true, 10, now_));
  EXPECT_EQ(allowance_[1].launch_priority, -5);
  EXPECT_EQ(allowance_[2].launch_priority, 0);
  EXPECT_EQ(core_->config().switch_us, 10);
  take(core_->set_mode(false, 70, now_));
  EXPECT_EQ(allowance_[1].launch_priority, 0);
}

TEST_F(CoreTest, RejectsWhatMakesNoSense) {
  attach_both();
  attach(1, 0);   // twice
  attach(7, 12);  // no such priority
  post(99);       // nobody
  Event old(EventKind::kTick, now_, 0);
  old.version = 77;
  step(old);
  EXPECT_EQ(core_->stats().rejected, 4u);
  post(1);
  ask(2);
  ask(2);  // a thread that waits cannot ask again
  EXPECT_EQ(core_->stats().rejected, 5u);
  EXPECT_EQ(core_->waiting(), 1u);
}

TEST_F(CoreTest, ASampleOfALaunchBesideOthersIsNotExclusiveHoweverLateItComes) {
  attach_both();
  kernel(2, 0, 77);
  post(2);
  tick(500 * kUs);
  done(2, 500);
  EXPECT_FLOAT_EQ(hint_[0], 500);
  post(1);
  post(2);
  tick(100 * kUs);
  done(1);
  tick(10 * kMs);  // its events are looked at long after it ran
  done(2, 2000);
  EXPECT_FLOAT_EQ(hint_[0], 500);
}

// ---- estimators and queues ----

TEST(GapEstimateTest, MissesAboutTheShareItPromises) {
  std::mt19937 random(20261120);
  std::lognormal_distribution<double> gaps(std::log(6500), 0.2);
  GapEstimate estimate;
  int misses = 0;
  constexpr int kRounds = 20'000;
  for (int i = 0; i < kRounds; ++i) {
    const double gap = gaps(random);
    if (estimate.known() && gap < estimate.low_us()) ++misses;
    estimate.add(gap);
  }
  EXPECT_NEAR(static_cast<double>(misses) / kRounds, GapEstimate::kMissShare, 0.03);
  EXPECT_GT(estimate.high_us(), 8000);
}

TEST(DurationEstimateTest, PrefersExclusiveSamples) {
  DurationEstimate estimate;
  estimate.add(900, false, {});
  estimate.add(700, false, {});
  EXPECT_LT(estimate.us(), 900);
  estimate.add(1, false, {});  // one sample that is too short by mistake
  for (int i = 0; i < 400; ++i) estimate.add(i % 2 != 0 ? 700 : 900, false, {});
  EXPECT_NEAR(estimate.us(), 700, 20);
  estimate.add(500, true, {});
  estimate.add(2000, false, {});
  EXPECT_EQ(estimate.us(), 500);
}

TEST(QueueTest, BestFitTakesTheLowestKeyThenTheLongestThatFits) {
  Queue queue("q");
  const auto any = [](LaunchId) { return true; };
  queue.insert(1, 9, 0, 1, 100);
  queue.insert(2, 5, 7, 2, 300);
  queue.insert(3, 5, 8, 3, 200);
  queue.insert(4, 5, 7, 4, 900);
  EXPECT_EQ(queue.peek(1, [](LaunchId k) { return k != 2; }), 3u);
  EXPECT_EQ(queue.best_fit(500, any), 2u);
  EXPECT_EQ(queue.best_fit(250, any), 3u);
  EXPECT_EQ(queue.best_fit(150, any), 1u);
  EXPECT_EQ(queue.best_fit(50, any), 0u);
  EXPECT_EQ(queue.best_fit(500, [](LaunchId k) { return k != 2; }), 3u);
  EXPECT_TRUE(queue.remove(2));
  EXPECT_EQ(queue.best_fit(500, any), 3u);
  EXPECT_EQ(queue.peek(0, any), 4u);  // its turn is before 3's
}

// ---- the core under random events: nothing lost, nothing twice, nobody forgotten ----

TEST(SchedulerRandomTest, EveryAskIsGrantedOnceOrWithdrawn) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Scheduler core({});
    TimeNs now = kMs;
    struct Thread {
      uint32_t seq = 0;
      bool waiting = false;
      TimeNs since = 0;
    };
    std::map<ClientId, std::map<uint16_t, Thread>> threads;
    std::map<ClientId, uint64_t> stream_seq;
    const auto handle = [&](std::span<const Decision> decisions) {
      for (const Decision& d : decisions) {
        if (d.kind != DecisionKind::kGrant) continue;
        Thread& t = threads.at(d.client).at(d.thread);
        ASSERT_TRUE(t.waiting);
        ASSERT_EQ(t.seq, d.ask_seq);
        t.waiting = false;
      }
    };
    for (int i = 0; i < 5000; ++i) {
      now += random() % (200 * kUs);
      const ClientId id = 1 + random() % 6;
      const auto known = threads.find(id);
      Event e(EventKind::kTick, now, id);
      if (known == threads.end()) {
        e.kind = EventKind::kAttached;
        e.attached = {};
        e.attached.priority = static_cast<uint8_t>(random() % kPriorityCount);
        threads[id];
      } else if (random() % 200 == 0) {
        e.kind = EventKind::kDetached;
        threads.erase(known);
      } else {
        const auto thread = static_cast<uint16_t>(random() % 3);
        Thread& t = known->second[thread];
        e.launch = {};
        e.launch.thread = thread;
        e.launch.kernel = static_cast<uint32_t>(random() % 4);
        switch (random() % 4) {
          case 0:
            if (t.waiting) break;
            e.kind = EventKind::kAsked;
            e.launch.ask_seq = ++t.seq;
            e.launch.stream_seq = ++stream_seq[id];
            t.waiting = true;
            t.since = now;
            break;
          case 1:
            e.kind = EventKind::kPosted;
            e.launch.stream_seq = ++stream_seq[id];
            break;
          case 2:
            e.kind = EventKind::kCompleted;
            e.done = {stream_seq[id], 0, 0, Evidence::kSynchronized};
            break;
          default:
            break;
        }
      }
      handle(core.step(e));
      for (const auto& [client, owned] : threads) {
        for (const auto& [index, t] : owned) {
          ASSERT_TRUE(!t.waiting || now - t.since < 1'000 * kMs);
        }
      }
    }
    // Left alone, everything that waits is let go.
    for (int i = 0; i < 200; ++i) handle(core.step(Event(EventKind::kTick, now += 10 * kMs, 0)));
    EXPECT_EQ(core.waiting(), 0u);
  }
}

// Time is what the events say. Backwards it stands still, forwards it may leap (a machine that
// slept): nobody waits longer than the bound after the clock is back where it was.
TEST_F(CoreTest, AClockThatJumpsHoldsNobodyBack) {
  constexpr TimeNs kSecond = 1'000 * kMs;
  for (const TimeNs jump : {-3'600 * kSecond, -kMs, 60 * kSecond, 8'640'000 * kSecond}) {
    reset({});
    grants_.clear();
    stream_seq_.clear();
    ask_seq_.clear();
    now_ = 7'200 * kSecond;
    contend();
    const TimeNs asked = now_;
    const TimeNs until = std::max(asked, asked + jump) + 10 * kSecond;
    now_ += jump;
    post(1);
    tick(0);
    for (now_ = std::max(now_, asked); grants_.empty() && now_ < until;) {
      post(1);  // never idle
      tick(10 * kMs);
    }
    ASSERT_EQ(grants_.size(), 1u) << jump;
    EXPECT_LE(now_, std::max(asked, asked + jump) + kSecond + 10 * kMs) << jump;
    EXPECT_EQ(core_->waiting(), 0u);
  }
}

}  // namespace
}  // namespace heddle::core
