// The built shim while the daemon says that launches may be told in rows (shim/admission/rows.h).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ipc/sparse.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Kind;

class ShimSparse : public Shim {
 protected:
  ShimSparse() : app_(environment()) {}
  // A leased client, predicted to be done with each kernel before the next is launched.
  void go_sparse(float predicted_us = 0.01F) {
    start(app_, kLease);
    predict(predicted_us);
    sparse(ipc::pack_sparse(0));
    EXPECT_EQ(app_("launch"), "0") << "it tells of the kernel";
    daemon_.records();
  }
  void sparse(uint32_t word) { daemon_.control().header.sparse = word; }
  // That many launches a few µs apart, all of which must be told of in one way or the other.
  std::vector<ipc::RecordFields> burst(int launches, const std::string& command = "burst") {
    EXPECT_EQ(app_(command + " " + std::to_string(launches)), "0");
    EXPECT_EQ(app_("sync"), "0");
    std::vector<ipc::RecordFields> told;
    uint32_t all = 0;
    for (const auto& record : daemon_.records()) {
      all += record.untold + (record.kind == Kind::KERNEL);
      if (record.kind == Kind::KERNEL || record.kind == Kind::WAIT) told.push_back(record);
    }
    EXPECT_EQ(all, static_cast<uint32_t>(launches));
    return told;
  }
  // How many of a burst are told. On a busy machine a pause may end each row: the best of some.
  size_t told_at_best(int launches, const std::string& command = "burst") {
    size_t least = SIZE_MAX;
    for (int i = 0; i < 20; ++i) least = std::min(least, burst(launches, command).size());
    return least;
  }

  Application app_;
};

TEST_F(ShimSparse, MostOfARowIsUntoldAndAllOfItIsLaunched) {
  go_sparse();
  const std::string before = app_("get fake_launches");
  EXPECT_LT(told_at_best(500), 500u * 3 / ipc::kUntoldMost + 5);
  EXPECT_EQ(std::stoi(app_("get fake_launches")), std::stoi(before) + 20 * 500);
  EXPECT_EQ(daemon_.client().counters.launches, 20u * 500 + 1);
}

TEST_F(ShimSparse, TheFirstOfARowIsToldAndSaysWhatMayFollow) {
  go_sparse();
  bool any = false;
  for (int i = 0; i < 20; ++i) {
    const auto told = burst(50);
    EXPECT_EQ(told.front().kind, Kind::KERNEL);
    EXPECT_EQ(told.front().untold, 0u);
    any |= told.front().may_follow == ipc::kUntoldMost;
  }
  EXPECT_TRUE(any);
}

TEST_F(ShimSparse, AWaitSaysWhichKernelWasTheLast) {
  go_sparse();
  bool any = false;
  for (int i = 0; i < 50; ++i) {
    const auto told = burst(20);
    if (told.back().untold == 0) continue;
    any = true;
    EXPECT_EQ(told.back().kind, Kind::WAIT);
    EXPECT_EQ(told.back().kernel, told.front().kernel);
  }
  EXPECT_TRUE(any);
}

TEST_F(ShimSparse, AWaitForTheWholeContextEndsTheRow) {
  go_sparse();
  told_at_best(100);
  bool any = false;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(app_("burst 10"), "0");
    EXPECT_EQ(app_("call cuCtxSynchronize"), "0");
    uint32_t untold = 0;
    for (const auto& record : daemon_.records()) {
      if (record.kind == Kind::WAIT) untold = record.untold;
    }
    any |= untold != 0;
    EXPECT_EQ(app_("launch"), "0");
    EXPECT_EQ(records(Kind::KERNEL).size(), 1u) << "the next is told";
  }
  EXPECT_TRUE(any);
}

TEST_F(ShimSparse, TellsEachWhereTheDaemonDoesNotSaySo) {
  go_sparse();
  sparse(0);
  EXPECT_EQ(told_at_best(200), 201u);
}

TEST_F(ShimSparse, TellsWhatWasUntoldWhenTheDaemonWantsToHearAll) {
  go_sparse();
  told_at_best(100);
  EXPECT_EQ(app_("burst 10"), "0");
  uint32_t all = 0;
  for (const auto& record : daemon_.records()) all += record.untold + 1;
  sparse(0);
  EXPECT_EQ(app_("launch"), "0");
  const auto told = daemon_.records();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(all + told[0].untold, 10u);
  EXPECT_EQ(told[0].may_follow, 0u);
}

TEST_F(ShimSparse, TellsEachOfWhatTheDeviceIsNotDoneWith) {
  go_sparse(1000);
  EXPECT_EQ(told_at_best(200), 201u);
}

TEST_F(ShimSparse, TellsEachBehindWhichTheHostPauses) {
  go_sparse();
  EXPECT_EQ(told_at_best(20, "slow_burst"), 21u);
}

TEST_F(ShimSparse, UntoldLaunchesHaveThePriorityToo) {
  go_sparse();
  daemon_.control().devices[0].launch_priority = -5;
  sparse(ipc::pack_sparse(-5));
  EXPECT_LT(told_at_best(500), 400u);
  EXPECT_EQ(app_("get fake_priority"), "-5");
  EXPECT_EQ(app_("get fake_prioritized"), std::to_string(20 * 500));
}

TEST_F(ShimSparse, ALaunchThatTheDriverTakesAtNoPriorityGoesOnceWithoutIt) {
  go_sparse();
  daemon_.control().devices[0].launch_priority = -5;
  sparse(ipc::pack_sparse(-5));
  told_at_best(100);
  app_("set fake_refusing 1");
  const int before = std::stoi(app_("get fake_launches"));
  burst(100);
  EXPECT_EQ(std::stoi(app_("get fake_launches")), before + 100);
}

TEST_F(ShimSparse, ACaptureIsNotOfTheRow) {
  go_sparse();
  daemon_.control().devices[0].launch_priority = -5;
  sparse(ipc::pack_sparse(-5));
  told_at_best(100);
  EXPECT_EQ(app_("burst 5"), "0");
  EXPECT_EQ(app_("capture 64"), "0");
  const std::string before = app_("get fake_prioritized");
  EXPECT_EQ(app_("burst 20"), "0");
  EXPECT_EQ(app_("get fake_prioritized"), before) << "they go as the application made them";
}

}  // namespace
}  // namespace heddle::shim_test
