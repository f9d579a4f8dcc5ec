// daemon/plan: tables of `heddle-bench collect`: a job on a share of the SMs beside another one.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <set>
#include <sstream>

#include "daemon/plan/judges.h"
#include "daemon/plan/placements.h"
#include "daemon/plan/predictor.h"
#include "tests/folder.h"

namespace heddle::plan {
namespace {

constexpr const char* kJobs = "model,batch,alone_ms,memory_mib,bandwidth_pct\n";
constexpr const char* kSamples =
    "model,batch,share,neighbour,neighbour_batch,neighbour_share,pace\n";
const std::vector<double> kShares = {0.125, 0.25, 0.5, 0.75, 1};

// The truth of the made tables: job i needs so much of the SMs, and of the memory's bandwidth.
double needs(int i) { return 0.15 + 0.1 * i; }
double alone(int i, double share) { return std::min(1.0, share / needs(i)); }
double beside(int i, double share, int other, double other_share) {
  const double common = std::max(0.0, share + other_share - 1);
  const double memory = 0.12 * i * alone(i, share) + 0.12 * other * alone(other, other_share);
  return alone(i, share - common / 2) * std::min(1.0, 0.5 / memory);
}

class CollectedTest : public testing::Test {
 protected:
  Result<JobTable> read(const std::string& jobs, const std::string& samples) {
    std::ofstream(directory_ + "/jobs.csv") << jobs;
    std::ofstream(directory_ + "/samples.csv") << samples;
    return read_jobs(directory_);
  }
  // `count` jobs, each alone and beside each other one at all shares.
  JobTable made(int count) {
    std::ostringstream jobs, samples;
    jobs << kJobs;
    samples << kSamples;
    for (int i = 0; i < count; ++i) {
      jobs << "m" << i << ",8," << 2 + i << ",2048," << 5 * i << '\n';
      for (double share : kShares) {
        samples << "m" << i << ",8," << share << ",,,," << alone(i, share) << '\n';
        for (int other = 0; other < count; ++other) {
          for (double other_share : kShares) {
            samples << "m" << i << ",8," << share << ",m" << other << ",8," << other_share << ','
                    << beside(i, share, other, other_share) << '\n';
          }
        }
      }
    }
    auto table = read(jobs.str(), samples.str());
    EXPECT_TRUE(table) << table.error().message;
    return *table;
  }
  const TestFolder made_;
  const std::string directory_ = made_.path();
};

TEST_F(CollectedTest, AJobsFiguresAloneAreKnown) {
  const auto table = read(std::string(kJobs) + "a,8,2.5,2048,40\nb,1,1,1024,\n",
                          std::string(kSamples) +
                              "a,8,0.25,,,,0.5\na,8,0.25,,,,0.6\n"
                              "a,8,0.5,,,,1\na,8,1,,,,1\nb,1,1,,,,1\n"
                              "a,8,0.5,b,1,0.75,0.8\n");
  ASSERT_TRUE(table) << table.error().message;
  const JobCurve& a = *table->find("a/8");
  EXPECT_DOUBLE_EQ(a.alone_at(0.25), 0.55);  // the mean of two samples
  EXPECT_DOUBLE_EQ(a.alone_at(0.375), 0.775);
  EXPECT_DOUBLE_EQ(a.alone_at(0.125), 0.275);  // below all that was measured
  EXPECT_NEAR(a.use.sm, 0.25 + 0.25 * (0.95 - 0.55) / 0.45, 1e-9);
  EXPECT_DOUBLE_EQ(a.use.bandwidth, 0.4);
  EXPECT_LT(table->find("b/1")->use.bandwidth, 0);
  EXPECT_DOUBLE_EQ(a.memory_gib, 2);
  EXPECT_NEAR(a.pace[size_index(3)][0], a.alone_at(3.0 / 7), 1e-12);
  const std::vector<Example> all = examples(*table);
  ASSERT_EQ(all.size(), 1u);
  const Situation s = all[0].situation();
  EXPECT_DOUBLE_EQ(s.common(), 0.25);
  EXPECT_DOUBLE_EQ(s.alone, 1);
  // b keeps all of its SMs busy, a so many of its half.
  EXPECT_DOUBLE_EQ(s.alone_left, a.alone_at(0.5 - 0.25 / (1 + a.use.sm / 0.5)));
}

TEST_F(CollectedTest, AHeldOutJobIsOnNoOtherSide) {
  const JobTable table = made(6);
  const std::vector<Example> all = examples(table);
  ASSERT_EQ(all.size(), 6u * 6 * 25);
  for (const Fold& fold : folds(all, Split::kNeighbours, 3)) {
    EXPECT_EQ(fold.known.size() + fold.held_out.size(), all.size());
    EXPECT_EQ(fold.held_out.size(), 7u * 25);
    std::set<std::pair<const JobCurve*, const JobCurve*>> known;
    for (const Example& e : fold.known) known.emplace(e.job, e.neighbour);
    for (const Example& e : fold.held_out) EXPECT_FALSE(known.contains({e.job, e.neighbour}));
  }
  EXPECT_EQ(folds(all, Split::kSamples, 3)[0].held_out.size(), all.size() / 5);
  const std::vector<Fold> models = folds(all, Split::kModels, 3);
  ASSERT_EQ(models.size(), 6u);
  for (const Fold& fold : models) {
    EXPECT_EQ(fold.held_out.size(), 6u * 25);
    EXPECT_EQ(fold.known.size(), 5u * 5 * 25);
    for (const Example& e : fold.known) {
      EXPECT_NE(e.job, fold.held_out[0].job);
      EXPECT_NE(e.neighbour, fold.held_out[0].job);
    }
  }
}

TEST_F(CollectedTest, ForestHalvesTheErrorOfTheBaselines) {
  const JobTable table = made(8);
  const std::vector<Example> all = examples(table);
  ASSERT_EQ(features_for(table), FeatureSet::kCurves);
  const auto forest = [](const std::vector<Fold>& f) {
    return errors_of(f, FeatureSet::kCurves, Learner::kForest, 11).relative;
  };
  const auto neighbours = folds(all, Split::kNeighbours, 11);
  EXPECT_LT(forest(neighbours), 0.035);
  EXPECT_LT(forest(neighbours), errors_of_interpolation(neighbours).relative / 2);
  const auto models = folds(all, Split::kModels, 11);
  EXPECT_LT(forest(models), errors_of_mean_curve(models).relative / 2);
}

TEST_F(CollectedTest, InterpolationIsExactWhereTheSharesAreKnownBesideTheNeighbour) {
  const JobTable table = made(3);
  Fold fold;
  for (const Example& e : examples(table)) {
    if (e.job->model == "m0" && e.neighbour->model == "m1") fold.held_out.push_back(e);
  }
  fold.known = fold.held_out;
  EXPECT_LT(errors_of_interpolation({fold}).relative, 0.001);
  EXPECT_EQ(errors_of_interpolation({fold}).count, 25u);
}

TEST_F(CollectedTest, PredictorIsTheSameAfterSavingAndJudgesThreeJobs) {
  const JobTable table = made(4);
  const Predictor p = train(examples(table), FeatureSet::kCurves, Learner::kForest, 1);
  std::stringstream file;
  p.write(file);
  auto read = Predictor::read(file, "p");
  ASSERT_TRUE(read) << read.error().message;
  for (const Example& e : examples(table)) {
    EXPECT_EQ(read->pace(e.situation()), p.pace(e.situation()));
  }
  ForestJudge judge(std::move(*read));
  const std::vector<Tenant> three = {{&table.curves[3], false, 0.75},
                                     {&table.curves[2], false, 0.5},
                                     {&table.curves[1], false, 0.75}};
  const double of_alone = table.curves[3].alone_at(0.75);
  EXPECT_NEAR(judge.pace(std::span(three).first(1), 0, 7), of_alone, 1e-9);
  const double two = judge.pace(std::span(three).first(2), 0, 7);
  EXPECT_NEAR(two, beside(3, 0.75, 2, 0.5), 0.02);
  const std::vector<Tenant> other = {three[0], three[2]};
  // What each adds to an iteration's time adds up.
  const double times = of_alone / two + of_alone / judge.pace(other, 0, 7) - 1;
  EXPECT_GT(times, 1.01);
  EXPECT_NEAR(judge.pace(three, 0, 7), of_alone / times, 1e-9);
}

TEST_F(CollectedTest, DamageIsNamed) {
  const std::string jobs = std::string(kJobs) + "a,8,2.5,2048,40\n", samples(kSamples);
  for (const auto& [job_rows, sample_rows, complaint] :
       std::vector<std::tuple<std::string, std::string, const char*>>{
           {jobs + "a,8,2,1,1\n", samples + "a,8,1,,,,1\n", "jobs.csv:3: a/8 is there twice"},
           {jobs + "b,1.5,2,1,1\n", samples + "a,8,1,,,,1\n", "jobs.csv:3: batch must be a whole"},
           {jobs, samples + "a,8,1.5,,,,1\n",
            "samples.csv:2: share must be a number above 0, 1 at"},
           {jobs, samples + "a,8,1,,,,nan\n", "samples.csv:2: pace must be a number above 0"},
           {jobs, samples + "a,8,1,c,1,0.5,1\n", "samples.csv:2: c/1 is not in jobs.csv"},
           {jobs, samples + "a,8,1,a,8,,1\n", "samples.csv:2: neighbour_share must be a number"},
           {jobs, samples + "a,8,0.5,,,,1\n", "a/8 has no sample alone on all SMs"},
           {jobs, samples, "samples.csv: has no rows"},
           {"model\n", samples + "a,8,1,,,,1\n", "jobs.csv:1: the header must be"}}) {
    const auto table = read(job_rows, sample_rows);
    ASSERT_FALSE(table) << complaint;
    EXPECT_NE(table.error().message.find(complaint), std::string::npos) << table.error().message;
  }
}

// Expects most of long jobs beside long ones; with -1 least.
struct ByLength : Judge {
  explicit ByLength(double sign) : sign(sign) {}
  double pace(std::span<const Tenant> tenants, size_t which, uint32_t) override {
    return 100 + sign * tenants[which].job->alone_ms * tenants[1 - which].job->alone_ms;
  }
  double sign;
};

TEST_F(CollectedTest, PlacementsAreJudgedByMeasuredPairs) {
  const auto table = read(std::string(kJobs) + "a,1,1,1,\nb,1,2,1,\nc,1,3,1,\nd,1,4,1,\n",
                          std::string(kSamples) +
                              "a,1,1,,,,1\nb,1,1,,,,1\nc,1,1,,,,1\nd,1,1,,,,1\n"
                              "a,1,0.5,c,1,1,0.9\nc,1,1,a,1,0.5,0.8\n"  // one that none goes on
                              "a,1,1,c,1,1,0.9\nc,1,1,a,1,1,0.8\n"
                              "a,1,1,d,1,1,0.5\nd,1,1,a,1,1,0.4\n"
                              "b,1,1,c,1,1,0.6\nc,1,1,b,1,1,0.5\n"
                              "b,1,1,d,1,1,0.7\nd,1,1,b,1,1,0.6\n");
  ASSERT_TRUE(table) << table.error().message;
  const std::vector<Round> all = rounds(*table);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].left, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(all[0].right, (std::vector<size_t>{2, 3}));
  ByLength good(1), bad(-1);
  const Placed placed = place(*table, all[0], good);
  EXPECT_NEAR(placed.best, (0.9 + 0.8 + 0.7 + 0.6) / 2, 1e-9) << "a beside c, b beside d";
  EXPECT_NEAR(placed.worst, (0.5 + 0.4 + 0.6 + 0.5) / 2, 1e-9);
  EXPECT_NEAR(placed.random, (placed.best + placed.worst) / 2, 1e-9);
  EXPECT_EQ(placed.chosen, placed.best);
  EXPECT_EQ(place(*table, all[0], bad).chosen, placed.worst);
}

}  // namespace
}  // namespace heddle::plan
