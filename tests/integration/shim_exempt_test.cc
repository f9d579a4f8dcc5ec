// What the built shim never holds back, and what it records as activity (shim/DETAILS.md).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

using wire::Admission;
using wire::Kind;

// Every test here attaches to a closed gate: what were held would wait for ever.
class ShimExempt : public Shim {
 protected:
  ShimExempt() : app_(environment()) { start(app_, kGate); }

  void expect_exempt(const std::string& command, size_t launches = 1) {
    EXPECT_EQ(app_(command), "0");
    const auto seen = records(Kind::KERNEL);
    ASSERT_EQ(seen.size(), launches) << command;
    for (const auto& launch : seen) EXPECT_EQ(launch.admission, Admission::SELF_EXEMPT) << command;
  }

  Application app_;
};

TEST_F(ShimExempt, CollectivesByName) {
  expect_exempt("nccl");
  expect_exempt("symmetric");
  expect_exempt("reduce");
  expect_asks(app_, "launch");
}

TEST_F(ShimExempt, CollectivesAreNotTimedUnderABypassEither) {
  daemon_.control().header.bypass = 1;
  expect_exempt("nccl");
  EXPECT_EQ(app_("get fake_event_calls"), "0");
}

TEST_F(ShimExempt, GraphsWithACollective) {
  expect_asks(app_, "graph");
  expect_asks(app_, "graph_plain");
  // In the graph itself, in a child's child, and far down.
  for (const char* command : {"graph_nccl", "graph_child", "graph_many"}) {
    EXPECT_EQ(app_(command), "0");
    const auto seen = records(Kind::GRAPH);
    ASSERT_EQ(seen.size(), 1u) << command;
    EXPECT_EQ(seen[0].admission, Admission::SELF_EXEMPT) << command;
  }
}

TEST_F(ShimExempt, CooperativeKernelsOnSeveralDevices) {
  expect_exempt("multi", 2);
  EXPECT_EQ(app_("get fake_launches"), "2");
}

TEST_F(ShimExempt, CooperativeKernelsThatMayBeRanks) {
  expect_asks(app_, "coop 64");
  EXPECT_EQ(app_("call cuCtxEnablePeerAccess"), "0");
  expect_exempt("coop 64");
  expect_asks(app_, "launch 64");
}

TEST_F(ShimExempt, CooperativeKernelsOfWhoHandsMemoryToAnotherProcess) {
  expect_asks(app_, "coop 64");
  EXPECT_EQ(app_("call cuIpcGetMemHandle"), "0");
  expect_exempt("coop 64");
}

TEST_F(ShimExempt, CooperativeKernelsOfWhoOpensAnothersMemory) {
  EXPECT_EQ(app_("call cuIpcOpenMemHandle_v2"), "0");
  expect_exempt("coop 64");
}

TEST_F(ShimExempt, CooperativeKernelsOfWhoLetsAnotherDeviceIntoItsMemory) {
  EXPECT_EQ(app_("access 0"), "0");
  expect_asks(app_, "coop 64");
  EXPECT_EQ(app_("access 1"), "0");
  expect_exempt("coop 64");
}

TEST_F(ShimExempt, StreamsWhoseValuesOthersWaitFor) {
  expect_asks(app_, "launch 64");
  app_("call cuStreamWriteValue32_v2 64");
  expect_exempt("launch 64");
  expect_asks(app_, "launch 128");
}

TEST_F(ShimExempt, ALaunchThatAnotherThreadSeemsToWaitFor) {
  daemon_.control().header.starvation_ms = 50;
  app_("nccl 64");  // known, so that its synchronizing is seen
  const auto& starved =
      daemon_.client().counters.self[static_cast<size_t>(Admission::SELF_STARVED)];
  app_("launch 128");
  EXPECT_EQ(starved, 1u);
  app_("set fake_blocking 1");
  app_.send("@sync 64");
  while (records(Kind::WAIT).empty()) {
  }
  EXPECT_EQ(app_("launch 128"), "0");
  EXPECT_EQ(starved, 2u) << "held once more";
  for (int i = 0; i < 2; ++i) daemon_.wait_for_ask();  // theirs, which nobody answered
  daemon_.control().header.starvation_ms = 10'000;
  expect_exempt("launch 128");
  expect_asks(app_, "launch 192");
  app_("set fake_blocking 0");
  EXPECT_EQ(app_("result"), "0");
  expect_asks(app_, "launch 128");  // that thread waits no more
}

TEST_F(ShimExempt, ALaunchIntoACapture) {
  app_("capture 64");
  EXPECT_EQ(app_("launch 64"), "0");
  const auto self = static_cast<size_t>(Admission::SELF_CAPTURING);
  EXPECT_EQ(daemon_.client().counters.self[self], 1u);
}

TEST_F(ShimExempt, AForkedChild) { EXPECT_EQ(app_("fork"), "0"); }

// ---- activity ---------------------------------------------------------------------------------

bool begins(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

TEST_F(ShimExempt, EveryCopyAndMemsetIsActivity) {
  std::vector<std::string> names;
#define HEDDLE_ENTRY(name) names.push_back(#name);
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY
  const auto known = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  app_("nccl");  // so that the default stream is known
  app_("set fake_busy 1");
  size_t checked = 0;
  for (const std::string& name : names) {
    const bool async = name.find("Async") != std::string::npos;
    const bool moves = begins(name, "cuMemcpy") || begins(name, "cuMemset") ||
                       begins(name, "cuMemPrefetch") || begins(name, "cuMemBatchDecompress") ||
                       begins(name, "cuMemDiscardAndPrefetch");
    // The synchronous calls of 32-bit device addresses work nowhere any more.
    if (!moves || (!async && known(name + "_v2"))) continue;
    daemon_.records();
    app_("call " + name);
    const auto seen = daemon_.records();
    ASSERT_FALSE(seen.empty()) << name;
    const Kind kind = seen[0].kind;
    EXPECT_TRUE(kind == Kind::COPY || kind == Kind::MEMSET || (!async && kind == Kind::WAIT))
        << name;
    ++checked;
  }
  EXPECT_GE(checked, 80u);
}

}  // namespace
}  // namespace heddle::shim_test
