// The built shim's streams: whose work is done, with several threads, contexts and captures.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Evidence;
using wire::Kind;

uint64_t newest(const std::vector<ipc::RecordFields>& records) {
  uint64_t seq = 0;
  for (const auto& record : records) seq = std::max(seq, record.stream_seq);
  return seq;
}

TEST_F(Shim, TakesNothingForDoneThatAnotherThreadStillWaitsToLaunch) {
  Attached app(*this, kLease);
  predict(10);
  app("launch 64");
  daemon_.control().devices[0].leased = kGate;
  app.send("@launch 64");
  const auto ask = daemon_.wait_for_ask(1);
  daemon_.control().devices[0].leased = kLease;
  app("launch 64");
  app("sync 64");
  const auto launches = records(Kind::KERNEL);
  EXPECT_GT(launches.back().stream_seq, ask.stream_seq);
  app("sync 64");
  EXPECT_EQ(newest(records(Kind::COMPLETION)), ask.stream_seq - 1);
  daemon_.grant(ask, 0, 1);
  EXPECT_EQ(app("result"), "0");
  app("sync 64");
  EXPECT_EQ(newest(records(Kind::COMPLETION)), launches.back().stream_seq);
}

TEST_F(Shim, AThreadsOwnStreamEndsWithIt) {
  Attached app(*this, kLease);
  predict(10);
  app.send("@per_thread");
  app("result");
  app("end_worker");
  const auto old = records(Kind::KERNEL).at(0);
  app.send("@per_thread");  // a new thread in the same slot
  app("result");
  const auto seen = daemon_.records();
  const auto ended = std::find_if(seen.begin(), seen.end(),
                                  [](const auto& r) { return r.kind == Kind::STREAM_END; });
  ASSERT_NE(ended, seen.end());
  EXPECT_EQ(ended->stream, old.stream);
  const auto fresh =
      std::find_if(seen.begin(), seen.end(), [](const auto& r) { return r.kind == Kind::KERNEL; });
  ASSERT_NE(fresh, seen.end());
  EXPECT_NE(fresh->stream, old.stream) << "the old thread's work would be taken for done";
  app.send("@call cuStreamSynchronize_ptsz");
  app("result");
  for (const auto& done : records(Kind::COMPLETION)) EXPECT_EQ(done.stream, fresh->stream);
}

TEST_F(Shim, ReportsEachStreamOnTheDeviceOfItsContext) {
  Attached app(*this, kLease);
  predict(10);
  app("launch 64");
  app("launch 4096");  // of the second context, while the first is current
  const auto launches = records(Kind::KERNEL);
  EXPECT_EQ(launches.at(0).device, 0);
  EXPECT_EQ(launches.at(1).device, 1);
}

