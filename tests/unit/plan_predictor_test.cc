// daemon/plan: the four learners, and the predictor on measured tables.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "daemon/plan/learn.h"
#include "daemon/plan/predictor.h"
#include "daemon/plan/random.h"

namespace heddle::plan {
namespace {

Samples made(double (*f)(double, double)) {
  Random random(7);
  Samples s;
  for (int i = 0; i < 400; ++i) {
    s.x.push_back({random.uniform(), random.uniform(), 3});
    s.y.push_back(f(s.x.back()[0], s.x.back()[1]));
  }
  return s;
}

double mean_error(const Learned& learned, double (*f)(double, double)) {
  Random random(8);
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    const double a = random.uniform(), b = random.uniform();
    sum += std::abs(learned.predict({a, b, 3}) - f(a, b));
  }
  return sum / 100;
}

TEST(LearnTest, LinearRegressionFindsALineAndIgnoresAConstantFeature) {
  const auto line = +[](double a, double b) { return 2 * a - 3 * b + 1; };
  EXPECT_LT(mean_error(*linear_regression(made(line)), line), 1e-4);
}

TEST(LearnTest, TheOthersFindACurveThatALineMisses) {
  const auto curve = +[](double a, double b) { return std::sin(6 * a) * b; };
  const Samples s = made(curve);
  const double line = mean_error(*linear_regression(s), curve);
  EXPECT_GT(line, 0.15);
  EXPECT_LT(mean_error(*Forest::grow(s, {}), curve), line / 3);
  EXPECT_LT(mean_error(*support_vectors(s), curve), line / 3);
  EXPECT_LT(mean_error(*perceptron(s, 1), curve), line / 3);
}

TEST(LearnTest, ForestIsTheSameBySeedAndAnotherByAnother) {
  const auto curve = +[](double a, double b) { return a * b; };
  const Samples s = made(curve);
  const auto text = [&](uint64_t seed) {
    std::ostringstream out;
    Forest::grow(s, {.trees = 3, .seed = seed})->write(out);
    return out.str();
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

class PredictorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    table_ = new JobTable(*read_jobs(std::string(HEDDLE_JOBS) + "/parvagpu"));
    miso_ = new JobTable(*read_jobs(std::string(HEDDLE_JOBS) + "/miso"));
  }
  static void TearDownTestSuite() {
    delete table_;
    delete miso_;
  }
  static JobTable *table_, *miso_;
};
JobTable *PredictorTest::table_, *PredictorTest::miso_;

TEST_F(PredictorTest, NoGroupIsOnBothSides) {
  const std::vector<Example> all = examples(*table_);
  for (const Fold& fold : folds(all, Split::kNeighbours, 3)) {
    EXPECT_EQ(fold.known.size() + fold.held_out.size(), all.size());
    EXPECT_NEAR(static_cast<double>(fold.held_out.size()), static_cast<double>(all.size()) / 5, 60);
    std::set<std::pair<const JobCurve*, size_t>> known;
    for (const Example& e : fold.known) known.emplace(e.job, e.n);
    for (const Example& e : fold.held_out) EXPECT_FALSE(known.contains({e.job, e.n}));
  }
  const std::vector<Fold> models = folds(all, Split::kModels, 3);
  EXPECT_EQ(models.size(), 11u);
  size_t held_out = 0;
  for (const Fold& fold : models) {
    held_out += fold.held_out.size();
    for (const Example& e : fold.held_out) {
      EXPECT_EQ(e.job->model, fold.held_out.front().job->model);
    }
    for (const Example& e : fold.known) EXPECT_NE(e.job->model, fold.held_out.front().job->model);
  }
  EXPECT_EQ(held_out, all.size());
}

// Bars: at most half the error of the baselines that need no learning.
TEST_F(PredictorTest, ForestHalvesTheErrorOfTheBaselines) {
  const auto forest = [](const std::vector<Fold>& f) {
    return errors_of(f, FeatureSet::kWider, Learner::kForest, 11).relative;
  };
  const auto neighbours = folds(examples(*table_), Split::kNeighbours, 11);
  EXPECT_LT(forest(neighbours), errors_of_interpolation(neighbours).relative / 2);
  const auto models = folds(examples(*miso_), Split::kModels, 11);
  EXPECT_LT(forest(models), errors_of_mean_curve(models).relative * 0.6);
}

TEST_F(PredictorTest, IsTheSameAfterSavingAndLoading) {
  const Predictor p = train(examples(*miso_), FeatureSet::kWider, Learner::kForest, 1);
  std::stringstream file;
  p.write(file);
  const auto read = Predictor::read(file, "p");
  ASSERT_TRUE(read) << read.error().message;
  for (const Example& e : examples(*table_)) {
    EXPECT_EQ(read->pace(e.situation()), p.pace(e.situation()));
  }
}

TEST(PredictorFileTest, DamageIsNamed) {
  for (const auto& [text, complaint] : std::vector<std::pair<const char*, const char*>>{
           {"something else", "p:1: is no predictor"},
           {"heddle-predictor 1 wider\n", "holds no tree"},
           {"heddle-predictor 1 wider\n3 0 2 0.5 -1 0 1", "tree 1 is cut off"},
           {"heddle-predictor 1 wider\n3 99 2 0.5 -1 0 1 -1 0 1", "tree 1 is damaged"},
           {"heddle-predictor 1 wider\n2 0 0 0.5 -1 0 1", "tree 1 is damaged"},
           {"heddle-predictor 1 wider\n99999999999 0", "tree 1 has an impossible size"}}) {
    std::istringstream in(text);
    const auto read = Predictor::read(in, "p");
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().message.find(complaint), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find("heddle plan train"), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle::plan
