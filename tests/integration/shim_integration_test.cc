// The built shim in a real process, between a fake driver and a fake daemon.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "ipc/kernel_id.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Admission;
using wire::Evidence;
using wire::Kind;

TEST_F(Shim, PassesThroughWhatItDoesNotWrap) {
  Application app({"HEDDLE_DISABLE=1"});
  EXPECT_EQ(app("init"), "0");
  EXPECT_EQ(app("call cuMemAlloc_v2 1 1"), "2");          // the driver's own answer
  EXPECT_EQ(app("call cuMemGetAddressRange_v2"), "500");  // CUDA_ERROR_NOT_FOUND
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("get fake_launches"), "1");
  EXPECT_FALSE(daemon_.pending(50)) << "disabled, and attached all the same";
}

TEST_F(Shim, ReplacesProcAddressesByPointer) {
  Application app({"HEDDLE_DISABLE=1"});
  EXPECT_EQ(app("proc cuLaunchKernel 0 cuLaunchKernel"), "same");
  EXPECT_EQ(app("proc cuLaunchKernel 2 cuLaunchKernel_ptsz"), "same");
  // Not wrapped, but it waits while memory is parked.
  EXPECT_EQ(app("proc cuMemHostGetFlags 0 cuMemHostGetFlags"), "same");
}

TEST_F(Shim, SaysWhoItIsWhenItAttaches) {
  Attached app(*this, kLease);
  EXPECT_EQ(daemon_.label, "a label");
  EXPECT_EQ(daemon_.priority, 7);
  EXPECT_NE(daemon_.command.find("shim_client an argument"), std::string::npos);
}

TEST_F(Shim, PostsLeasedLaunchesAndRegistersTheirKernelOnce) {
  Attached app(*this, kLease);
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("second"), "0");
  const auto kernels = daemon_.registrations();
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "first_kernel");
  EXPECT_EQ(kernels[0].id, ipc::kernel_id("first_kernel", {{8, 1, 1}, {128, 1, 1}, 0, 1}));
  EXPECT_EQ(kernels[1].name, "second_kernel");
  const auto launches = records(Kind::KERNEL);
  ASSERT_EQ(launches.size(), 3u);
  for (size_t i = 0; i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].admission, Admission::LEASE);
    EXPECT_EQ(launches[i].stream_seq, launches[0].stream_seq + i);
  }
  EXPECT_EQ(launches[2].kernel, kernels[1].index);
}

TEST_F(Shim, ReportsMeasuredDurationsUntilTheKernelIsKnown) {
  Attached app(*this, kLease);
  app("launch");
  app("sync");
  auto completions = records(Kind::COMPLETION);
  ASSERT_EQ(completions.size(), 2u);
  // The fake GPU is idle at the launch, so the time of the launch call is taken off its 250 µs.
  EXPECT_GT(completions[0].duration_us, 0);
  EXPECT_LE(completions[0].duration_us, 250);
  EXPECT_EQ(completions[0].kernel, 0u);
  EXPECT_EQ(completions[1].evidence, Evidence::SYNCHRONIZED);
  predict(250);
  app("launch");
  app("sync");
  completions = records(Kind::COMPLETION);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].duration_us, 0);
}

TEST_F(Shim, AnnouncesAWaitAndItsEnd) {
  Attached app(*this, kLease);
  predict(10);
  app("launch 64");
  const uint64_t seq = records(Kind::KERNEL).at(0).stream_seq;
  app("sync 64");
  const auto seen = daemon_.records();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].kind, Kind::WAIT);
  EXPECT_EQ(seen[1].kind, Kind::COMPLETION);
  EXPECT_EQ(seen[1].stream_seq, seq);
  EXPECT_EQ(seen[1].stream, seen[0].stream);
}

TEST_F(Shim, RingsForWhatTheSleepingDaemonWantsToHear) {
  Attached app(*this, kLease);
  predict(10);
  app("launch 64");
  daemon_.control().header.spin_us = 50;
  daemon_.rung();
  daemon_.control().sleeping = ipc::kWakeOnAsk;
  app("launch 64");
  app("sync 64");
  EXPECT_FALSE(daemon_.rung()) << "nobody is concerned";
  daemon_.control().devices[0].leased = kGate;
  app.send("launch 64");
  const auto ask = daemon_.wait_for_ask();
  EXPECT_TRUE(daemon_.rung(1000)) << "right after it has asked";
  daemon_.grant(ask);
  app.receive();
  daemon_.control().sleeping = ipc::kWakeOnAny;
  app("sync 64");
  EXPECT_TRUE(daemon_.rung());
}

