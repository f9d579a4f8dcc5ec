// What a graph uses, by its kernels.
#include "daemon/model/graph_use.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

ipc::KernelMetrics metrics(double dram_pct, double ipc) {
  ipc::KernelMetrics all{};
  all.set(ipc::metric_of("dram_pct"), dram_pct);
  all.set(ipc::metric_of("ipc"), ipc);
  return all;
}

class GraphUseTest : public ::testing::Test {
 protected:
  double value(const GraphUse& graph, const char* key) {
    return graph.metrics.get(key).value_or(-1);
  }

  const DeviceModel device_{};
  const ipc::KernelMetrics copy_ = metrics(60, 1), gemm_ = metrics(10, 3);
};

TEST_F(GraphUseTest, IsTheMeanOfItsKernelsByTheirTime) {
  const GraphPart parts[] = {{&copy_, 10, 3}, {&gemm_, 70, 1}};
  const GraphUse graph = graph_use(parts, device_);
  EXPECT_NEAR(value(graph, "dram_pct"), 25, 1e-9);
  EXPECT_NEAR(value(graph, "ipc"), 2.4, 1e-9);
  EXPECT_NEAR(graph.use[Channel::kDram], 25 / device_.dram_peak_pct, 1e-6);
  EXPECT_EQ(graph.unknown, 0);
  EXPECT_EQ(value(graph, "unknown_pct"), 0);
}

TEST_F(GraphUseTest, TellsTheShareOfItsTimeThatNobodyMeasured) {
  const GraphPart parts[] = {{&copy_, 10, 3}, {nullptr, 10, 1}};
  const GraphUse graph = graph_use(parts, device_);
  EXPECT_NEAR(value(graph, "dram_pct"), 60, 1e-9) << "the mean is of the known part";
  EXPECT_NEAR(graph.unknown, 0.25, 1e-9);
  EXPECT_NEAR(value(graph, "unknown_pct"), 25, 1e-9);
}

TEST_F(GraphUseTest, AKernelThatNobodyTimedIsAsLongAsTheOthers) {
  const GraphPart parts[] = {{&copy_, 10, 2}, {&gemm_, 40, 1}, {nullptr, 0, 1}};
  EXPECT_NEAR(graph_use(parts, device_).unknown, 0.25, 1e-9);
  const GraphPart untimed[] = {{&copy_, 0, 3}, {&gemm_, 0, 1}};
  EXPECT_NEAR(value(graph_use(untimed, device_), "dram_pct"), 47.5, 1e-9);
}

TEST_F(GraphUseTest, LacksWhatOneOfItsMeasuredKernelsLacks) {
  ipc::KernelMetrics dram{};
  dram.set(ipc::metric_of("dram_pct"), 10);
  const GraphPart parts[] = {{&copy_, 10, 1}, {&dram, 10, 1}};
  const GraphUse graph = graph_use(parts, device_);
  EXPECT_NEAR(value(graph, "dram_pct"), 35, 1e-9);
  EXPECT_FALSE(graph.metrics.get("ipc"));
  EXPECT_EQ(graph.use[Channel::kIssue], kUnknown);
}

TEST_F(GraphUseTest, OfUnmeasuredKernelsIsUnknown) {
  ipc::KernelMetrics sizes{};
  sizes.set(ipc::metric_of("us_on_all"), 10);
  const GraphPart parts[] = {{&sizes, 10, 1}, {nullptr, 0, 5}};
  for (const GraphUse& graph : {graph_use(parts, device_), graph_use({}, device_)}) {
    EXPECT_FALSE(graph.use.any_known());
    EXPECT_EQ(value(graph, "unknown_pct"), 100);
  }
}

TEST_F(GraphUseTest, HasNoTimesOrSizesOfItsKernels) {
  ipc::KernelMetrics whole = copy_;
  whole.set(ipc::metric_of("us_on_all"), 10);
  whole.set(ipc::metric_of("dram_read_mb"), 10);
  const GraphPart parts[] = {{&whole, 10, 1}};
  const GraphUse graph = graph_use(parts, device_);
  EXPECT_FALSE(graph.metrics.get("us_on_all"));
  EXPECT_FALSE(graph.metrics.get("dram_read_mb"));
}

}  // namespace
}  // namespace heddle::core
