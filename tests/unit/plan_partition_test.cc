// daemon/plan: MMK's Algorithm 1 by its prose.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/plan/partition.h"

namespace heddle::plan {
namespace {

// Paces that a person can check: a job runs at what SMs it is given over what it uses; those of a
// slice that together use more than it has share it.
struct World {
  std::vector<PlannedJob> jobs;

  World& job(const char* name, bool online, double memory_gib, double sm) {
    jobs.push_back({name, online, memory_gib, 10, {sm, kNotMeasured, kNotMeasured}});
    return *this;
  }
  Estimate estimate() const {
    return [this](const SliceProfile& slice, std::span<const Member> members) {
      const double part = slice.compute / 7.0, own = jobs[members[0].job].use.sm;
      double wanted = 0;
      for (const Member& m : members) wanted += jobs[m.job].use.sm;
      return std::min(1.0, part * members[0].share / own) * std::min(1.0, part / wanted);
    };
  }
  Plan plan(PlanOptions options = {}) const {
    return plan::plan(jobs, *gpu_model("a100-80gb"), estimate(), options);
  }
};

Layout layout(const char* text) { return *place(*gpu_model("a100-80gb"), text); }

const Assigned& of(const Plan& plan, size_t job) {
  return *std::find_if(plan.jobs.begin(), plan.jobs.end(), [&](auto& a) { return a.job == job; });
}

TEST(PartitionTest, EveryJobIsInOneSliceAndNoSliceIsOverfull) {
  World w;
  for (int i = 0; i < 9; ++i) w.job("j", false, 3 + i, 0.1 + 0.05 * i);
  for (const Layout& layout : layouts(*gpu_model("a100-80gb"))) {
    const Plan p = pack(w.jobs, layout, w.estimate(), Method::kMmk);
    EXPECT_EQ(p.jobs.size() + p.waiting.size(), w.jobs.size());
    std::vector<double> used(layout.size());
    for (const Assigned& a : p.jobs) used[a.slice] += w.jobs[a.job].memory_gib;
    for (size_t s = 0; s < layout.size(); ++s) EXPECT_LE(used[s], layout[s].profile->memory_gib);
  }
}

TEST(PartitionTest, FirstFitByMemoryTakesTheLargestSliceFirst) {
  World w;
  w.job("small", false, 5, 0.2).job("large", false, 30, 0.5).job("huge", false, 70, 0.5);
  const Plan p = pack(w.jobs, layout("3g.40gb+4g.40gb"), w.estimate(), Method::kMmk);
  EXPECT_EQ(p.layout[of(p, 1).slice].profile->name, "4g.40gb");
  EXPECT_EQ(p.layout[of(p, 0).slice].profile->name, "4g.40gb");
  EXPECT_EQ(p.waiting, std::vector<size_t>{2});
}

TEST(PartitionTest, SharesGoByThroughputPerSmAndTheRestGetTheLeast) {
  World w;
  w.job("hungry", false, 1, 0.9).job("thrifty", false, 1, 0.2).job("last", false, 1, 1);
  const Plan p = pack(w.jobs, layout("7g.80gb"), w.estimate(), Method::kMmk);
  EXPECT_NEAR(of(p, 1).share, 0.2, 1e-9);
  EXPECT_NEAR(of(p, 0).share, 0.8, 1e-9);  // what remains
  EXPECT_NEAR(of(p, 2).share, 0.1, 1e-9);
}

TEST(PartitionTest, OnlineJobsAreNotLimitedAndOfflineOnesGetWhatTheyLeave) {
  World w;
  w.job("batch", false, 1, 0.1).job("service", true, 1, 0.6).job("train", false, 1, 0.9);
  const Plan p = pack(w.jobs, layout("7g.80gb"), w.estimate(), Method::kMmk);
  EXPECT_EQ(of(p, 1).share, 1);
  EXPECT_NEAR(of(p, 0).share, 0.1, 1e-9);
  EXPECT_NEAR(of(p, 2).share, 0.3, 1e-9);
}

TEST(PartitionTest, RightSizesAreGivenOnlyWhereTheyGain) {
  World w;
  w.job("a", false, 2, 0.42).job("b", false, 1, 0.9);
  EXPECT_EQ(pack(w.jobs, layout("7g.80gb"), w.estimate(), Method::kOurs).jobs[0].share, 1);
  // Who wants more SMs together than there are loses more than the SMs.
  const Estimate thrash = [&](const SliceProfile&, std::span<const Member> members) {
    const double own = w.jobs[members[0].job].use.sm;
    double wanted = 0;
    for (const Member& m : members) wanted += std::min(w.jobs[m.job].use.sm, m.share);
    return std::min(1.0, members[0].share / own) / std::max(1.0, wanted * wanted * wanted);
  };
  const Plan p = pack(w.jobs, layout("7g.80gb"), thrash, Method::kOurs);
  EXPECT_NEAR(of(p, 0).share, 0.4, 1e-9);  // 0.4 / 0.42 > 0.95
  EXPECT_NEAR(of(p, 1).share, 0.6, 1e-9);  // what remains
}

TEST(PartitionTest, OursPutsAJobWhereMostIsGained) {
  World w;
  w.job("a", false, 2, 0.3).job("b", false, 1, 0.3);
  const Layout halves = layout("4g.40gb+3g.40gb");
  const Plan first = pack(w.jobs, halves, w.estimate(), Method::kMmk);
  EXPECT_EQ(of(first, 0).slice, of(first, 1).slice);
  const Plan best = pack(w.jobs, halves, w.estimate(), Method::kOurs);
  EXPECT_NE(of(best, 0).slice, of(best, 1).slice);
  EXPECT_GT(best.throughput, first.throughput);
}

TEST(PartitionTest, RepartitionsOnlyWhenNoOnlineJobRuns) {
  World w;
  w.job("a", false, 30, 0.4).job("b", false, 30, 0.4);
  // Together in 4g.40gb they do not fit; the current layout lets one wait.
  PlanOptions options;
  options.current = layout("4g.40gb+2g.20gb+1g.10gb");
  const Plan moved = w.plan(options);
  EXPECT_TRUE(moved.waiting.empty());
  EXPECT_NE(to_string(moved.layout), to_string(*options.current));
  w.jobs[0].online = true;
  const Plan stays = w.plan(options);
  EXPECT_EQ(to_string(stays.layout), to_string(*options.current));
  EXPECT_EQ(stays.waiting.size(), 1u);
  EXPECT_NE(stays.why[0].find("an online job runs"), std::string::npos);
  w.jobs[0].online = false;
  options.repartition = false;
  EXPECT_EQ(to_string(w.plan(options).layout), to_string(*options.current));
}

TEST(PartitionTest, NoLayoutHasMoreThroughputThanTheChosenOne) {
  World w;
  w.job("a", false, 9, 0.15).job("b", false, 9, 0.3).job("c", false, 15, 0.6).job("d", false, 3, 1);
  const Plan best = w.plan();
  for (const Layout& layout : layouts(*gpu_model("a100-80gb"))) {
    const Plan other = pack(w.jobs, layout, w.estimate(), Method::kMmk);
    if (!other.waiting.empty()) continue;
    EXPECT_LE(other.throughput, best.throughput + 1e-9);
  }
}

TEST(PartitionTest, EachDecisionHasItsReason) {
  World w;
  w.job("a", false, 9, 0.15).job("b", true, 90, 0.3);
  const Plan p = w.plan();
  ASSERT_EQ(p.why.size(), 3u);
  EXPECT_NE(p.why[1].find("a: slice"), std::string::npos);
  EXPECT_NE(p.why[2].find("b: waits, no slice has 90.0 GiB free"), std::string::npos);
}

}  // namespace
}  // namespace heddle::plan
