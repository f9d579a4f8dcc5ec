// What runs of a client is stopped in its middle for whoever is more important, and goes on.
#include <algorithm>
#include <random>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

constexpr ClientId kService = 1, kBatch = 2, kThird = 3;
constexpr double kServiceUs = 1'000, kGapUs = 5'000, kLongUs = 20'000, kShortUs = 100;

class CoreStopsTest : public CoreTest {
 protected:
  // A service with gaps of 5 ms, and a client whose kernel takes so long.
  void begin(double batch_us, double gap_us = kGapUs, bool mps = false) {
    Config config;
    config.mps = mps;
    reset(config);
    attach(kService, 0);
    kernel(kService, 0, 11);
    teach(kService, kServiceUs, gap_us);
    attach(kBatch, 9);
    kernel(kBatch, 0, 22);
    say(kBatch, ipc::kStopYes);
    now_ += 100 * kMs;
    teach_batch(batch_us);
  }

  void teach_batch(double us) {
    for (int i = 0; i < 10; ++i) {
      tick(kMs);
      ask(kBatch);
      now_ += static_cast<TimeNs>(us * 1e3);
      done(kBatch, static_cast<float>(us));
    }
    tick(10 * kMs);
  }

  void say(ClientId id, uint32_t able, bool off = false, float took_us = 0) {
    Event e(EventKind::kStops, now_, id);
    e.stop = {able, off, took_us};
    step(e);
  }

  // The batch client is granted its kernel, and has run for so long as the service comes.
  void meet(TimeNs ran) {
    step(launch(EventKind::kAsked, kBatch, Admission::kAsk));
    ASSERT_EQ(grants_.back().client, kBatch);
    now_ += ran;
    step(launch(EventKind::kPosted, kService, Admission::kLease));
  }

  void pass(TimeNs ns) {
    now_ += ns;
    step(Event(EventKind::kTick, now_, 0));
  }

  void service_done() {
    Event e(EventKind::kCompleted, now_, kService);
    e.done = {stream_seq_[kService], 0, 0, Evidence::kSynchronized};
    step(e);
  }

  bool off(ClientId id = kBatch) { return stop_.contains(id) && stop_[id].off; }
  ClientStatus status(ClientId id) {
    for (const ClientStatus& c : core_->view().clients()) {
      if (c.view.id == id) return c;
    }
    return {};
  }
};

TEST_F(CoreStopsTest, WhatIsPredictedToLastStandsAtOnce) {
  begin(kLongUs);
  meet(kMs);
  EXPECT_TRUE(off());
  EXPECT_EQ(core_->stats().stops, 1u);
}

TEST_F(CoreStopsTest, WhatIsNearlyOverIsLeftToEnd) {
  begin(kLongUs);
  meet(static_cast<TimeNs>((kLongUs - 200) * 1e3));
  EXPECT_FALSE(off());
}

TEST_F(CoreStopsTest, WhatIsShortIsLeftToEndUnlessItLasts) {
  begin(kShortUs);
  meet(10 * kUs);
  EXPECT_FALSE(off());
  EXPECT_LE(core_->next_deadline(), now_ + 700 * kUs);
  pass(900 * kUs);
  EXPECT_TRUE(off());
}

