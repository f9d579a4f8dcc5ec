// What the built shim leaves in the log of errors that the driver keeps for the application.
#include <gtest/gtest.h>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

class ShimInTheLog : public Shim {
 protected:
  void expect_unrefused(Application& app, const std::string& command,
                        const std::string& answer = "0") {
    EXPECT_EQ(app(command), answer) << command;
    EXPECT_EQ(app("get fake_refused"), "0") << command;
    app("set fake_refused 0");
  }
  // A launch that no kernel can be stands there once, as it does without the shim.
  void expect_once(Application& app) {
    for (const char* launch : {"block 4096", "shared 1048576"}) {
      app("set fake_refused 0");
      EXPECT_EQ(app(launch), "1") << launch;
      EXPECT_EQ(app("get fake_refused"), "1") << launch;
    }
  }
};

TEST_F(ShimInTheLog, CleanWorkOfEveryKindIsRefusedNothing) {
  for (const uint32_t leased : {kLease, kGate}) {
    Attached app(*this, leased);
    daemon_.gates->word[0] = ipc::gate_open(0);
    predict(10);
    for (const char* command : {"retain",
                                "library_kernel",
                                "library_kernel 1",
                                "launch 64",
                                "second 72",
                                "per_thread",
                                "coop 64",
                                "pdl 80",
                                "nccl 88",
                                "memset 64",
                                "graph_make",
                                "graph_run 64",
                                "graph_make_many",
                                "graph_run 72",
                                "graph_make_while",
                                "graph_run",
                                "graph_make_alloc",
                                "graph_run",
                                "graph_make_updatable",
                                "graph_run",
                                "graph_far",
                                "capture 64",
                                "launch 64",
                                "library_kernel",
                                "end_capture 64",
                                "sync 64",
                                "call cuCtxSynchronize",
                                "destroy 64"}) {
      expect_unrefused(app, command);
    }
  }
}

TEST_F(ShimInTheLog, KernelsOfALibraryAreKnownByTheirNames) {
  for (const char* command : {"library_kernel", "listed_kernel"}) {
    Attached app(*this, kGate);
    expect_unrefused(app, command + std::string(" 1"));  // a collective does not ask
    const auto told = daemon_.registrations();
    ASSERT_EQ(told.size(), 1u) << command;
    EXPECT_EQ(told[0].name, "ncclDevKernel_library") << command;
  }
}

// Its handle may be a function's next.
TEST_F(ShimInTheLog, AKernelIsForgottenWithItsLibrary) {
  Attached app(*this, kLease);
  expect_unrefused(app, "library_kernel");
  app("call cuLibraryUnload 2");
  expect_unrefused(app, "again_kernel");
  app("call cuLibraryUnload 1");
  EXPECT_EQ(app("again_kernel"), "0");
  EXPECT_EQ(app("get fake_refused"), "1") << "it was taken for a function";
}

// A library is loaded, and memory shared, without a context.
TEST_F(ShimInTheLog, NoDeviceIsAskedForWhereThereIsNoContext) {
  daemon_.has_gates = true;
  Attached app(*this, kGate);
  app("context 0");
  app("set fake_refused 0");
  expect_unrefused(app, "call cuLibraryLoadData", "500");
  expect_unrefused(app, "access 0");
}

TEST_F(ShimInTheLog, AnErrorOfTheProgramStandsOnce) {
  Attached app(*this, kLease);
  predict(10);
  expect_once(app);
  daemon_.control().devices[0].launch_priority = -5;
  for (int i = 0; i < 2; ++i) expect_once(app);
  daemon_.control().devices[0].leased = kGate;
  daemon_.gates->word[0] = ipc::gate_open(0);
  expect_once(app);
}

TEST_F(ShimInTheLog, AnErrorOfTheProgramOnAnSmSetStandsOnce) {
  Attached app(*this, kLease);
  predict(10);
  daemon_.control().devices[0].sm_set = 5;
  app("retain");
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_NE(app("get fake_lanes"), "0");
  expect_once(app);
}

}  // namespace
}  // namespace heddle::shim_test
