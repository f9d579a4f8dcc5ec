// Quantiles of a scenario that says how many requests a p99 takes; tokens; the yardstick of papers.
#include <gtest/gtest.h>

#include "bench/runner/expect.h"
#include "bench/runner/figures.h"
#include "bench/runner/table.h"
#include "tests/unit/runner_pair.h"

namespace heddle::bench {
namespace {

// Two repetitions of `count` requests of hp each; beside be one in a hundred takes 9 ms.
std::vector<Block> tails(size_t count) {
  std::vector<Block> out;
  for (const uint32_t rep : {0U, 1U}) {
    Samples alone{std::vector<uint32_t>(count, 1000), 1};
    Samples beside = alone;
    for (size_t i = 0; i < count; i += 100) beside.us[i] = 9000;
    alone.ttft_us = beside.ttft_us = {500, 600};
    out.push_back({rep, 0, "alone/hp", {{"hp", alone}}, -1, Json::object()});
    out.push_back({rep, 1, "timeslice", {{"hp", beside}, {"be", alone}}, -1, Json::object()});
    out.push_back({rep, 2, "fifo", {{"hp", beside}, {"be", alone}}, -1, Json::object()});
  }
  return out;
}

TEST(Quantiles, AP99OfFewRequestsIsToldAsFew) {
  auto s = pair(
      "policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]\np99_requests = 300\n"
      "expect = [\"fifo: hp p99_over_alone <= 1.1 (us)\"]");
  const auto rows = plan(s).rows;
  const Json many = summarize(s, rows, tails(150))["figures"]["fifo"]["jobs"]["hp"];
  EXPECT_EQ(many["p99_over_alone"]["value"], 9) << "of 300 in two repetitions";
  EXPECT_EQ(many["p99_over_alone"]["n"], 2) << "slices";
  EXPECT_EQ(many["p50_over_alone"]["value"], 1);

  const std::vector<Block> blocks = tails(149);
  const Json out = summarize(s, rows, blocks);
  const Json& few = out["figures"]["fifo"]["jobs"]["hp"];
  EXPECT_EQ(few["p99_over_alone"], Json({{"few", 298}}));
  EXPECT_EQ(few["jct_ms"]["p99"], Json({{"few", 298}}));
  EXPECT_EQ(few["ttft_p90_over_alone"], Json({{"few", 4}})) << "a p90 takes a tenth as many";
  EXPECT_TRUE(few["mean_over_alone"].contains("value"));
  const Json judged = judge(s, rows, blocks, out["figures"], Json::object());
  EXPECT_TRUE(judged[0]["met"].is_null());
  EXPECT_EQ(judged[0]["why"], "too few requests: 298");
}

TEST(Quantiles, OverNoTimeAtAllThereIsNoFigure) {
  const auto s = pair("policies = [\"fifo\"]\nbaselines = [\"timeslice\"]\np99_requests = 100");
  std::vector<Block> blocks = tails(100);
  for (Block& block : blocks) {
    const bool alone = block.row == "alone/hp";
    if (block.repetition == 1) block.jobs["hp"].ttft_us.assign(300, alone ? 0 : 500);
  }
  const Json hp = summarize(s, plan(s).rows, blocks)["figures"]["timeslice"]["jobs"]["hp"];
  EXPECT_FALSE(hp.contains("ttft_p99_over_alone")) << hp;
  EXPECT_TRUE(hp.contains("p99_over_alone"));
}

TEST(Quantiles, WithoutThatKeyTheyAreTakenWithinARepetition) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = []");
  const Json out = summarize(s, plan(s).rows, tails(10));
  const Json& hp = out["figures"]["fifo"]["jobs"]["hp"];
  EXPECT_EQ(hp["p99_over_alone"]["n"], 2);
  EXPECT_EQ(hp["ttft_p90_over_alone"]["value"], 1);
  EXPECT_EQ(hp["ttft_ms"]["p90"]["value"], 0.6);
}

TEST(Quantiles, APromiseIsOfTheMeanAndOfTheTail) {
  auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = []");
  const auto kept = [&](double mean, double p99) {
    s.jobs[0].slowdown_max = mean;
    s.jobs[0].slowdown_p99_max = p99;
    const Json out = summarize(s, plan(s).rows, tails(100));
    return out["figures"]["fifo"]["jobs"]["hp"]["promise_kept"]["value"];
  };
  EXPECT_EQ(kept(1.1, 0), 1) << "the mean is 1.08 of alone";
  EXPECT_EQ(kept(1.1, 8.9), 0);
  EXPECT_EQ(kept(0, 8.9), 0);
  EXPECT_EQ(kept(0, 9), 1);
  EXPECT_EQ(kept(1.05, 9), 0);
}

TEST(Quantiles, AttainmentIsTheShareWithinTimesAlonesP99) {
  auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = []");
  s.block_s = 6;
  std::vector<Block> blocks = tails(100);
  for (Block& block : blocks) {
    Samples& hp = block.jobs["hp"];
    hp.ttft_us.clear();
    if (block.row != "fifo") continue;
    std::fill_n(hp.us.begin(), 10, 1200);
    hp.us[0] = 1100;
    hp.us[1] = 1250;
    hp.us[2] = 1251;
    if (block.repetition == 1) hp.unserved = 100;
  }
  const Json fifo = summarize(s, plan(s).rows, blocks)["figures"]["fifo"]["jobs"];
  const Json& hp = fifo["hp"];
  EXPECT_EQ(hp["in_1.1_p99"]["value"], 0.6825) << "91 of 100, and 91 of 200";
  EXPECT_EQ(hp["in_1.25_p99"]["value"], 0.7425) << "99 of 100, and 99 of 200";
  EXPECT_EQ(hp["in_1.1_p99"]["n"], 12);
  EXPECT_LT(hp["in_1.1_p99"]["lo"], 0.6);
  EXPECT_LE(hp["in_1.1_p99"]["hi"], 1);
  EXPECT_FALSE(fifo["be"].contains("in_1.1_p99")) << "nobody waits for it";

  for (Block& block : blocks) {
    block.jobs["hp"].tbt_us.assign(100, block.row == "fifo" ? 110 : 100);
    if (block.row == "fifo") block.jobs["hp"].tbt_us[0] = 111;
  }
  const Json tokens = summarize(s, plan(s).rows, blocks)["figures"]["fifo"]["jobs"]["hp"];
  EXPECT_EQ(tokens["in_1.1_p99"]["value"], 0.99) << "of the times between tokens";

  s.p99_requests = 300;
  const Json few = summarize(s, plan(s).rows, blocks)["figures"]["fifo"]["jobs"]["hp"];
  EXPECT_EQ(few["in_1.1_p99"], Json({{"few", 200}}));
}

TEST(Quantiles, ALatencyJobIsHeldAgainstTimeSlicingToo) {
  const auto s = pair("policies = [\"fifo@timeslice\"]\nbaselines = [\"timeslice\"]");
  const Json out = summarize(s, plan(s).rows, tails(100));
  EXPECT_EQ(out["figures"]["fifo"]["jobs"]["hp"]["mean_over_timeslice"]["value"], 1);
  EXPECT_FALSE(out["figures"]["fifo"]["jobs"]["be"].contains("mean_over_timeslice"));
  EXPECT_FALSE(out["figures"]["timeslice"]["jobs"]["hp"].contains("mean_over_timeslice"));
}

TEST(Quantiles, WhatMpsCostsALatencyJobAloneIsAFigure) {
  const auto s = pair("policies = [\"fifo\"]");
  auto blocks = tails(100);
  for (Block& block : tails(100)) {
    if (block.row.rfind("alone/", 0) != 0) continue;
    block.row += "@mps";
    for (auto& us : block.jobs["hp"].us) us += us / 4;
    blocks.push_back(block);
  }
  Json out = summarize(s, plan(s).rows, blocks)["figures"];
  EXPECT_EQ(out["alone/hp@mps"]["jobs"]["hp"]["mean_over_timesliced"]["value"], 1.25);
  EXPECT_FALSE(out["alone/hp"]["jobs"]["hp"].contains("mean_over_timesliced"));
  EXPECT_FALSE(out["alone/be@mps"]["jobs"]["be"].contains("mean_over_timesliced"));
}

}  // namespace
}  // namespace heddle::bench
