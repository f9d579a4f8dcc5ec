// Who keeps the device from a launch until the starvation bound lets it go.
#include "daemon/core/explain.h"

#include <gtest/gtest.h>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

// Gates everybody and never lets anybody go.
class Never : public Policy {
 public:
  std::string_view name() const override { return "never"; }
  AllowanceVerdict client_init(Gpu&, ClientId) override { return {HookResult::kDecided}; }
  AllowanceVerdict client_active(Gpu&, ClientId) override { return {HookResult::kDecided}; }
  EnqueueVerdict enqueue(Gpu& gpu, LaunchId id) override {
    gpu.queue_insert(gpu.queue_create("held"), id, 0);
    return {HookResult::kDecided};
  }
  DispatchVerdict dispatch(Gpu&) override { return {HookResult::kDecided}; }
};

class StallTest : public CoreTest {
 protected:
  // Until a launch is let go, a second at most.
  void starve() {
    const size_t before = grants_.size();
    for (int i = 0; i < 1000 && grants_.size() == before; ++i) tick(kMs);
    ASSERT_EQ(grants_.size(), before + 1);
    ASSERT_EQ(grants_.back().decider, Decider::kStarvation);
  }
};

TEST_F(StallTest, APolicyThatSaysIdleOnAnIdleGpuIsNamed) {
  Never never;
  use(&never);
  attach(2, 9);
  ask(2);
  starve();
  const Stall& stall = core_->view().last_stall();
  EXPECT_EQ(stall.by, Staller::kPolicy);
  EXPECT_EQ(stall.waited, 2u);
  EXPECT_NEAR(stall.stalled_us, 950'000, 2'000);
  EXPECT_EQ(core_->view().stalls().policy, 1u);
  EXPECT_EQ(core_->stats().policy_faults, 0u) << "quotas do so on purpose";
}

TEST_F(StallTest, AClientThatAlwaysWorksIsNoStall) {
  Never never;
  attach_both();
  for (int i = 0; i < 60; ++i) post(1);
  ask(2);
  use(&never);
  for (int i = 0; i < 1000 && grants_.empty(); ++i) {
    if (i % 5 == 0) post(1);
    tick(kMs);
  }
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(core_->stats().starved, 1u);
  EXPECT_LT(core_->view().last_stall().at, 0);
}

TEST_F(StallTest, AClientWhoseWorkDoesNotEndIsNamed) {
  contend();  // under the built-in: client 1 is above
  wait(1);
  starve();
  const Stall& stall = core_->view().last_stall();
  EXPECT_EQ(stall.by, Staller::kClient);
  EXPECT_EQ(stall.staller, 1u);
  EXPECT_EQ(stall.waited, 2u);
  EXPECT_GT(stall.stalled_us, 900'000);
  EXPECT_EQ(core_->view().stalls().client, 1u);
}

TEST_F(StallTest, SeveralWhoseWorkDoesNotEndMeanTheGpu) {
  contend();
  attach(3, 0);
  post(3);
  wait(1);
  wait(3);
  starve();
  EXPECT_EQ(core_->view().last_stall().by, Staller::kGpu);
  EXPECT_EQ(core_->view().stalls().gpu, 1u);
}

}  // namespace
}  // namespace heddle::core
