// The built shim where a launch has a lease and needs no more (shim/admission/leased.h): what it
// does is what a Turn does, which all launches of a fail-closed client take.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Kind;

class ShimLeased : public Shim {
 protected:
  // What the daemon hears of a program's launches, but for the times.
  using Heard =
      std::tuple<uint64_t, uint32_t, uint16_t, Kind, wire::Admission, wire::Evidence, uint8_t>;
  std::vector<Heard> hear(uint32_t flags) {
    Attached app(*this, kLease, flags);
    predict(10);
    for (const char* command : {"launch", "launch", "second", "launch 64", "per_thread", "pdl 64",
                                "nccl", "graph", "coop", "launch 64"}) {
      EXPECT_EQ(app(command), "0") << command;
    }
    app("set fake_fail 701");
    EXPECT_EQ(app("launch 64"), "701");
    EXPECT_EQ(app("launch 64"), "0");
    std::vector<Heard> heard;
    for (const auto& r : daemon_.records()) {
      heard.emplace_back(r.stream_seq, r.kernel, r.stream, r.kind, r.admission, r.evidence,
                         r.device);
    }
    daemon_.hang_up();
    return heard;
  }
};

TEST_F(ShimLeased, TellsTheDaemonWhatATurnDoes) {
  const std::vector<Heard> heard = hear(0);
  EXPECT_EQ(heard.size(), 13u) << "each launch, and that one failed";
  EXPECT_EQ(heard, hear(ipc::kFailClosed));
}

TEST_F(ShimLeased, TimesEvery127thLaunchAndLooksAtThePair) {
  Attached app(*this, kLease);
  predict(10);
  for (int i = 0; i < 126; ++i) app("launch");
  EXPECT_EQ(app("get fake_records"), "0");
  for (int i = 0; i < 17; ++i) app("launch");
  EXPECT_EQ(app("get fake_records"), "2");
  const auto done = records(Kind::COMPLETION);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].stream_seq, 127u);
  EXPECT_GT(done[0].duration_us, 0);
}

TEST_F(ShimLeased, AddsThePriorityToWhatTheApplicationAskedFor) {
  Attached app(*this, kLease);
  predict(10);
  daemon_.control().devices[0].launch_priority = -5;
  EXPECT_EQ(app("pdl 64"), "0");
  EXPECT_EQ(app("get fake_priority"), "-5");
  EXPECT_EQ(app("get fake_dependent"), "1");
  EXPECT_EQ(app("get fake_clusters"), "1");
}

TEST_F(ShimLeased, RemembersWhatTheDriverTakesAtNoPriority) {
  Attached app(*this, kLease);
  predict(10);
  daemon_.control().devices[0].launch_priority = -5;
  app("set fake_refusing 1");
  for (const char* command : {"launch", "launch", "pdl", "pdl"}) {
    EXPECT_EQ(app(command), "0") << command;
  }
  EXPECT_EQ(app("get fake_prioritized"), "2") << "each kernel once";
  EXPECT_EQ(app("get fake_launches"), "4");
  EXPECT_EQ(daemon_.client().counters.marker_errors, 2u);
}

TEST_F(ShimLeased, WakesTheDaemonBehindTheLaunch) {
  Attached app(*this, kLease);
  predict(10);
  app("launch");
  daemon_.rung();
  daemon_.control().header.spin_us = 50;
  daemon_.control().sleeping = ipc::kWakeOnAny;
  app("launch");
  EXPECT_TRUE(daemon_.rung());
}

TEST_F(ShimLeased, WakesTheDaemonOnceForEachNap) {
  Attached app(*this, kLease);
  predict(10);
  daemon_.control().header.spin_us = 0;  // no ring is left out for being soon behind another
  daemon_.control().sleeping = ipc::kWakeOnAny;
  while (daemon_.rung(50)) continue;  // a slow helper may still tell of the first launch
  for (const uint32_t nap : {7, 8}) {
    daemon_.control().naps = nap;
    for (int i = 0; i < 5; ++i) app("launch");
    EXPECT_EQ(daemon_.rings(), 1u);
  }
  daemon_.control().naps = 0;  // of an older daemon
  for (int i = 0; i < 5; ++i) app("launch");
  EXPECT_EQ(daemon_.rings(), 5u);
}

}  // namespace
}  // namespace heddle::shim_test