TEST_F(Shim, AWaiterStaysAwakeForAsLongAsTheDaemonSays) {
  Attached app(*this, kGate);
  for (const uint32_t us : {60'000'000, 1}) {
    daemon_.control().header.spin_us = us;
    app.send("launch");
    const auto ask = daemon_.wait_for_ask();
    bool slept = false;
    for (int i = 0; i < 50 && !slept; ++i, usleep(1'000)) {
      for (auto& thread : daemon_.client().threads) slept |= thread.waiting != 0;
    }
    EXPECT_EQ(slept, us == 1);
    daemon_.grant(ask), app.receive();
  }
}

TEST_F(Shim, HoldsAGatedLaunchUntilItIsGranted) {
  Attached app(*this, kGate);
  predict(10);
  app.send("launch");
  const auto ask = daemon_.wait_for_ask();
  EXPECT_EQ(ask.admission, Admission::ASK);
  daemon_.grant(ask);
  EXPECT_EQ(app.receive(), "0");
  EXPECT_EQ(app("get fake_launches"), "1");
  EXPECT_TRUE(records(Kind::KERNEL).empty()) << "told once";
}

TEST_F(Shim, ReportsItsMarkersWhileItWaits) {
  Attached app(*this, kGate);
  predict(10);
  app("set fake_busy 1");
  app.send("launch");
  const auto first = daemon_.wait_for_ask();
  daemon_.grant(first);
  app.receive();
  // The marker behind the grant is complete when the next launch asks about it.
  app("set fake_busy 0");
  app.send("launch");
  const auto second = daemon_.wait_for_ask();
  std::vector<ipc::RecordFields> done;
  while (done.empty()) done = records(Kind::COMPLETION);
  EXPECT_EQ(done[0].evidence, Evidence::MARKER);
  EXPECT_EQ(done[0].stream_seq, first.stream_seq);
  daemon_.grant(second);
  app.receive();
}

TEST_F(Shim, LaunchesByItselfAfterTheStarvationBound) {
  Attached app(*this, kGate);
  daemon_.control().header.starvation_ms = 20;
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(daemon_.gates->floor[0], daemon_.wait_for_ask().ask_seq) << "it and what is before it";
  const auto self = static_cast<size_t>(Admission::SELF_STARVED);
  EXPECT_EQ(daemon_.client().counters.self[self], 1u);
}

TEST_F(Shim, DoesNotWaitForADaemonWhoseHeartStopped) {
  Attached app(*this, kGate);
  daemon_.control().header.starvation_ms = 60'000;
  daemon_.control().header.heartbeat_ns = 1;
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(daemon_.gates->floor[0], daemon_.wait_for_ask().ask_seq);
  const auto self = static_cast<size_t>(Admission::SELF_STALE);
  EXPECT_EQ(daemon_.client().counters.self[self], 1u);
}

TEST_F(Shim, LetsAWaiterGoWhenTheDaemonDies_AndAttachesAgain) {
  Attached app(*this, kGate);
  daemon_.control().header.starvation_ms = 60'000;
  app.send("launch");
  daemon_.wait_for_ask();
  daemon_.hang_up();
  EXPECT_EQ(app.receive(), "0");
  daemon_.accept(kLease);
  // Which registrations the old daemon saw does not matter: the new one gets all of them.
  std::vector<Registration> kernels;
  while (kernels.empty()) kernels = daemon_.registrations();
  EXPECT_EQ(kernels[0].name, "first_kernel");
  std::vector<ipc::RecordFields> launches;
  while (launches.empty()) {  // the new session is taken up at a launch
    EXPECT_EQ(app("launch"), "0");
    launches = records(Kind::KERNEL);
  }
  EXPECT_EQ(launches[0].admission, Admission::LEASE);
}

TEST_F(Shim, FailClosedWaitsForTheNextDaemonAndAsksItAgain) {
  Attached app(*this, kGate, ipc::kFailClosed);
  app.send("launch");
  daemon_.wait_for_ask();
  daemon_.hang_up();
  daemon_.accept(kGate, ipc::kFailClosed);
  const auto ask = daemon_.wait_for_ask();
  EXPECT_EQ(ask.stream_seq, 1u) << "the same launch";
  daemon_.grant(ask);
  EXPECT_EQ(app.receive(), "0");
  EXPECT_EQ(app("get fake_launches"), "1");
}

TEST_F(Shim, FailClosedLaunchesNothingWhileThereIsNoDaemon) {
  Attached app(*this, kLease, ipc::kFailClosed);
  daemon_.hang_up();
  EXPECT_TRUE(daemon_.pending(5000)) << "it attaches again";  // and so has left the session
  EXPECT_EQ(app("nccl"), "0") << "never held back";
  EXPECT_EQ(app("capture 9"), "0");
  EXPECT_EQ(app("launch 9"), "0") << "nothing runs yet";
  EXPECT_EQ(app("end_capture 9"), "0");
  EXPECT_EQ(app("fork"), "0") << "a child is nobody's client";
  const std::string before = app("get fake_launches");
  app.send("launch");
  daemon_.accept(kLease);
  EXPECT_EQ(app.receive(), "0");
  EXPECT_EQ(daemon_.records().size(), 1u) << "under the new session, not before";
  EXPECT_NE(app("get fake_launches"), before);
  daemon_.hang_up();
  EXPECT_TRUE(daemon_.pending(5000));
  EXPECT_EQ(app("launch"), "0") << "the last daemon's rule was fail-open";
}

TEST_F(Shim, FailClosedHoldsNothingThatOthersWaitForWhileThereIsNoDaemon) {
  Attached app(*this, kLease, ipc::kFailClosed);
  app("call cuStreamWriteValue32_v2 64");
  daemon_.hang_up();
  EXPECT_TRUE(daemon_.pending(5000));
  EXPECT_EQ(app("launch 64"), "0") << "noted in the session";
  app("call cuStreamWriteValue32_v2 128");
  EXPECT_EQ(app("launch 128"), "0") << "noted without";
  EXPECT_EQ(app("graph_nccl"), "0");
  app.send("launch 192");
  daemon_.accept(kLease);
  EXPECT_EQ(app.receive(), "0");
  EXPECT_EQ(daemon_.records().size(), 1u) << "held, and none of the others";
}

TEST_F(Shim, FailClosedGoesAsItIsWhenItsStreamCapturesAsTheNextDaemonComes) {
  Attached app(*this, kGate, ipc::kFailClosed);
  app("capture 128");
  app("set fake_capturing 0");  // that stream, not all
  app.send("@launch 64");
  daemon_.wait_for_ask();
  app("set fake_answers 0");
  daemon_.hang_up();
  while (app("get fake_asking") == "0") {  // until it has found no daemon
  }
  daemon_.accept(kGate, ipc::kFailClosed);
  while (daemon_.client().counters.threads_used == 0) app("sync");
  app("set fake_answers 1");
  while (app("get fake_answers") != "0" || app("get fake_asking") == "0") {  // until it found one
  }
  app("set fake_capturing 1");
  app("set fake_answers -1");
  EXPECT_EQ(app("result"), "0");
  EXPECT_EQ(app("get fake_launches"), "1");
  app("end_capture 128");
}

TEST_F(Shim, FailClosedOutlastsTheBoundAndAStoppedDaemon) {
  Attached app(*this, kGate, ipc::kFailClosed);
  daemon_.control().header.starvation_ms = 1;
  daemon_.control().header.heartbeat_ns = 1;
  app.send("launch");
  const auto ask = daemon_.wait_for_ask();
  EXPECT_FALSE(daemon_.pending(50)) << "50 bounds later it is still attached ...";
  daemon_.gates->word[0] = ipc::gate_open(0);
  EXPECT_FALSE(daemon_.pending(50));
  EXPECT_FALSE(app.answered()) << "... and waits for a word to itself";
  daemon_.grant(ask);
  EXPECT_EQ(app.receive(), "0");
}

TEST_F(Shim, FailClosedTakesNoLeaseOfAStoppedDaemon) {
  Attached app(*this, kLease, ipc::kFailClosed);
  EXPECT_EQ(app("launch"), "0");
  daemon_.control().header.heartbeat_ns = 1;
  expect_asks(app, "launch");
}

TEST_F(Shim, ARefusalEndsFailClosed) {
  Attached app(*this, kLease, ipc::kFailClosed);
  daemon_.hang_up();
  app.send("launch");
  daemon_.refuse();
  EXPECT_EQ(app.receive(), "0");
}

TEST_F(Shim, WhereTheGatesStandOpenItHasNoTicket) {
  Attached app(*this, kGate);
  predict(100);
  app("set fake_busy 1");
  daemon_.gates->word[0] = ipc::gate_open(0);
  daemon_.control().sleeping = ipc::kWakeOnAny;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(app("launch"), "0");
  EXPECT_TRUE(daemon_.rung()) << "nobody knows yet that it works";
  const auto seen = records(Kind::KERNEL);
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& record : seen) {
    EXPECT_EQ(record.admission, Admission::LEASE);
    EXPECT_EQ(record.ask_seq, 0u);
  }
  EXPECT_EQ(app("get fake_event_calls"), "0") << "what goes freely is hardly marked";
  daemon_.gates->word[0] = 0;
  app.send("launch");
  daemon_.grant(daemon_.wait_for_ask());
  EXPECT_EQ(app.receive(), "0");
}