TEST_F(CoreStopsTest, ItGoesOnWhereMostPausesAreWorthItOnceTheShortOnesWouldBeOver) {
  begin(kLongUs);
  meet(kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  now_ += kMs;
  service_done();
  EXPECT_TRUE(off());
  pass(60 * kUs);
  EXPECT_FALSE(off());
}

TEST_F(CoreStopsTest, ItStandsThroughPausesThatAreTooShortAndGoesOnInOneThatLasts) {
  begin(kLongUs, 500);
  meet(kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  for (int i = 0; i < 5; ++i) {
    now_ += kMs;
    service_done();
    EXPECT_TRUE(off());
    pass(500 * kUs);
    EXPECT_TRUE(off());
    step(launch(EventKind::kPosted, kService, Admission::kLease));
  }
  now_ += kMs;
  service_done();
  pass(2 * kMs);
  EXPECT_FALSE(off());
}

TEST_F(CoreStopsTest, OfEqualsThatStandTheLongestGoesOnAndAllInAPauseThatLasts) {
  begin(kLongUs);
  attach(kThird, 9);
  kernel(kThird, 0, 33);
  say(kThird, ipc::kStopYes);
  step(launch(EventKind::kPosted, kThird, Admission::kSelfStarved));
  step(launch(EventKind::kPosted, kBatch, Admission::kSelfStarved));
  now_ += kMs;
  step(launch(EventKind::kPosted, kService, Admission::kLease));
  now_ += kMs;
  step(launch(EventKind::kPosted, kService, Admission::kLease));
  const auto stood = [&](bool batch, bool third) {
    EXPECT_EQ(off(kBatch), batch);
    EXPECT_EQ(off(kThird), third);
  };
  stood(true, true);
  now_ += kMs;
  service_done();
  pass(60 * kUs);
  const bool first = off(kThird);  // who is first of two that were stopped together is not said
  stood(!first, first);
  say(first ? kBatch : kThird, ipc::kStopYes, false, 600);
  now_ += 2 * kMs;
  step(launch(EventKind::kPosted, kService, Admission::kLease));
  stood(true, true);
  now_ += kMs;
  service_done();
  pass(60 * kUs);
  stood(first, !first);
  pass(50 * kMs);
  stood(false, false);
}

TEST_F(CoreStopsTest, NothingIsGrantedBehindItUntilItsShimSaysThatItGoesOn) {
  begin(kLongUs);
  meet(kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  step(launch(EventKind::kAsked, kBatch, Admission::kAsk, 1));
  const size_t granted = grants_.size();
  now_ += kMs;
  service_done();
  pass(60 * kUs);
  ASSERT_FALSE(off());
  EXPECT_EQ(grants_.size(), granted);
  now_ += 400 * kUs;
  say(kBatch, ipc::kStopYes, false, 600);
  now_ += 20 * kMs;
  Event e(EventKind::kCompleted, now_, kBatch);
  e.done = {stream_seq_[kBatch] - 1, 0, 0, Evidence::kMarker};
  step(e);
  pass(kMs);
  EXPECT_GT(grants_.size(), granted);
}

TEST_F(CoreStopsTest, OfThoseThatAreStoppedOneAtATimeHasWorkOnTheGpu) {
  begin(kLongUs);
  attach(kThird, 9);
  kernel(kThird, 0, 33);
  say(kThird, ipc::kStopYes);
  meet(kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  now_ += kMs;
  service_done();
  const size_t granted = grants_.size();
  ask(kThird);
  EXPECT_EQ(grants_.size(), granted) << "what stood goes on first";
}

TEST_F(CoreStopsTest, HowLongItTakesIsGuessedWhereItWasNeverLeftAlone) {
  begin(kLongUs);
  kernel(kBatch, 1, 55);
  Event asked = launch(EventKind::kAsked, kBatch, Admission::kAsk);
  asked.launch.kernel = 1;
  step(asked);
  now_ += 5 * kMs;
  step(launch(EventKind::kPosted, kService, Admission::kLease));
  pass(2 * kMs);
  ASSERT_TRUE(off());
  say(kBatch, ipc::kStopYes, true, 600);
  service_done();
  pass(3 * kMs);
  ASSERT_FALSE(off());
  say(kBatch, ipc::kStopYes, false, 600);
  now_ += 20 * kMs;
  Event e(EventKind::kCompleted, now_, kBatch);
  e.done = {stream_seq_[kBatch], 30'000, 0, Evidence::kMarker};
  step(e);
  EXPECT_NEAR(core_->view().outlook(kBatch, now_, 1).duration_us, 27'000, 2'000);
}

TEST_F(CoreStopsTest, WhatWaitsBehindAKernelThatStandsDoesNotStand) {
  begin(kLongUs);
  kernel(kBatch, 1, 55);
  Event asked = launch(EventKind::kAsked, kBatch, Admission::kAsk);
  step(asked);
  asked = launch(EventKind::kPosted, kBatch, Admission::kLease);
  asked.launch.kernel = 1;
  step(asked);
  now_ += 5 * kMs;
  step(launch(EventKind::kPosted, kService, Admission::kLease));
  pass(2 * kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  for (int i = 0; i < 30; ++i) pass(kMs);
  service_done();
  pass(3 * kMs);
  ASSERT_FALSE(off());
  say(kBatch, ipc::kStopYes, false, 600);
  Event e(EventKind::kCompleted, now_ += 15 * kMs, kBatch);
  e.done = {stream_seq_[kBatch] - 1, 55'000, 0, Evidence::kMarker};
  step(e);
  e.at = now_ += 9 * kMs;
  e.done = {stream_seq_[kBatch], 9'000, 0, Evidence::kMarker};
  step(e);
  EXPECT_NEAR(core_->view().outlook(kBatch, now_, 1).duration_us, 9'000, 900);
}

TEST_F(CoreStopsTest, ItIsBusyWhileItStandsAndNothingIsLearnedOfIt) {
  begin(kLongUs);
  meet(kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  const float predicted = hint_[0];
  for (int i = 0; i < 200; ++i) pass(kMs);  // the service is busy: no word of its end
  EXPECT_TRUE(core_->view().outlook(kBatch, now_, 0).busy);
  service_done();
  say(kBatch, ipc::kStopYes, false, 600);
  now_ += 19 * kMs;
  Event e(EventKind::kCompleted, now_, kBatch);
  e.done = {stream_seq_[kBatch], 220'000, 0, Evidence::kMarker};
  step(e);
  EXPECT_NEAR(core_->view().outlook(kBatch, now_, 0).duration_us, kLongUs, kLongUs / 10);
  EXPECT_EQ(hint_[0], predicted);
  EXPECT_GE(status(kBatch).view.stopped_us, 200'000);
  EXPECT_EQ(status(kBatch).view.stops, 1u);
}

TEST_F(CoreStopsTest, TheStarvationBoundEndsAStopForAStatedTime) {
  begin(20 * kLongUs);
  meet(kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  int went_on_at = 0, stopped_at = 0;
  for (int ms = 1; ms < 1300 && stopped_at == 0; ++ms) {
    now_ += kMs;
    step(launch(EventKind::kPosted, kService, Admission::kLease));
    if (went_on_at == 0 && !off()) went_on_at = ms;
    say(kBatch, ipc::kStopYes, off());
    if (went_on_at != 0 && off()) stopped_at = ms;
  }
  EXPECT_NEAR(went_on_at, 1000, 5);
  EXPECT_NEAR(stopped_at - went_on_at, 100, 5);
  EXPECT_EQ(core_->stats().stops_starved, 1u);
}

TEST_F(CoreStopsTest, WhoCannotBeStoppedIsNot) {
  for (uint32_t able = 0; able < ipc::kStopAbleCount; ++able) {
    begin(kLongUs);
    say(kBatch, able);
    stop_.clear();
    meet(kMs);
    EXPECT_EQ(off(), able == ipc::kStopYes) << able;
  }
  begin(kLongUs, kGapUs, true);
  stop_.clear();
  meet(kMs);
  EXPECT_FALSE(off()) << "under MPS all clients would stand";
}

TEST_F(CoreStopsTest, WhatMeansNothingIsRejected) {
  begin(kLongUs);
  const uint64_t rejected = core_->stats().rejected;
  say(kBatch, ipc::kStopAbleCount);
  EXPECT_EQ(core_->stats().rejected, rejected + 1);
  meet(kMs);
  EXPECT_TRUE(off());
}

TEST_F(CoreStopsTest, WhoCannotBeStoppedAnyMoreStandsNoMore) {
  begin(kLongUs);
  meet(kMs);
  say(kBatch, ipc::kStopYes, true, 600);
  say(kBatch, ipc::kStopRefused);
  now_ += 30 * kMs;
  Event e(EventKind::kCompleted, now_, kBatch);
  e.done = {stream_seq_[kBatch], 0, 0, Evidence::kMarker};
  step(e);
  EXPECT_FALSE(core_->view().outlook(kBatch, now_, 0).busy);
}

TEST_F(CoreStopsTest, WhatAStopTakesIsLearnedAndOneSlowCallChangesLittle) {
  begin(1'500);
  for (int i = 0; i < 3; ++i) say(kBatch, ipc::kStopYes, true, 90'000);
  say(kBatch, ipc::kStopYes, false, 90'000);
  meet(500 * kUs);  // 1 ms is left
  EXPECT_TRUE(off());
  say(kBatch, ipc::kStopYes, true, 600);
  for (int i = 0; i < 50; ++i) say(kBatch, ipc::kStopYes, true, 3'000);
  say(kBatch, ipc::kStopYes, false, 3'000);
  now_ += kMs;
  done(kBatch, 0, Evidence::kMarker);
  service_done();
  pass(20 * kMs);
  stop_.clear();
  meet(500 * kUs);
  EXPECT_FALSE(off()) << "it is over before it would stand";
}

TEST_F(CoreStopsTest, SoManyStopsASecondAreOrderedAndNoMore) {
  begin(kLongUs);
  meet(100 * kUs);
  for (int i = 0; i < 1000; ++i) {  // 1 s: a request and a pause of a millisecond in all
    say(kBatch, ipc::kStopYes, off(), 600);
    now_ += 500 * kUs;
    service_done();
    say(kBatch, ipc::kStopYes, off(), 600);
    now_ += 500 * kUs;
    step(launch(EventKind::kPosted, kService, Admission::kLease));
  }
  EXPECT_LE(core_->stats().stops, 126u);
}

// Whatever clients do and whenever their shims answer: nobody stands for longer than the starvation
// bound, and nobody stands once those above are gone.
TEST_F(CoreStopsTest, NobodyStandsForEver) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Config config;
    config.starvation_us = 50'000;
    reset(config);
    stop_.clear();
    std::map<ClientId, TimeNs> since;
    std::map<ClientId, bool> asking;
    constexpr int kPriorities[] = {0, 4, 9, 9};
    for (ClientId id = 1; id <= 4; ++id) {
      attach(id, kPriorities[id - 1]);
      kernel(id, 0, 10 + id);
      say(id, ipc::kStopYes);
    }
    const auto look = [&] {
      for (auto& [id, d] : stop_) {
        if (!d.off) since.erase(id);
        if (d.off && !since.contains(id)) since[id] = now_;
        const TimeNs stood = d.off ? now_ - since[id] : 0;
        ASSERT_LE(stood, 52 * kMs) << "client " << id << ", seed " << seed;
      }
    };
    for (int i = 0; i < 4000; ++i) {
      const TimeNs until = now_ + static_cast<TimeNs>(random() % 700'000);
      for (TimeNs due = core_->next_deadline(); due < until; due = core_->next_deadline()) {
        now_ = std::max(now_ + kUs, due);
        step(Event(EventKind::kTick, now_, 0));
        look();
      }
      now_ = std::max(now_, until);
      const ClientId id = 1 + random() % 4;
      const auto what = random() % 10;
      if (what < 3 && allowed(id) == Allowance::kLeased) post(id);
      if (what < 3 && allowed(id) != Allowance::kLeased) ask(id);
      if (what >= 3 && what < 5) wait(id);
      if (what >= 5 && what < 8) done(id, static_cast<float>(random() % 30'000));
      if (what == 8 && stop_.contains(id)) say(id, ipc::kStopYes, stop_[id].off, 500);
      if (what == 9 && random() % 50 == 0) {
        stop_.erase(id);  // its shim lets it go by itself
        since.erase(id);
        say(id, ipc::kStopTraced);
      }
      if (what == 9) say(id, ipc::kStopYes, stop_.contains(id) && stop_[id].off);
      look();
    }
    EXPECT_GT(core_->stats().stops, 0u) << "seed " << seed;
    for (ClientId id = 1; id <= 4; ++id) done(id);
    for (int i = 0; i < 300; ++i) tick(kMs);  // whoever does not answer is deaf by then
    for (const auto& [id, d] : stop_) EXPECT_FALSE(d.off) << "client " << id << ", seed " << seed;
  }
}

// Its process was suspended as it stood, or cannot run.
TEST_F(CoreStopsTest, WhoseShimDoesNotAnswerHoldsNobodyUp) {
  for (const int priority : {5, 9}) {
    begin(kLongUs);
    attach(kThird, priority);
    kernel(kThird, 0, 33);
    say(kThird, ipc::kStopYes);
    step(launch(EventKind::kPosted, kThird, Admission::kSelfStarved));
    step(launch(EventKind::kPosted, kService, Admission::kLease));
    pass(900 * kUs);
    ASSERT_TRUE(off(kThird));
    say(kThird, ipc::kStopYes, true, 600);
    service_done();
    size_t granted = 0;
    for (int i = 0; i < 600; ++i) {
      pass(5 * kMs);
      step(launch(EventKind::kPosted, kService, Admission::kLease));
      pass(kMs);
      service_done();
      if (i < 300) continue;  // in two seconds what it had counts as over
      if (i == 300) granted = grants_.size();
      ask(kBatch);
      pass(60 * kUs);
      done(kBatch, 10);
    }
    EXPECT_EQ(grants_.size(), granted + 300) << "priority " << priority;
    EXPECT_FALSE(off(kThird));
    say(kThird, ipc::kStopYes, false, 600);
    step(launch(EventKind::kPosted, kThird, Admission::kSelfStarved));
    step(launch(EventKind::kPosted, kService, Admission::kLease));
    pass(900 * kUs);
    EXPECT_TRUE(off(kThird)) << "it answers again";
  }
}

TEST_F(CoreStopsTest, BypassAndAPolicyThatSaysNothingLetItGoOn) {
  begin(kLongUs);
  meet(kMs);
  ASSERT_TRUE(off());
  take(core_->set_bypass(true, now_));
  EXPECT_FALSE(off());
}

TEST_F(CoreStopsTest, WhoAloneHasWorkBelowHasAShortSlice) {
  begin(kLongUs);
  ASSERT_TRUE(stop_.contains(kBatch));
  EXPECT_EQ(stop_[kBatch].slice_us, 100u);
  attach(kThird, 9);
  kernel(kThird, 0, 33);
  say(kThird, ipc::kStopYes);
  ask(kThird);
  ASSERT_EQ(grants_.back().client, kThird);
  EXPECT_EQ(stop_[kThird].slice_us, 100u);
  EXPECT_EQ(stop_[kBatch].slice_us, 100u) << "no call for who has nothing on the GPU";
  step(launch(EventKind::kPosted, kBatch, Admission::kSelfStarved));
  EXPECT_EQ(stop_[kBatch].slice_us, 0u);
  EXPECT_EQ(stop_[kThird].slice_us, 0u);
}

TEST_F(CoreStopsTest, WhoLeavesWhileItStandsLeavesNothingBehind) {
  begin(kLongUs);
  meet(kMs);
  ASSERT_TRUE(off());
  step(Event(EventKind::kDetached, now_, kBatch));
  attach(kBatch, 9);
  kernel(kBatch, 0, 22);
  stop_.clear();
  now_ += kMs;
  service_done();
  pass(50 * kMs);
  meet(kMs);
  EXPECT_FALSE(off()) << "a new client said nothing yet";
}

}  // namespace
}  // namespace heddle::core
