// What the shim does to stop its process and to let it go on, against a driver that keeps what it
// was asked.
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <functional>
#include <thread>

#include "ipc/socket.h"
#include "tests/unit/stops_fixture.h"

namespace heddle::shim {
namespace {

using ipc::StopOrder;

class StopLever : public Stops {
 protected:
  StopLever() { beat(); }

  // That the next requests are one that switches the channels 5 and 6.
  static void expect_switched(bool off) {
    const std::vector<Asked> requests = asked();
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_EQ(requests[0].client, 1u);
    EXPECT_EQ(requests[0].object, 3u) << "the subdevice";
    EXPECT_EQ(requests[0].command, rm::kDisableChannels);
    EXPECT_EQ(requests[0].off, off);
    EXPECT_EQ(requests[0].channels, (std::vector<rm::Handle>{5, 6}));
  }
  void stop() {
    make_context();
    order({true, 0});
    look();
    expect_switched(true);
  }
};

TEST_F(StopLever, DoesWhatTheDaemonOrders) {
  EXPECT_TRUE(look().tell);
  EXPECT_EQ(able(), ipc::kStopNoChannels);
  make_context();
  EXPECT_TRUE(look().tell);
  EXPECT_EQ(client_->threads[ipc::kDevices - 1].stop_able, ipc::kStopYes);
  EXPECT_FALSE(look().tell);
  EXPECT_TRUE(asked().empty());

  order({true, 0}, 3);  // whichever number the GPU has there
  const Lever::Next stopped = look();
  EXPECT_TRUE(stopped.tell);
  EXPECT_LE(stopped.wait_ns, 50'000'000);
  expect_switched(true);
  EXPECT_EQ(done(), 1u);
  EXPECT_EQ(client_->threads[3].stop_done, 1u);

  EXPECT_FALSE(look().tell);
  EXPECT_TRUE(asked().empty()) << "once";

  order({}, 3);
  EXPECT_TRUE(look().tell);
  expect_switched(false);
  EXPECT_EQ(done(), 2u);
  EXPECT_EQ(look().wait_ns, 1'000'000'000);
}

TEST_F(StopLever, WhatCannotBeDoneIsNotSaidToBe) {
  order({true, 0});
  look();
  EXPECT_EQ(done(), 0u);
  order({});
  look();
  EXPECT_EQ(done(), 2u) << "nothing is off";
  EXPECT_TRUE(asked().empty());
}

TEST_F(StopLever, SetsSlicesAndTheDriversOwnAgain) {
  make_context();
  order({false, 200});
  look();
  std::vector<Asked> requests = asked();
  ASSERT_EQ(requests.size(), 1u) << "the copy engine's group keeps its own";
  EXPECT_EQ(requests[0].object, 4u);
  EXPECT_EQ(requests[0].command, rm::kSetTimeslice);
  EXPECT_EQ(requests[0].us, 200u);
  EXPECT_EQ(done(), 1u);

  set_slice(4, 3'000);  // the program's own, meanwhile
  look();
  requests = asked();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].us, 200u);

  order({});
  look();
  requests = asked();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].us, 3'000u);
}

TEST_F(StopLever, AsksForASliceThatNobodySet) {
  alloc(0, 0, 1, rm::kRootClient);
  make_device(1, 2, 0);
  alloc(1, 2, 3, rm::kSubdevice);
  make_group(2, 4, kGr0);
  alloc(1, 4, 5, kHopperChannel);
  order({false, 100});
  look();
  const std::vector<Asked> requests = asked();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].command, rm::kGetTimeslice);
  order({});
  look();
  EXPECT_EQ(asked().at(0).us, 1'500u) << "as the driver said";
}

TEST_F(StopLever, AStopEndsWithTheDaemonsHeartbeatAndComesBackWithIt) {
  stop();
  now_ns_ += ipc::kHeartbeatStaleNs;
  look();
  EXPECT_TRUE(asked().empty());
  now_ns_ += 1;
  const Lever::Next next = look();
  expect_switched(false);
  EXPECT_LE(next.wait_ns, 50'000'000) << "it may come back";
  beat();
  look();
  expect_switched(true);
}

TEST_F(StopLever, AStopEndsWithTheSession) {
  stop();
  lever_.look(nullptr, nullptr, now_ns_);
  expect_switched(false);
}

TEST_F(StopLever, AStopEndsWhereTheProcessMayNotBeStoppedAnyMore) {
  stop();
  alloc(1, 4, 9, 0xdb6f);
  look();
  expect_switched(false);
  EXPECT_EQ(able(), ipc::kStopUnknownClass);
}

TEST_F(StopLever, AStopEndsUnderABypass) {
  stop();
  heddle_shim_bypass = 1;
  look();
  heddle_shim_bypass = 0;
  expect_switched(false);
}

TEST_F(StopLever, WhatIsMadeMeanwhileIsStoppedToo) {
  stop();
  alloc(1, 4, 9, kHopperChannel);
  look();
  const std::vector<Asked> requests = asked();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_TRUE(requests[0].off);
  EXPECT_EQ(requests[0].channels, (std::vector<rm::Handle>{5, 6, 9}));
}

TEST_F(StopLever, ARefusedStopIsTakenBackTriedAgainAndGivenUp) {
  make_context();
  order({true, 0});
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(able(), ipc::kStopRefused) << i;
    refuse(1);
    EXPECT_LE(look().wait_ns, 50'000'000);
    const std::vector<Asked> requests = asked();
    ASSERT_EQ(requests.size(), 2u) << i;
    EXPECT_TRUE(requests[0].off);
    EXPECT_FALSE(requests[1].off) << "some may be off";
    EXPECT_EQ(done(), 0u);
  }
  look();
  EXPECT_EQ(able(), ipc::kStopRefused);
  EXPECT_TRUE(asked().empty());
}