TEST_F(Shim, TouchesNoEventWhileAnythingCaptures) {
  Attached app(*this, kGate);
  app("capture 64");
  const std::string before = app("get fake_event_calls");
  EXPECT_EQ(app("launch 64"), "0");  // neither held nor recorded
  EXPECT_EQ(app("get fake_event_calls"), before);
  EXPECT_TRUE(daemon_.records().empty());
  const auto self = static_cast<size_t>(Admission::SELF_CAPTURING);
  EXPECT_EQ(daemon_.client().counters.self[self], 1u);
  app("end_capture 64");
  expect_asks(app, "launch 64");
}

TEST_F(Shim, LaunchesAtThePriorityItIsTold_AndPlainlyWhenThatIsRefused) {
  Attached app(*this, kLease);
  predict(10);
  daemon_.control().devices[0].launch_priority = -5;
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("get fake_priority"), "-5");
  app("set fake_fail 1");
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("get fake_launches"), "2");
}

TEST_F(Shim, TellsOfALaunchThatTheDriverRefused) {
  Attached app(*this, kLease);
  predict(10);
  app("set fake_fail 701");
  EXPECT_EQ(app("launch"), "701");
  const auto done = records(Kind::COMPLETION);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].evidence, Evidence::FAILED);
}

TEST_F(Shim, NeverHoldsBackACollective) {
  Attached app(*this, kGate);
  EXPECT_EQ(app("nccl"), "0");
  EXPECT_EQ(records(Kind::KERNEL).at(0).admission, Admission::SELF_EXEMPT);
}

