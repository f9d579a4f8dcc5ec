// Launches at gates, as the core is told of them.
#include "tests/unit/gate_queue_fixture.h"

namespace heddle::server {
namespace {

TEST_F(GateQueueTest, OneLaunchADeviceIsAsked) {
  add(1);
  add(2);
  add(1, 3);
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(next()->thread, kFirstDevice + 3);
  EXPECT_EQ(asked(), 0u);
  release();
  EXPECT_EQ(released(), 1u);
  EXPECT_EQ(released(3), 0u);
  EXPECT_EQ(asked(), 2u);
}

TEST_F(GateQueueTest, LaunchesGoInTheOrderOfTheirTicketsAcrossTheWrap) {
  for (const uint32_t ticket : {1u, 0xffffffffu, 2u, 0xfffffffeu}) add(ticket);
  // The first ticket of a page is 1; this one has been in use for long.
  page_->floor[0] = 0xfffffff0;
  queue_.set_open(0, true);
  for (const uint32_t ticket : {0xfffffffeu, 0xffffffffu, 1u, 2u}) {
    EXPECT_EQ(next(true)->seq, ticket);
  }
}

TEST_F(GateQueueTest, ALateTicketIsToldAsGone) {
  add(2);
  EXPECT_EQ(asked(), 2u);
  release();
  add(1);
  const auto late = next();
  EXPECT_EQ(late->source, Claim::Source::kRecord);
  EXPECT_EQ(asked(), 0u);
  EXPECT_EQ(released(), 2u);
}

TEST_F(GateQueueTest, AnEarlierTicketDoesNotTakeThePlaceOfTheAskedOne) {
  add(2);
  EXPECT_EQ(asked(), 2u);
  add(1);
  release();
  EXPECT_EQ(released(), 2u);
  EXPECT_EQ(next()->source, Claim::Source::kRecord);
}

TEST_F(GateQueueTest, OpenGatesWithdrawTheAskAndTellTheRest) {
  add(1);
  add(2);
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(next(true)->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(next(true)->source, Claim::Source::kRecord);
  EXPECT_EQ(next(true)->source, Claim::Source::kRecord);
  EXPECT_FALSE(next(true));
}

TEST_F(GateQueueTest, AReleaseThatWasNotAskedForIsIgnored) {
  add(1);
  release();
  EXPECT_EQ(released(), 0u);
}

TEST_F(GateQueueTest, LaunchesOfAUnitGoWithIt) {
  for (const uint32_t ticket : {1, 1, 2, 1}) add(ticket);
  EXPECT_EQ(asked(), 1u);
  release();
  EXPECT_EQ(next()->source, Claim::Source::kRecord);
  EXPECT_EQ(next()->source, Claim::Source::kRecord);
  EXPECT_EQ(asked(), 2u);
  add(1);
  release();
  EXPECT_EQ(told(), 1) << "whatever is read later";
}

TEST_F(GateQueueTest, OpenGatesAreOpenUntilTheyAreClosed) {
  for (uint32_t ticket = 1; ticket <= 5; ++ticket) add(ticket);
  EXPECT_EQ(asked(), 1u);
  open();
  EXPECT_TRUE(ipc::gate_is_open(released(), 5));
  EXPECT_TRUE(running());
  EXPECT_EQ(told(), 0) << "the others have not begun";
  for (const uint32_t over : {1, 2}) {
    end(over);
    EXPECT_EQ(next()->fields.kind, wire::Kind::COMPLETION);
    EXPECT_EQ(told(), 1);
  }
  queue_.set_open(0, false);
  EXPECT_FALSE(running());
  EXPECT_EQ(released(), 3u) << "the newest that may have begun";
  EXPECT_EQ(asked(), 4u);
}

// A kernel of ms that is let go too many is ms that somebody more important waits for.
TEST_F(GateQueueTest, NothingHasBegunBehindAUnitThatTakesLongerThanPredicted) {
  for (uint32_t ticket = 1; ticket <= 5; ++ticket) add(ticket, 0, 10'000);
  EXPECT_EQ(asked(), 1u);
  open();
  end(1);
  EXPECT_EQ(next()->fields.kind, wire::Kind::COMPLETION);
  EXPECT_EQ(told(), 1);
  now_ += 15'000'000;
  EXPECT_EQ(told(), 0);
  queue_.set_open(0, false);
  EXPECT_EQ(released(), 2u);
}

TEST_F(GateQueueTest, AUnitOfAnotherStreamBeginsWhileTheGatesAreOpen) {
  add(1);
  EXPECT_EQ(asked(), 1u);
  open();
  add(2, 0, 100, 1);
  add(3, 0, 100, 1);
  EXPECT_EQ(told(), 1);
  queue_.set_open(0, false);
  EXPECT_EQ(released(), 2u);
}

TEST_F(GateQueueTest, WhatTheGpuDoesNotTellOfIsTakenToHaveBegunAfterAWhile) {
  add(1);
  EXPECT_EQ(asked(), 1u);
  open();
  for (const uint32_t ticket : {2, 3, 4}) add(ticket);
  EXPECT_EQ(told(), 0);
  now_ += 1'200'000;
  EXPECT_EQ(told(), 1);
}

TEST_F(GateQueueTest, ClosedGatesThatNobodyOpenedLetNothingGo) {
  add(1);
  queue_.set_open(0, false);
  EXPECT_EQ(released(), 0u);
}

TEST_F(GateQueueTest, AGraphThatStandsInsideIsRecalledAndAskedForAgain) {
  add_graph(1, 20);
  add(2);
  EXPECT_EQ(asked(), 1u);
  open();
  queue_.set_open(0, false);
  EXPECT_FALSE(running());
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(asked(), 0u);
  release();
  EXPECT_TRUE(running());
  EXPECT_EQ(released(), 1u);
  EXPECT_EQ(asked(), 2u) << "as it may run beside";
  queue_.set_open(0, false);
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
  EXPECT_EQ(asked(), 1u);
}

TEST_F(GateQueueTest, AGraphThatIsReadOnceTheGatesAreClosedIsRecalledIfItsTicketLetItGo) {
  add(1);
  EXPECT_EQ(asked(), 1u);
  open();
  end(1);
  add_graph(2, 20);
  queue_.set_open(0, false);  // which may have begun
  EXPECT_EQ(released(), 2u);
  EXPECT_EQ(next()->fields.kind, wire::Kind::COMPLETION);
  EXPECT_EQ(next()->source, Claim::Source::kRecord);
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
  EXPECT_EQ(asked(), 2u);
  release();
  EXPECT_TRUE(running());
  EXPECT_FALSE(next());
}

TEST_F(GateQueueTest, TheGateInsideClosesBehindTheGraphThatWasLetGoAlone) {
  add_graph(1, 20);
  add_graph(2, 20);
  EXPECT_EQ(asked(), 1u);
  open();
  end(0);
  now_ += 10'000'000;
  EXPECT_EQ(told(), 1);
  queue_.set_open(0, false);
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
  EXPECT_EQ(asked(), 1u);
  release();
  EXPECT_TRUE(running());
  EXPECT_EQ(asked(), 2u);
  end(1);
  EXPECT_FALSE(running());
}

TEST_F(GateQueueTest, LeavingGatesRecallNothing) {
  add_graph(1, 20);
  EXPECT_EQ(next(true)->source, Claim::Source::kRecord);
  EXPECT_FALSE(next(true));
}

TEST_F(GateQueueTest, AGraphUnderWayIsNotForgottenForOthers) {
  add_graph(1, 20);
  EXPECT_EQ(asked(), 1u);
  open();
  for (uint32_t i = 0; i < 3 * ipc::kGateUnits; ++i) {
    add(2 + i);
    now_ += i == 0 ? 10'000'000 : 2'000'000;
    EXPECT_EQ(told(), 1);
  }
  queue_.set_open(0, false);
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
}

TEST_F(GateQueueTest, OpenGatesHoldNoMoreThanTheirQueueTakes) {
  queue_.set_open(0, true);
  for (uint32_t ticket = 1; ticket <= GateQueue::kMost; ++ticket) add(ticket);
  EXPECT_EQ(told(), GateQueue::kMost - 1024);
}

TEST_F(GateQueueTest, GatesStayOpenHoweverManyTicketsGoBy) {
  queue_.set_open(0, true);
  for (uint32_t ticket = 1; ticket < 5 * (ipc::kGateAhead / 4); ticket += ipc::kGateAhead / 4) {
    add(ticket);
    queue_.look();
    EXPECT_TRUE(ipc::gate_is_open(released(), ticket)) << ticket;
    now_ += 10'000'000;
    EXPECT_EQ(told(), 1);
  }
}

TEST_F(GateQueueTest, AGraphThatIsOverIsNotRecalled) {
  for (const bool told_by_gpu : {true, false}) {
    const uint32_t ticket = told_by_gpu ? 1 : 2;
    add_graph(ticket, 20);
    EXPECT_EQ(asked(), ticket);
    open();
    if (told_by_gpu) {
      end(ticket);
    } else {
      ipc::RecordFields completion;
      completion.stream_seq = ticket;
      queue_.over(completion);
    }
    queue_.set_open(0, false);
    if (told_by_gpu) {
      EXPECT_EQ(next()->fields.kind, wire::Kind::COMPLETION);
    }
    EXPECT_FALSE(next());
  }
}

TEST_F(GateQueueTest, ARecalledGraphThatTurnsOutToBeOverIsNotWaitedFor) {
  add_graph(1, 20);
  EXPECT_EQ(asked(), 1u);
  open();
  queue_.set_open(0, false);
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
  EXPECT_EQ(asked(), 1u);
  end(1);
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  EXPECT_FALSE(next());
}

TEST_F(GateQueueTest, TheQueueIsBounded) {
  for (uint32_t ticket = 1; ticket <= GateQueue::kMost; ++ticket) EXPECT_TRUE(add(ticket));
  EXPECT_FALSE(add(GateQueue::kMost + 1));
}

TEST_F(GateQueueTest, WhatIsNotSeenToGoOnIsAskedForNoMore) {
  for (uint32_t ticket = 1; ticket <= 3; ++ticket) add(ticket);
  EXPECT_EQ(asked(), 1u);
  release();
  EXPECT_EQ(asked(), 2u);
  now_ += 2'000'000'001;
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  const auto over = next();
  ASSERT_TRUE(over);
  EXPECT_EQ(over->fields.kind, wire::Kind::COMPLETION);
  EXPECT_EQ(over->fields.stream, ipc::kAllStreams);
  EXPECT_FALSE(next());
  EXPECT_EQ(released(), 3u);
  add(4);
  EXPECT_FALSE(next());
  EXPECT_EQ(released(), 4u);
  end(4);
  add(5);
  EXPECT_EQ(asked(), 5u) << "the GPU said that something is over";
}

// The 2 s are those for which it held others up, in all its turns.
TEST_F(GateQueueTest, AGraphThatIsRecalledAgainAndAgainIsAskedForNoMoreEither) {
  add_graph(1, 20);
  for (int turn = 1; turn <= 21; ++turn) {
    ASSERT_EQ(asked(), 1u) << turn;
    open();
    now_ += 99'000'000;
    queue_.set_open(0, false);
    const auto claim = next();
    ASSERT_TRUE(claim);
    if (turn == 21) {
      EXPECT_EQ(claim->fields.kind, wire::Kind::COMPLETION);
    } else {
      ASSERT_EQ(claim->source, Claim::Source::kRecall) << turn;
    }
    now_ += 10'000'000'000;
  }
  EXPECT_FALSE(next());
  EXPECT_TRUE(running());
  end(1);
  add(2);
  EXPECT_EQ(asked(), 2u) << "it was over after all";
}

TEST_F(GateQueueTest, OpenGatesOfWhoIsNotSeenToGoOnTellNothing) {
  queue_.set_open(0, true);
  add(1);
  EXPECT_EQ(told(), 1);
  for (uint32_t ticket = 2; ticket <= 500; ++ticket) add(ticket);
  now_ += 2'000'000'001;
  EXPECT_EQ(next()->fields.kind, wire::Kind::COMPLETION);
  EXPECT_EQ(told(), 0);
}

TEST_F(GateQueueTest, AGateThatItsProgramOpensIsCountedAndClosed) {
  add(1);
  add(2);
  EXPECT_EQ(asked(), 1u);
  page_->word[0] = ipc::gate_open(2);
  queue_.look();
  EXPECT_EQ(queue_.forced(), 2u);
  EXPECT_EQ(released(), 2u) << "what went has gone";
  page_->word[0] = ipc::gate_open(2);
  queue_.look();
  EXPECT_EQ(queue_.forced(), 2u) << "each launch once";
  EXPECT_EQ(released(), 2u);
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(told(), 2);
}

TEST_F(GateQueueTest, WhatIsUnderTheFloorHasGoneAndWhatIsBehindItWaits) {
  add(1);
  add(2);
  add(3);
  EXPECT_EQ(asked(), 1u);
  floor(2);
  EXPECT_EQ(released(), 2u);
  EXPECT_EQ(queue_.forced(), 0u);
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(next()->source, Claim::Source::kRecord);
  EXPECT_EQ(next()->source, Claim::Source::kRecord);
  EXPECT_EQ(asked(), 3u);
  queue_.set_open(0, true);
  queue_.set_open(0, false);
  EXPECT_EQ(released(), 2u) << "never below the floor";
}

TEST_F(GateQueueTest, UnderAnOpenFloorAllGoesAndThenItCloses) {
  std::atomic<uint32_t> posted{2};
  add(1);
  EXPECT_EQ(asked(), 1u);
  ipc::gate_open_floor(page_->floor[0], page_->word[0], page_->running[0], posted);
  queue_.look();
  add(2);
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(told(), 2);
  ipc::gate_close_floor(page_->floor[0], page_->word[0], page_->running[0], posted);
  queue_.look();
  EXPECT_EQ(released(), 2u);
  EXPECT_EQ(queue_.forced(), 0u);
  add(3);
  EXPECT_EQ(asked(), 3u);
}

TEST_F(GateQueueTest, WhatWentWhileTheDaemonWasSilentHasGone) {
  std::atomic<uint32_t> posted{2};
  add(1);
  EXPECT_EQ(asked(), 1u);
  ipc::gate_open_floor(page_->floor[0], page_->word[0], page_->running[0], posted);
  ipc::gate_close_floor(page_->floor[0], page_->word[0], page_->running[0], posted);
  add(2);
  add(3);  // posted when the floor was closed, and its gate stood open all the same
  queue_.look();
  EXPECT_EQ(released(), 3u);
  EXPECT_EQ(queue_.forced(), 0u) << "nobody is accused of it";
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(told(), 3);
}

TEST_F(GateQueueTest, AGraphThatStandsInsideGoesOnUnderTheFloor) {
  add_graph(1, 4);
  EXPECT_EQ(asked(), 1u);
  release();
  queue_.set_open(0, false);
  EXPECT_EQ(next()->source, Claim::Source::kRecall);
  EXPECT_EQ(asked(), 1u);
  EXPECT_FALSE(running());
  floor(1);
  EXPECT_TRUE(running());
  EXPECT_EQ(next()->source, Claim::Source::kWithdrawal);
  EXPECT_EQ(told(), 1);
}

// Its record comes behind that of a later ticket.
TEST_F(GateQueueTest, AGraphUnderTheFloorGoesOnThoughItIsHeardOfLate) {
  add(5);
  floor(5);
  EXPECT_FALSE(running()) << "nothing known stands inside";
  add_graph(4, 4);
  queue_.look();
  EXPECT_TRUE(running());
}

TEST_F(GateQueueTest, AGraphUnderTheFloorIsNotStoppedInside) {
  add_graph(1, 4);
  EXPECT_EQ(asked(), 1u);
  release();
  floor(1);
  queue_.set_open(0, false);
  EXPECT_TRUE(running());
  EXPECT_FALSE(next()) << "it is not recalled";
  end(1);
  EXPECT_FALSE(running()) << "it is over";
}

}  // namespace
}  // namespace heddle::server
