// The built shim while the daemon says that launches need no record (shim/admission/unobserved.h).
#include <gtest/gtest.h>

#include <string>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Evidence;
using wire::Kind;

class ShimUnobserved : public Shim {
 protected:
  ShimUnobserved() : app_(environment()) {}
  // A leased client whose kernel the daemon knows.
  void go_unobserved() {
    start(app_, kLease);
    predict(10);
    unobserved(1);
    EXPECT_EQ(launches_recorded("launch", 2), 1u) << "the first one tells of the kernel";
  }
  void unobserved(uint32_t word) { daemon_.control().header.unobserved = word; }
  size_t launches_recorded(const std::string& command, int times) {
    for (int i = 0; i < times; ++i) EXPECT_EQ(app_(command), "0");
    size_t count = 0;
    for (const auto& record : daemon_.records()) {
      count += record.kind == Kind::KERNEL || record.kind == Kind::GRAPH;
    }
    return count;
  }

  Application app_;
};

TEST_F(ShimUnobserved, LaunchesWithoutARecordAndEachOnce) {
  go_unobserved();
  EXPECT_EQ(launches_recorded("launch", 10), 0u);
  EXPECT_EQ(app_("get fake_launches"), "12");
  EXPECT_EQ(app_("sync"), "0");
  EXPECT_EQ(daemon_.client().counters.launches, 12u);
}

TEST_F(ShimUnobserved, LaunchesOfAThreadThatEndsAreCounted) {
  go_unobserved();
  unobserved(0);
  app_.send("@launch");
  EXPECT_EQ(app_("result"), "0");
  unobserved(1);
  app_.send("@burst 10");
  EXPECT_EQ(app_("result"), "0");
  EXPECT_EQ(app_("end_worker"), "0");
  EXPECT_EQ(app_("get fake_launches"), "13");
  EXPECT_EQ(app_("sync"), "0");
  EXPECT_EQ(daemon_.client().counters.unobserved, 11u);
  EXPECT_GE(daemon_.client().counters.launches, 12u)
      << "one may be told by who has that place next";
}

TEST_F(ShimUnobserved, RecordsAgainAsSoonAsTheDaemonSaysSo) {
  go_unobserved();
  unobserved(0);
  EXPECT_EQ(launches_recorded("launch", 10), 10u);
}

TEST_F(ShimUnobserved, GoesOnReportingWaits) {
  go_unobserved();
  EXPECT_EQ(app_("launch"), "0");
  EXPECT_EQ(app_("sync"), "0");
  const auto seen = daemon_.records();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].kind, Kind::WAIT);
  EXPECT_EQ(seen[1].evidence, Evidence::SYNCHRONIZED);
}

TEST_F(ShimUnobserved, RecordsKernelsThatItHasNotSeenAndCollectives) {
  go_unobserved();
  EXPECT_EQ(launches_recorded("second", 1), 1u);
  EXPECT_EQ(launches_recorded("second", 1), 0u);
  EXPECT_EQ(launches_recorded("nccl", 3), 3u);
}

TEST_F(ShimUnobserved, RecordsGraphsWithACollectiveAndNoOthers) {
  go_unobserved();
  EXPECT_EQ(launches_recorded("graph", 1), 1u);
  EXPECT_EQ(launches_recorded("graph_nccl", 2), 2u);
}

TEST_F(ShimUnobserved, EndsWithTheSession) {
  go_unobserved();
  daemon_.hang_up();
  daemon_.accept(kLease);
  while (launches_recorded("launch", 1) == 0) {  // the new session is taken up at a launch
  }
  EXPECT_EQ(launches_recorded("launch", 10), 10u);
}

TEST_F(ShimUnobserved, AForkedChildLaunches) {
  go_unobserved();
  EXPECT_EQ(launches_recorded("fork", 1), 0u);
}

TEST_F(ShimUnobserved, NotWhereLaunchesNeedADaemonsWord) {
  start(app_, kLease, ipc::kFailClosed);
  predict(10);
  daemon_.control().header.heartbeat_ns = INT64_MAX / 2;
  unobserved(1);
  EXPECT_EQ(launches_recorded("launch", 5), 5u);
}

}  // namespace
}  // namespace heddle::shim_test