TEST_F(Shim, TellsStreamsApart) {
  Attached app(*this, kLease);
  app("launch 64");
  app("launch 128");
  app("launch");
  app("per_thread");
  std::vector<uint16_t> streams;
  for (const auto& launch : records(Kind::KERNEL)) streams.push_back(launch.stream);
  std::sort(streams.begin(), streams.end());
  EXPECT_EQ(std::unique(streams.begin(), streams.end()) - streams.begin(), 4);
  app("destroy 64");
  EXPECT_EQ(records(Kind::STREAM_END).size(), 1u);
}

TEST_F(Shim, AForkedChildPassesStraightThrough) {
  Attached app(*this, kGate);
  EXPECT_EQ(app("fork"), "0");  // would wait for a grant if it were managed
  EXPECT_TRUE(daemon_.records().empty());
}

TEST_F(Shim, ACancelledThreadLeavesNoLockAndNoPermitBehind) {
  Attached app(*this, kLease);
  EXPECT_EQ(app("cancelled 64"), "0");  // a new kernel: would leave the registry's lock
  EXPECT_EQ(app("cancelled 64"), "0");
  EXPECT_EQ(app("destroy 64"), "0");  // would wait for the lock of the stream's events
  EXPECT_EQ(app("call cuDevicePrimaryCtxReset_v2"), "0");  // would wait for the permit
}

TEST_F(Shim, ObeysBothBypasses) {
  Attached app(*this, kGate);
  daemon_.control().header.bypass = 1;
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(records(Kind::KERNEL).at(0).admission, Admission::BYPASS);
  daemon_.control().header.bypass = 0;
  app("bypass 1");
  EXPECT_EQ(app("launch"), "0");
  EXPECT_TRUE(daemon_.records().empty());
}

TEST_F(Shim, ARefusedClientLaunchesFreely) {
  Application app(environment());
  app.send("init");
  daemon_.refuse();
  EXPECT_EQ(app.receive(), "0");
  EXPECT_EQ(app("launch"), "0");
}

// An answer of another release may be of any length; what is wrong is told all the same.
TEST_F(Shim, SaysThatTheDaemonIsOfAnotherVersion_AndPassesThrough) {
  const std::string log = path_ + ".log";
  std::vector<std::string> environment = this->environment();
  environment.push_back("HEDDLE_LOG=" + log);
  for (const size_t bytes : {size_t{8}, sizeof(ipc::Attached), 2 * sizeof(ipc::Attached)}) {
    SCOPED_TRACE(bytes);
    unlink(log.c_str());
    std::vector<std::byte> packet(bytes, std::byte{0xff});  // whatever its flags mean there
    const uint32_t head[] = {ipc::kControlMagic, ipc::kProtocolVersion + 1};
    std::memcpy(packet.data(), head, sizeof head);
    Application app(environment);
    app.send("init");
    daemon_.answer(packet);
    EXPECT_EQ(app.receive(), "0");
    EXPECT_EQ(app("launch"), "0");
    std::ifstream stream(log);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_NE(text.find("install both from the same release"), std::string::npos) << text;
  }
  unlink(log.c_str());
}

TEST_F(Shim, StartsWithoutADaemon) {
  Application app({"HEDDLE_SOCKET=/nonexistent/heddle.sock"});
  EXPECT_EQ(app("init"), "0");
  EXPECT_EQ(app("launch"), "0");
  EXPECT_EQ(app("sync"), "0");
}

}  // namespace
}  // namespace heddle::shim_test
