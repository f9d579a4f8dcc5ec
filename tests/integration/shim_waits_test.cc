// What the built shim does while another thread's call to the driver takes long: nobody waits.
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>

#include "tests/integration/shim_setting.h"

namespace heddle::shim_test {
namespace {

class ShimWaits : public Shim {
 protected:
  // A call of the kind is held from now on.
  void hold(Application& app, int call) { app("set fake_held " + std::to_string(call)); }
  static bool is_held(Application& app) {
    return soon([&] { return app("get fake_holding") == "1"; });
  }
  // Its launch wants a twin, and the helper's call that makes that one does not return.
  void hold_a_twin(Application& app) {
    start(app, kLease);
    predict(10);
    daemon_.control().devices[0].sm_set = 5;
    app("retain");
    EXPECT_EQ(app("graph_make"), "0");
    hold(app, kInstantiate);
    EXPECT_EQ(app("graph_run 64"), "0");
    ASSERT_TRUE(is_held(app));
  }
  // Less than the second after which it once went on all the same.
  static bool answers(Application& app, const std::string& command) {
    app.send(command);
    return soon([&] { return app.answered(); }) && app.receive() == "0";
  }
  static bool soon(const std::function<bool()>& what) {
    for (int i = 0; i < 700 && !what(); ++i) poll(nullptr, 0, 1);
    return what();
  }

  static constexpr int kFirstSight = 1, kEventEnd = 2, kInstantiate = 3;  // as Held has them
};

TEST_F(ShimWaits, ACaptureBeginsWhileATwinIsMade) {
  Application app(environment());
  hold_a_twin(app);
  ASSERT_TRUE(answers(app, "capture 72"));
  EXPECT_EQ(app("end_capture 72"), "0");
  hold(app, 0);
}

TEST_F(ShimWaits, AnExecutableEndsWhileItsTwinIsMade) {
  Application app(environment());
  hold_a_twin(app);
  ASSERT_TRUE(answers(app, "graph_end"));
  hold(app, 0);
  EXPECT_TRUE(soon([&] { return app("get fake_execs") == "0"; })) << "nor is there a twin";
  EXPECT_TRUE(soon([&] { return app("get fake_clones") == "0"; }));
}

TEST_F(ShimWaits, AnExecutableIsUpdatedWhileItsTwinIsMade) {
  Application app(environment());
  hold_a_twin(app);
  ASSERT_TRUE(answers(app, "graph_update_all"));
  hold(app, 0);
  EXPECT_TRUE(soon([&] {
    app("graph_run 64");
    return app("get fake_graph_groups") == "5";
  })) << "the next twin is of the new graph";
  EXPECT_TRUE(soon([&] { return app("get fake_execs") == "2"; })) << "the one of the old is gone";
  EXPECT_TRUE(soon([&] { return app("get fake_clones") == "1"; }));
}

TEST_F(ShimWaits, AThreadsFirstLaunchIntoAStreamHoldsUpNoOther) {
  Attached app(*this, kLease);
  hold(app, kFirstSight);
  app.send("@launch 64");
  ASSERT_TRUE(is_held(app));
  EXPECT_TRUE(answers(app, "launch 72"));
  hold(app, 0);
  EXPECT_EQ(app("result"), "0");
}

TEST_F(ShimWaits, AStreamThatEndsHoldsUpNoOther) {
  Attached app(*this, kLease);
  EXPECT_EQ(app("launch 64"), "0");  // timed: it has events
  hold(app, kEventEnd);
  app.send("@destroy 64");
  ASSERT_TRUE(is_held(app));
  EXPECT_TRUE(answers(app, "launch 72"));
  EXPECT_TRUE(answers(app, "destroy 72"));
  hold(app, 0);
  EXPECT_EQ(app("result"), "0");
}

}  // namespace
}  // namespace heddle::shim_test
