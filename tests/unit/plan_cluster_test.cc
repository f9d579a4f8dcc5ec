// daemon/plan: true paces, the job simulator, and the policies in it.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/plan/judges.h"
#include "daemon/plan/policies.h"

namespace heddle::plan {
namespace {

class ClusterTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    table_ = new JobTable(*read_jobs(std::string(HEDDLE_JOBS) + "/parvagpu"));
  }
  static void TearDownTestSuite() { delete table_; }
  static JobTable* table_;

  static Outcome run(const std::string& policy, Judge& judge, TraceOptions trace,
                     Costs costs = {}) {
    const auto by = job_policy(policy, judge, trace.seed);
    return simulate(make_trace(*table_, trace), *gpu_model(table_->gpu), trace.gpus, costs, *by);
  }
};
JobTable* ClusterTest::table_ = nullptr;

TEST_F(ClusterTest, CopiesAreAsSlowAsMeasured) {
  for (const Example& e : examples(*table_)) {
    if (e.job->pace[e.size][1] <= 0) continue;  // how much it wants was not measured there
    const std::vector<Tenant> tenants(e.n, {e.job, false, 1});
    EXPECT_NEAR(true_pace(tenants, 0, kSliceSizes[e.size], Sharing::kMps), e.pace, 1e-9)
        << e.job->name() << ' ' << e.size << ' ' << e.n;
  }
}

TEST_F(ClusterTest, AShareIsWorthASliceOfItsSize) {
  const JobCurve& job = *table_->find("resnet50/16");
  EXPECT_NEAR(pace_of_share(job, 7, 4 / 7.0), job.pace[size_index(4)][0], 1e-9);
  EXPECT_EQ(pace_of_share(job, 4, 1), job.pace[size_index(4)][0]);
  EXPECT_NEAR(pace_of_share(job, 1, 0.5), job.pace[0][0] / 2, 1e-9);
  double before = 0;
  for (int share = 1; share <= 20; ++share) {
    const double pace = pace_of_share(job, 7, share / 20.0);
    EXPECT_GE(pace, before);
    before = pace;
  }
}

TEST_F(ClusterTest, PriorityMovesPaceFromOfflineToOnlineJobs) {
  const JobCurve* job = table_->find("vgg16/32");
  const std::vector<Tenant> two = {{job, true, 1}, {job, false, 1}};
  const double shared = true_pace(two, 0, 7, Sharing::kMps);
  EXPECT_GT(true_pace(two, 0, 7, Sharing::kPriority), shared);
  EXPECT_LT(true_pace(two, 1, 7, Sharing::kPriority), shared);
  EXPECT_GT(true_pace(two, 1, 7, Sharing::kPriority), 0);
  EXPECT_EQ(true_pace(two, 0, 7, Sharing::kTimeSliced), 0.5);
}

TEST_F(ClusterTest, ATraceHasWhatWasAskedForAndIsTheSameBySeed) {
  const auto jobs = make_trace(*table_, {.online = 30, .offline = 10, .seed = 5});
  const auto again = make_trace(*table_, {.online = 30, .offline = 10, .seed = 5});
  EXPECT_EQ(std::count_if(jobs.begin(), jobs.end(), [](auto& j) { return j.online; }), 30);
  ASSERT_EQ(jobs.size(), 40u);
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i].job, again[i].job);
    EXPECT_EQ(jobs[i].arrives_s, again[i].arrives_s);
    EXPECT_GE(jobs[i].work_s, 20);
    EXPECT_LE(jobs[i].work_s, 200);
  }
}

// Every policy ends every job; none is done faster than alone on a whole GPU, nor before it comes.
TEST_F(ClusterTest, EveryPolicyEndsEveryJobAndIsTheSameBySeed) {
  ErringJudge judge(0.1, 3);
  const TraceOptions trace{.online = 60, .offline = 30, .gpus = 3, .interval_s = 60, .seed = 2};
  for (const std::string& name : job_policy_names()) {
    SCOPED_TRACE(name);
    const Outcome o = run(name, judge, trace);
    ASSERT_EQ(o.relative_jct.size(), 90u);
    // A measured pace may exceed that alone by a few percent.
    for (double relative : o.relative_jct) EXPECT_GT(relative, 0.9);
    EXPECT_GE(o.queueing_s, 0);
    EXPECT_EQ(run(name, judge, trace).jct_s, o.jct_s);
  }
}

TEST_F(ClusterTest, OneJobAtATimeIsAsFastAsAlone) {
  ErringJudge judge(0, 1);
  const TraceOptions trace{.online = 5, .offline = 5, .gpus = 1, .interval_s = 1e5};
  for (const char* name : {"default", "mps", "mmk-7g", "heddle", "pairs-first"}) {
    const Outcome o = run(name, judge, trace);
    EXPECT_NEAR(o.antt, 1, 1e-6) << name;
    EXPECT_NEAR(o.queueing_s, 0, 1e-6) << name;
  }
}

TEST_F(ClusterTest, TimeSlicedGpusDoTheirWorkOneAfterTheOther) {
  ErringJudge judge(0, 1);
  const TraceOptions trace{.online = 40, .offline = 20, .gpus = 1, .interval_s = 0.001};
  double work = 0;
  for (const SimJob& job : make_trace(*table_, trace)) work += job.work_s;
  EXPECT_NEAR(run("default", judge, trace).makespan_s, work, 0.2);
}

TEST_F(ClusterTest, DearerRestartsMakeMisoSlower) {
  ErringJudge judge(0, 1);
  const TraceOptions trace{.online = 60, .offline = 30, .gpus = 2, .interval_s = 120};
  const Outcome cheap = run("miso", judge, trace, {0, 0});
  const Outcome dear = run("miso", judge, trace, {20, 20});
  EXPECT_EQ(cheap.mig_part, 0);
  EXPECT_GT(dear.mig_part, 0);
  EXPECT_GT(dear.jct_s, cheap.jct_s);
}

TEST_F(ClusterTest, AnErringJudgeIsWrongByAsMuchAsItSays) {
  ErringJudge exact(0, 1), erring(0.1, 1);
  double sum = 0, count = 0;
  for (const Example& e : examples(*table_)) {
    const std::vector<Tenant> tenants(e.n, {e.job, false, 1});
    const double truth = exact.pace(tenants, 0, kSliceSizes[e.size]);
    sum += std::abs(erring.pace(tenants, 0, kSliceSizes[e.size]) / truth - 1);
    ++count;
  }
  EXPECT_NEAR(sum / count, 0.1, 0.015);
}

}  // namespace
}  // namespace heddle::plan
