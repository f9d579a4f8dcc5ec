// What metrics say that a kernel uses, and which resource of an SM it uses up
// (model/interference.h).
#include <gtest/gtest.h>

#include "daemon/model/interference.h"

namespace heddle::core {
namespace {

const DeviceModel kH100;  // the defaults are one's

TEST(UseTest, MetricsSayHowLongBlocksRun) {
  ipc::KernelMetrics metrics{};
  metrics.set(ipc::metric_of("sm_active_pct"), 40);
  metrics.set(ipc::metric_of("us_profiled"), 20);
  EXPECT_FLOAT_EQ(use_of(metrics, 10, kH100).active, 0.8F);
  EXPECT_EQ(use_of(metrics, kH100).active, kUnknown) << "of which time is not known";
}

TEST(UseTest, MetricsSayTheUseThatTheyCameOf) {
  Use use;
  use[Channel::kIssue] = 0.25f;
  use[Channel::kTensor] = 0.5f;
  use[Channel::kDram] = 0.75f;
  const ipc::KernelMetrics metrics = metrics_of(use, kH100);
  EXPECT_NEAR(*metrics.get("dram_pct"), 0.75 * kH100.dram_peak_pct, 1e-6);
  EXPECT_FALSE(metrics.get("fp64_pct"));
  EXPECT_EQ(use_of(metrics, kH100).of, use.of);
}

TEST(UseTest, TheResourceThatForbidsCompanyIsNamed) {
  EXPECT_EQ(forbids_company({132, 1024, 64, 0, 0}, kH100), SlotLimit::kRegisters);
  EXPECT_EQ(forbids_company({264, 1024, 16, 0, 0}, kH100), SlotLimit::kThreads);
  EXPECT_EQ(forbids_company({132, 128, 32, 227 * 1024, 0}, kH100), SlotLimit::kSmem);
  EXPECT_EQ(forbids_company({132 * 32, 32, 16, 0, 0}, kH100), SlotLimit::kBlocks);
  EXPECT_EQ(forbids_company({132, 256, 32, 0, 0}, kH100), SlotLimit::kNone);
}

}  // namespace
}  // namespace heddle::core