TEST_F(Shim, AWaitOnOneDeviceHoldsNothingOnAnother) {
  Attached app(*this, kLease);
  predict(10);
  app("launch 64");
  daemon_.control().devices[1].leased = kGate;
  app.send("@launch 4096");
  const auto ask = daemon_.wait_for_ask(1);
  EXPECT_EQ(ask.device, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(app("launch 64"), "0");
  app("sync 64");
  EXPECT_EQ(app("get fake_launches"), "4");
  daemon_.grant(ask, 0, 1);
  EXPECT_EQ(app("result"), "0");
}

// Each device counts from 1, and a thread waits in one place.
TEST_F(Shim, ATicketOfOneDeviceIsNoneOfAnother) {
  Attached app(*this, kGate);
  daemon_.control().devices[1].leased = kGate;
  predict(100);
  EXPECT_EQ(expect_asks(app, "launch").ask_seq, 1u);
  app("context 2");
  app.send("launch");
  const auto ask = daemon_.wait_for_ask();
  EXPECT_EQ(ask.device, 1);
  EXPECT_EQ(ask.ask_seq, 1u);
  EXPECT_FALSE(daemon_.pending(50));
  EXPECT_FALSE(app.answered());
  daemon_.grant(ask);
  EXPECT_EQ(app.receive(), "0");
}

TEST_F(Shim, MarksAStreamAgainOnceItsContextIsCurrent) {
  Attached app(*this, kLease);
  predict(0);  // it is measured
  app("launch 4096");
  EXPECT_EQ(app("get fake_event_calls"), "0") << "an event of another context";
  app("context 2");
  EXPECT_EQ(app("launch 4096"), "0");
  EXPECT_NE(app("get fake_event_calls"), "0");
  EXPECT_EQ(daemon_.client().counters.marker_errors, 0u);
}

TEST_F(Shim, UsesEventsAgainAfterOneFailed) {
  Attached app(*this, kLease);  // no kernel is known: each launch is measured
  app("set fake_event_errors 1");
  app("launch 64");
  EXPECT_EQ(daemon_.client().counters.marker_errors, 1u);
  const std::string before = app("get fake_event_calls");
  app("launch 64");
  EXPECT_EQ(app("get fake_event_calls"), before) << "the stream does not rest";
  for (int i = 0; i < 64; ++i) app("launch 64");
  EXPECT_NE(app("get fake_event_calls"), before);
  EXPECT_EQ(daemon_.client().counters.marker_errors, 1u);
}

TEST_F(Shim, SaysWhatIsDoneBeforeAProgrammaticDependentLaunchThatWaits) {
  Attached app(*this, kGate);
  predict(10);
  daemon_.control().devices[0].launch_priority = -5;
  uint64_t before = 0, done = 0;
  for (const char* launch : {"launch", "pdl", "launch", "pdl"}) {
    app.send(launch);
    const auto ask = daemon_.wait_for_ask();
    while (done < before) {
      for (const auto& completion : records(Kind::COMPLETION)) done = completion.stream_seq;
    }
    before = ask.stream_seq;
    daemon_.grant(ask);
    EXPECT_EQ(app.receive(), "0");
  }
  EXPECT_EQ(app("get fake_dependent"), "2") << "and it is launched as the application has it";
}

// ---- captures ---------------------------------------------------------------------------------

// True if synchronizing calls are reported: they are not while anything captures.
bool reports(Application& app, FakeDaemon& daemon) {
  daemon.records();
  app("sync 64");
  return !daemon.records().empty();
}

TEST_F(Shim, AContextDestroyedInACaptureEndsIt) {
  Attached app(*this, kLease);
  app("launch 64");
  app("capture 4096");
  EXPECT_FALSE(reports(app, daemon_));
  app("destroy_context 2");
  EXPECT_TRUE(reports(app, daemon_));
}

TEST_F(Shim, AThreadThatEndsInACaptureOfItsOwnStreamEndsIt) {
  Attached app(*this, kLease);
  app("launch 64");
  app.send("@capture_per_thread");
  EXPECT_EQ(app("result"), "0");
  EXPECT_FALSE(reports(app, daemon_));
  app("end_worker");
  app("set fake_capturing 0");
  EXPECT_TRUE(reports(app, daemon_));
}

TEST_F(Shim, MoreCapturesThanItListsEndAllTheSame) {
  Attached app(*this, kLease);
  app("launch 64");
  for (int i = 0; i < 70; ++i) app("capture " + std::to_string(1024 + 16 * i));
  for (int i = 0; i < 69; ++i) app("end_capture " + std::to_string(1024 + 16 * i));
  EXPECT_FALSE(reports(app, daemon_));
  app("end_capture " + std::to_string(1024 + 16 * 69));
  EXPECT_TRUE(reports(app, daemon_));
}

// ---- ends -------------------------------------------------------------------------------------

TEST_F(Shim, DestroyingNoStreamChangesNothing) {
  Attached app(*this, kLease);
  predict(10);
  app("launch");
  app("launch 64");
  EXPECT_EQ(app("destroy 0"), "0");
  EXPECT_TRUE(records(Kind::STREAM_END).empty());
  EXPECT_TRUE(reports(app, daemon_)) << "something seems to capture";
}

TEST_F(Shim, OnlyTheLastReleaseEndsThePrimaryContext) {
  Attached app(*this, kLease);
  app("retain");
  app("retain");
  app("launch 64");
  app("call cuDevicePrimaryCtxRelease_v2");
  EXPECT_TRUE(records(Kind::STREAM_END).empty());
  app("call cuDevicePrimaryCtxRelease_v2");
  EXPECT_EQ(records(Kind::STREAM_END).size(), 1u);
}

TEST_F(Shim, TellsOfEachLaunchThatTheDriverRefused) {
  Attached app(*this, kLease);
  predict(100);
  for (int i = 0; i < 6; ++i) {
    app("set fake_fail 701");
    EXPECT_EQ(app("launch"), "701");
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(app("launch"), "0");
  size_t launches = 0, failed = 0;
  for (const auto& record : daemon_.records()) {
    launches += record.kind == Kind::KERNEL;
    failed += record.evidence == Evidence::FAILED;
  }
  EXPECT_EQ(launches, 9u);
  EXPECT_EQ(failed, 6u);
}

TEST_F(Shim, GivesUpAPriorityThatTheDriverRefusesAKernel) {
  Attached app(*this, kLease);
  predict(10);
  daemon_.control().devices[0].launch_priority = -5;
  app("set fake_refusing 1");
  for (int i = 0; i < 12; ++i) EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("get fake_launches"), "12");
  EXPECT_EQ(app("get fake_prioritized"), "1");
  EXPECT_EQ(daemon_.client().counters.marker_errors, 1u);
  app("set fake_refusing 0");
  EXPECT_EQ(app("pdl"), "0");
  EXPECT_EQ(app("get fake_prioritized"), "2") << "another kernel keeps it, dependent or not";
}

// ---- descriptors and the loader -----------------------------------------------------------------

TEST_F(Shim, TouchesNoFileOfAProgramThatReusesItsDescriptors) {
  Attached app(*this, kLease);
  const std::string stolen = app("steal");
  EXPECT_NE(stolen, "0");
  daemon_.control().sleeping = ipc::kWakeOnAny;
  app("launch");  // would ring
  EXPECT_EQ(app("intact"), stolen);
  daemon_.hang_up();
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("intact"), stolen);
}

