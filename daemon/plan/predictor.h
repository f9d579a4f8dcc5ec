// How fast a job will run at a share of the GPU, beside what is there: MMK's predictor (section
// III-A), its features of Table I and a few more, and how wrong it is on jobs that it has not seen.
//
// It predicts a pace: the rate over the rate alone on the whole GPU. That stands for both of MMK's
// outputs, throughput of offline jobs and execution time of online ones.
#pragma once

#include <algorithm>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "daemon/plan/learn.h"
#include "daemon/plan/table.h"

namespace heddle::plan {

// One job, where it is to run, and what is there already.
struct Situation {
  bool online = false;
  double share = 1;     // of the GPU's SMs that it may use: its slice's part x its MPS share
  double slice = 1;     // the part of the GPU that its slice is
  UseOfGpu own;         // alone on the whole GPU
  UseOfGpu beside;      // the sum of the others in the slice
  double others = 0;    // how many they are
  double alone_ms = 0;  // of one iteration on the whole GPU
  // Where each has SMs of its own, from opposite ends of the slice: the share of the other, and
  // paces alone.
  double beside_share = kNotMeasured;
  double alone = kNotMeasured;         // at `share`
  double alone_left = kNotMeasured;    // at that share without what the other takes of both's
  double beside_alone = kNotMeasured;  // of the other at its share
  double beside_ms = 0;                // of one iteration of the other on the whole GPU

  // The SMs that both have.
  double common() const {
    return beside_share < 0 ? 0 : std::max(0., share + beside_share - slice);
  }
};
// A job with a share of the GPU's SMs, in a slice (1: none) where another job has its share.
Situation situation_beside(const JobCurve& job, double share, const JobCurve& other,
                           double other_share, double slice);

enum class FeatureSet : uint8_t {
  kTableOne,  // MMK's: job type, MPS configuration, use of SMs, bandwidth and L2 of it and the
              // others
  kWider,   // and how many others, the iteration alone, the slice, what all want over what is there
  kCurves,  // Table I's, and paces alone at shares: for tables that have these
};
inline constexpr const char* kFeatureSetNames[] = {"table-one", "wider", "curves"};
// The best there is for such a table.
FeatureSet features_for(const JobTable& table);
Features features(const Situation& situation, FeatureSet set);

enum class Learner : uint8_t { kForest, kPerceptron, kLinear, kSupportVectors };
inline constexpr const char* kLearnerNames[] = {"forest", "perceptron", "linear", "svr"};

// A measured sample: its job's place in the table, n processes of it in a slice; or a neighbour,
// and both shares. Then its size and n are 0.
struct Example {
  const JobCurve* job;
  size_t size, n;  // of kSliceSizes; processes
  double pace;
  const JobCurve* neighbour = nullptr;
  double share = 1, neighbour_share = 1;
  Situation situation() const;
};
// Of a table with neighbours these alone: what a job does by itself at each share is known of it,
// as its use of the GPU is, and stands in no held-out part.
std::vector<Example> examples(const JobTable& table);

class Predictor {
 public:
  double pace(const Situation& situation) const;
  void write(std::ostream& out) const;  // of a forest
  static Result<Predictor> read(std::istream& in, const std::string& name);
  FeatureSet set() const { return set_; }

 private:
  friend Predictor train(const std::vector<Example>&, FeatureSet, Learner, uint64_t);
  FeatureSet set_ = FeatureSet::kWider;
  std::unique_ptr<Learned> learned_;
};

Predictor train(const std::vector<Example>& examples, FeatureSet set, Learner learner,
                uint64_t seed);

// Which examples are held out.
enum class Split : uint8_t {
  kSamples,     // a fifth of all samples: what MMK's text says
  kNeighbours,  // a fifth of all (job, neighbours): all shares of one on one side
  kJobs,        // a fifth of all (model, batch)
  kModels,      // one model after the other
};
// With the last two what is held out is nobody's neighbour either.
inline constexpr const char* kSplitNames[] = {"samples", "neighbours", "jobs", "models"};

struct Fold {
  std::vector<Example> known, held_out;
};
// None that would leave nothing to learn from.
std::vector<Fold> folds(const std::vector<Example>& examples, Split split, uint64_t seed);

struct Errors {
  double absolute = 0;  // mean |predicted - measured|
  double relative = 0;  // mean of that ÷ measured
  size_t count = 0;
};
Errors errors_of(const std::vector<Fold>& folds, FeatureSet set, Learner learner, uint64_t seed);

// Baselines without learning. Interpolation: of the same job's nearest measured shares, rather
// beside the same neighbour, else numbers of neighbours, else the mean. Mean curve: of the others
// at this slice and number, or at the nearest shares.
Errors errors_of_interpolation(const std::vector<Fold>& folds);
Errors errors_of_mean_curve(const std::vector<Fold>& folds);

}  // namespace heddle::plan
