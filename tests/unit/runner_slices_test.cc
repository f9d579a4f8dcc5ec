// Statistics of samples and of slices of blocks, with their intervals.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/runner/figures.h"
#include "tests/unit/runner_pair.h"

namespace heddle::bench {
namespace {

TEST(Statistics, QuantilesAreNearestRank) {
  std::vector<uint32_t> hundred;
  for (uint32_t i = 1; i <= 100; ++i) hundred.push_back(i * 1000);
  EXPECT_EQ(quantile(hundred, 0.5), 51'000);
  EXPECT_EQ(quantile(hundred, 0.99), 100'000);
  EXPECT_EQ(quantile({7}, 0.99), 7);
  const Samples block{hundred, 1, 0};
  const Pooled p = pool({&block}, 50);
  EXPECT_EQ(p.samples, 100U);
  EXPECT_DOUBLE_EQ(p.mean_ms.value, 50.5);
  EXPECT_DOUBLE_EQ(p.p50_ms.value, 51);
  EXPECT_DOUBLE_EQ(p.p95_ms.value, 96);
  EXPECT_DOUBLE_EQ(p.p99_ms.value, 100);
  EXPECT_NEAR(p.cv.value, 28.8661 / 50.5, 1e-5);
  EXPECT_DOUBLE_EQ(p.slo_attainment.value, 0.5);
}

TEST(Statistics, UnservedRequestsMissTheirSlo) {
  Samples block = constant(1000, 6);
  block.unserved = 2;
  EXPECT_DOUBLE_EQ(pool({&block}, 2).slo_attainment.value, 0.75);
}

// Blocks that differ more than their samples do: an interval over samples would be far too narrow.
TEST(Statistics, TheIntervalIsDrawnOverBlocks) {
  const Samples low = constant(1000, 1000), high = constant(3000, 1000);
  const Pooled p = pool({&low, &high, &low, &high}, 0);
  EXPECT_DOUBLE_EQ(p.mean_ms.value, 2);
  EXPECT_LE(p.mean_ms.lo, 1.5);
  EXPECT_GE(p.mean_ms.hi, 2.5);
  const Pooled same = pool({&low, &low}, 0);
  EXPECT_DOUBLE_EQ(same.mean_ms.lo, same.mean_ms.hi);
}

TEST(Statistics, MedianHasItsIntervalAndCount) {
  const Figure f = median({1, 2, 3, 4, 100});
  EXPECT_DOUBLE_EQ(f.value, 3);
  EXPECT_EQ(f.n, 5U);
  EXPECT_LE(f.lo, 2);
  EXPECT_GE(f.hi, 4);
  EXPECT_DOUBLE_EQ(median({1, 2}).value, 1.5);
  const Json one = to_json(median({3}));
  EXPECT_TRUE(one["hi"].is_null()) << "one repetition says nothing of the next";
  EXPECT_TRUE(std::isinf(figure_from(one).hi));
}

// Three values say less than their least and greatest: Student's interval of 1, 2, 3 is 2 ± 2.48.
TEST(Statistics, IntervalsOfFewValuesAreWide) {
  EXPECT_NEAR(mean({1, 2, 3}).hi, 4.5, 0.3);
  EXPECT_EQ(mean({1, 2, 3}).lo, 0) << "no figure is negative";
  std::vector<double> many;
  for (int i = 0; i < 100; ++i) many.push_back(i % 2);
  EXPECT_NEAR(mean(many).hi, 0.5 + 1.98 * 0.0503, 0.01);
}

TEST(Statistics, SpreadIsTheInterquartileRangeOfTheRepetitions) {
  EXPECT_DOUBLE_EQ(median({1, 2, 3, 4, 100}).spread, 2);
  EXPECT_DOUBLE_EQ(mean({1, 2, 3, 4, 100}).value, 22);
  std::vector<Samples> blocks;
  for (const uint32_t ms : {1U, 2U, 3U, 4U, 100U}) blocks.push_back(constant(ms * 1000, ms));
  std::vector<const Samples*> all;
  for (const Samples& block : blocks) all.push_back(&block);
  EXPECT_DOUBLE_EQ(pool(all, 0).p99_ms.spread, 2) << "of the blocks' own, whatever their size";
  EXPECT_DOUBLE_EQ(pool({&blocks[0]}, 0).p99_ms.spread, 0);
}

// A stall of one second in six is a slice: requests drawn one by one would hide how rare it was.
TEST(Slices, AnIntervalIsDrawnOverSecondsOfTheBlocks) {
  Samples stalled = constant(1000, 600);
  std::fill_n(stalled.us.begin() + 100, 100, 4000);
  const Pooled whole = pool({&stalled, &stalled}, 0, {1});
  EXPECT_DOUBLE_EQ(whole.mean_ms.lo, whole.mean_ms.hi) << "two blocks that are the same";
  const Pooled cut = pool({&stalled, &stalled}, 0, {6});
  EXPECT_EQ(cut.mean_ms.n, 12U);
  EXPECT_DOUBLE_EQ(cut.mean_ms.value, 1.5);
  EXPECT_LT(cut.mean_ms.lo, 1.1);
  EXPECT_GT(cut.mean_ms.hi, 2);
  EXPECT_EQ(pool({&stalled, &stalled}, 0, {6}).mean_ms.hi, cut.mean_ms.hi) << "the same draws";
  EXPECT_EQ(slices_in(0.3), 1U);
  EXPECT_EQ(slices_in(6), 6U);
}

TEST(Slices, OfAClosedLoopTakeEquallyLong) {
  Samples slow = constant(1000, 300);
  slow.us.resize(303, 100'000);
  slow.span_s = 0.6;
  EXPECT_EQ(draw(slow, 0, {2, true}, 1).n, 2U);
  const Drawn drawn = draw(slow, 0, {2, true}, 1);
  ASSERT_EQ(drawn.of.size(), kRounds + 1);
  EXPECT_EQ(drawn.of[0][kCount], 303);
  for (const auto& one : drawn.of) {
    EXPECT_TRUE(one[kCount] == 303 || one[kCount] == 600 || one[kCount] == 6) << one[kCount];
  }
  EXPECT_EQ(draw(constant(1000, 2), 0, {6}, 1).n, 2U) << "slices that have none do not count";
}

TEST(Slices, ARatioHasThoseOfItsRepetitions) {
  auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = []");
  s.block_s = 6;
  auto blocks = drifting();
  for (Block& block : blocks) {
    if (block.row == "fifo") std::fill_n(block.jobs["hp"].us.begin(), 20, 9000);
  }
  const Json out = summarize(s, plan(s).rows, blocks)["figures"]["fifo"]["jobs"];
  const Json& hp = out["hp"]["mean_over_alone"];
  EXPECT_EQ(hp["n"], 12);
  EXPECT_LT(hp["lo"], hp["value"]);
  EXPECT_GT(hp["hi"], hp["value"]);
  EXPECT_EQ(summarize(s, plan(s).rows, blocks)["figures"]["fifo"]["jobs"], out);
}

}  // namespace
}  // namespace heddle::bench
