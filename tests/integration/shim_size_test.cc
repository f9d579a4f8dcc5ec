// The built shim where a policy gave a kernel a size or a priority: no launch asks for it.
#include <gtest/gtest.h>

#include "ipc/sm_set.h"
#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

constexpr uint32_t kFirstTwo = 0b011, kLastTwo = 0b110;  // of the fake device's three groups

class ShimSize : public Shim {
 protected:
  // An application whose family is the set of two groups, where the ring says.
  void start_sized(Application& app, ipc::SmRing ring = {}) {
    start(app, kLease);
    predict(10);
    daemon_.control().windows[0].fence_sizes = 0b10;
    daemon_.control().windows[0].ring = ipc::pack_ring(ring);
    app("retain");
    app("set fake_noting 1");
  }
  void tell(ipc::Special special) {
    for (int i = 0; i < 8; ++i) daemon_.control().kernels[i].special = ipc::pack_special(special);
  }
  static bool moved(Application& app, const std::string& launch) {
    app("ops");
    EXPECT_EQ(app(launch), "0");
    return app("ops").find("launch 3") != std::string::npos;  // lanes are above 0x300
  }
};

TEST_F(ShimSize, AKernelsSizeHoldsUnderALease) {
  Application app(environment());
  start_sized(app);
  EXPECT_FALSE(moved(app, "launch 64")) << "no size yet";
  tell({.size = 2});
  EXPECT_TRUE(moved(app, "launch 64")) << "the very next launch";
  EXPECT_EQ(app("get fake_groups"), std::to_string(kLastTwo));
  tell({});
  EXPECT_FALSE(moved(app, "launch 64"));
}

TEST_F(ShimSize, AKernelsSizeHoldsUnderAWindowAndBehindAGrantThatNamesNone) {
  Application app(environment());
  start_sized(app);
  tell({.size = 2});
  daemon_.control().windows[0].word = ipc::pack_window(7, 1'000'000);
  EXPECT_TRUE(moved(app, "launch 64"));
}

TEST_F(ShimSize, TheSetLiesWhereTheAnchorSays) {
  Application app(environment());
  start_sized(app, {.anchor = 1});
  tell({.size = 2});
  EXPECT_TRUE(moved(app, "launch 64"));
  EXPECT_EQ(app("get fake_groups"), std::to_string(kFirstTwo));
}

TEST_F(ShimSize, ASizeAtSeveralPositionsIsMadeAtEach) {
  Application app(environment());
  start_sized(app, {.anchor = 1, .positions = 3});
  EXPECT_EQ(app("get fake_green_contexts"), "3");
}

TEST_F(ShimSize, GraphsAndCooperativeKernelsStay) {
  Application app(environment());
  start_sized(app);
  tell({.size = 2});
  EXPECT_FALSE(moved(app, "graph"));
  EXPECT_FALSE(moved(app, "coop 64"));
}

TEST_F(ShimSize, AKernelsOwnPriorityComesBeforeItsWindows) {
  Application app(environment());
  start_sized(app);
  daemon_.control().windows[0].launch_priority = -5;
  tell({.raised = true, .launch_priority = -2});
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("get fake_priority"), "-2");
  tell({});
  EXPECT_EQ(app("launch 64"), "0");
  EXPECT_EQ(app("get fake_priority"), "-5");
}

TEST_F(ShimSize, ASizeThatNoSetOfTheProcessHasLeavesTheLaunchWhereItIs) {
  Application app(environment());
  start(app, kLease);
  predict(10);
  app("retain");
  app("set fake_noting 1");
  tell({.size = 2});
  EXPECT_FALSE(moved(app, "launch 64"));
}

}  // namespace
}  // namespace heddle::shim_test