TEST_F(StopLever, ARefusalOfAnObjectThatJustWentIsNone) {
  make_context();
  order({true, 0});
  refuse(1);
  look();
  free(5);
  asked();
  look();
  EXPECT_EQ(asked().at(0).channels, (std::vector<rm::Handle>{6}));
  EXPECT_EQ(done(), 1u);
  EXPECT_EQ(able(), ipc::kStopYes);
}

TEST_F(StopLever, LetsGoForAsLongAsTheDriverRefusesThat) {
  stop();
  order({});
  for (int i = 0; i < 5; ++i) {
    refuse(1);
    EXPECT_LE(look().wait_ns, 50'000'000);
    EXPECT_EQ(asked().size(), 1u);
    EXPECT_EQ(done(), 1u);
  }
  look();
  EXPECT_EQ(asked().size(), 1u);
  EXPECT_EQ(done(), 2u);
}

TEST_F(StopLever, AsksNothingOfADescriptorThatIsNoLongerTheClients) {
  make_context();
  const int other = open("/dev/zero", O_RDWR | O_CLOEXEC);
  dup2(other, fd_);
  close(other);
  order({true, 0});
  look();
  EXPECT_TRUE(asked().empty());
  look();
  EXPECT_EQ(able(), ipc::kStopNoChannels);
}

// ---- the thread ---------------------------------------------------------------------------------

class StopThread : public StopLever {
 protected:
  StopThread() {
    make_context();
    session_.control = control_.get();
    session_.client = client_.get();
    now_ns_ = now_ns() + 3'600'000'000'000;  // a daemon that lives on
    beat();
    attach();
  }
  ~StopThread() override {
    detach();
    const HeldOn until_all_goes_on;
  }
  void attach() {
    session_.detached = false;
    guard().current = &session_;
    lever_attached(session_);
  }
  void detach() {
    session_.detached = true;
    guard().current = nullptr;
    wake_lever();
    EXPECT_TRUE(eventually([&] { return !lever_inside(session_); }));
  }
  static bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 10'000; ++i) {
      if (holds()) return true;
      poll(nullptr, 0, 1);
    }
    return false;
  }
  void order_and_wait(StopOrder wanted) {
    order(wanted);
    ipc::futex_wake(&control_->stop_order);
    ASSERT_TRUE(eventually([&] { return done() == control_->stop_order; }));
  }

  Session session_;
};

TEST_F(StopThread, AnOrderWakesIt) {
  order_and_wait({true, 0});
  expect_switched(true);
  order_and_wait({});
  expect_switched(false);
}

TEST_F(StopThread, LetsGoBeforeItLeavesTheSessionOrRightAfter) {
  order_and_wait({true, 0});
  expect_switched(true);
  detach();
  std::vector<Asked> requests;
  ASSERT_TRUE(eventually([&] { return !(requests = asked()).empty(); }));
  EXPECT_FALSE(requests[0].off);
}

TEST_F(StopThread, WhoHoldsTheProcessOnWaitsUntilItGoes) {
  order_and_wait({true, 300});
  asked();
  {
    const HeldOn held;
    std::vector<Asked> requests = asked();
    ASSERT_EQ(requests.size(), 2u);
    EXPECT_FALSE(requests[0].off);
    EXPECT_EQ(requests[1].us, 2'048u);
    order({true, 0});
    ipc::futex_wake(&control_->stop_order);
    const HeldOn another;
    EXPECT_TRUE(asked().empty());
  }
  ASSERT_TRUE(eventually([&] { return done() == control_->stop_order; })) << "may be stopped again";
  expect_switched(true);
}

TEST_F(StopThread, StandsOnThroughACheckpoint) {
  order_and_wait({true, 0});
  expect_switched(true);
  hold_on_for_checkpoint(true);
  expect_switched(false);
  hold_on_for_checkpoint(true);
  hold_on_for_checkpoint(false);
  ASSERT_TRUE(eventually([&] { return !asked().empty(); }));
  hold_on_for_checkpoint(false);
}

TEST_F(StopThread, RingsADaemonThatSleeps) {
  int bell[2];
  ASSERT_EQ(pipe(bell), 0);
  detach();
  session_.doorbell = bell[1];
  session_.doorbell_id = file_id(bell[1]);
  attach();
  order_and_wait({true, 0});
  pollfd rung{bell[0], POLLIN, 0};
  EXPECT_EQ(poll(&rung, 1, 0), 0) << "it is awake";
  control_->sleeping = ipc::kWakeOnAsk;
  order_and_wait({});
  EXPECT_EQ(poll(&rung, 1, 10'000), 1);
  detach();
  session_.doorbell_id = {};
  attach();
  order_and_wait({true, 0});
  EXPECT_TRUE(eventually([&] { return session_.detached.load(); })) << "the number is another's";
  detach();
  close(bell[0]);
  close(bell[1]);
}

TEST_F(StopThread, ATracedProcessIsNotStopped) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a child of several threads may start none";
#endif
  ASSERT_TRUE(eventually([&] { return able() == ipc::kStopYes; }));
  const pid_t child = fork();
  if (child == 0) {
    client_->threads[0].stop_able = 0;
    forget_lever();
    lever_attached(session_);
    if (!eventually([&] { return able() == ipc::kStopYes; })) _exit(1);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(0);  // it may not
    look_for_tracer(now_ns());
    _exit(eventually([&] { return able() == ipc::kStopTraced; }) ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace heddle::shim