TEST_F(Shim, AttachesAgainWhenTheApplicationClosesItsDescriptors) {
  Attached app(*this, kGate);
  EXPECT_NE(app("steal"), "0");
  daemon_.control().sleeping = ipc::kWakeOnAny;
  EXPECT_EQ(app("launch"), "0") << "nobody hears the doorbell";
  EXPECT_TRUE(daemon_.pending(5000));
  daemon_.hang_up();
  daemon_.accept(kGate);
  while (daemon_.client().counters.threads_used == 0) app("sync");  // until it has taken it up
  expect_asks(app, "launch");
}

TEST_F(Shim, FailClosedAsksAgainWhenTheApplicationClosesItsDescriptors) {
  Attached app(*this, kGate, ipc::kFailClosed);
  EXPECT_NE(app("steal"), "0");
  daemon_.control().sleeping = ipc::kWakeOnAny;
  app.send("launch");
  ASSERT_TRUE(daemon_.pending(5000)) << "it attaches again";
  EXPECT_LE(daemon_.client().threads[0].ring_head, 1u) << "told once, not in a loop";
  daemon_.hang_up();
  daemon_.accept(kGate, ipc::kFailClosed);
  daemon_.grant(daemon_.wait_for_ask());
  EXPECT_EQ(app.receive(), "0");
}

TEST_F(Shim, LoadsADriverWhoseConstructorsCallCuda) {
  auto variables = environment();
  variables.push_back("FAKE_EARLY=1");
  Application app(variables);
  start(app, kLease);
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(records(Kind::KERNEL).size(), 1u);
}

}  // namespace
}  // namespace heddle::shim_test
