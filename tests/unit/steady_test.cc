// core::steady: two kernels that are launched again and again, through the block scheduler.
#include "daemon/model/steady.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

// One block an SM, by registers.
Mix kernel(uint32_t blocks, double us) {
  Mix m;
  m.shape = {blocks, 1024, 64, 0, 1};
  m.duration_us = m.whole_us = us;
  return m;
}

DeviceModel model() {
  DeviceModel device;
  device.launch_gap_us = 1;
  return device;
}

TEST(SteadyTest, OfWhatIsUnknownOrFitsNowhereNothingIsSaid) {
  Mix large = kernel(132, 10), nowhere = kernel(132, 10);
  large.shape.smem_bytes = 1 << 20;
  nowhere.sm_set = SmSet::of(31);
  for (const Mix& m : {large, nowhere}) EXPECT_EQ(steady(m, kernel(132, 10), model()).second, 1);
  const Steady s = steady({}, kernel(132, 10), model());
  EXPECT_EQ(s.first, 1);
  EXPECT_EQ(s.second, 1);
}

TEST(SteadyTest, OnDisjointSmsWithoutUseNobodyWaits) {
  Mix a = kernel(264, 20), b = kernel(264, 10);
  a.sm_set = SmSet(0x00ff), b.sm_set = SmSet(0xff00);
  const Steady s = steady(a, b, model());
  EXPECT_NEAR(s.first, 1, 1e-6);
  EXPECT_NEAR(s.second, 1, 1e-6);
  EXPECT_TRUE(s.ended);
}

TEST(SteadyTest, KernelsOfSeveralWavesTakeTurns) {
  const Steady s = steady(kernel(1320, 100), kernel(264, 10), model());
  EXPECT_NEAR(s.first * 100, s.second * 10, 1);  // one period
  EXPECT_NEAR(s.first, 1.08, 0.01);              // the pauses between launches are the other's time
  EXPECT_EQ(s.binds_second, Channel::kSlots);
}

TEST(SteadyTest, BothFitWhereSlotsAreLeft) {
  Mix a = kernel(132, 10), b = kernel(132, 10);
  a.shape.registers = b.shape.registers = 16;
  a.shape.threads = b.shape.threads = 512;
  a.shape.blocks_per_sm = b.shape.blocks_per_sm = 4;
  const Steady s = steady(a, b, model());
  EXPECT_NEAR(s.first, 1, 1e-6);
  EXPECT_NEAR(s.second, 1, 1e-6);
}

// The last thirty SMs are free all the time: a small kernel need not wait for them.
TEST(SteadyTest, SmsThatAreLeftAreUsed) {
  const Steady s = steady(kernel(102, 1000), kernel(30, 10), model());
  EXPECT_NEAR(s.second, 1, 0.05);
}

TEST(SteadyTest, DramIsSharedWhereverTheyRun) {
  Mix a = kernel(66, 100), b = kernel(66, 100);
  a.sm_set = SmSet(0x00ff), b.sm_set = SmSet(0xff00);
  a.use[Channel::kDram] = b.use[Channel::kDram] = 0.9F;
  const Steady s = steady(a, b, model());
  EXPECT_GT(s.first, 1.5);
  EXPECT_NEAR(s.first, s.second, 0.01);
  EXPECT_EQ(s.binds_first, Channel::kDram);
}

// A working set that fits alone does not beside one that goes through as much meanwhile, and does
// beside one that is slow about it.
TEST(SteadyTest, TheL2IsLostToWhoGoesThroughItMeanwhile) {
  const auto beside = [](double other_us) {
    Mix a = kernel(66, 10), b = kernel(66, other_us);
    a.sm_set = SmSet(0x00ff), b.sm_set = SmSet(0xff00);
    for (Mix* m : {&a, &b}) {
      m->use.dram_cold = m->use[Channel::kDram] = 0.9F;
      m->use[Channel::kL2Capacity] = 0.8F;
    }
    return steady(a, b, model()).first;
  };
  EXPECT_GT(beside(10), 1.5);
  EXPECT_LT(beside(1000), 1.15);
}

TEST(SteadyTest, AnythingEnds) {
  const DeviceModel device = model();
  for (const double us : {1e-3, 0.5, 1e6}) {
    for (const uint32_t blocks : {1U, 131U, 1'000'000U}) {
      const Steady s = steady(kernel(blocks, us), kernel(264, 10), device);
      EXPECT_GE(s.first, 0.99);
      EXPECT_GE(s.second, 0.99);
    }
  }
}

}  // namespace
}  // namespace heddle::core
