// How fast a job will run at a share of the GPU, beside what is there: MMK's predictor (section
// III-A), its features of Table I and a few more, and how wrong it is on jobs that it has not seen.
//
// It predicts a pace: the rate over the rate alone on the whole GPU. That stands for both of MMK's
// outputs, throughput of offline jobs and execution time of online ones.
#pragma once

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
};

enum class FeatureSet : uint8_t {
  kTableOne,  // MMK's: job type, MPS configuration, use of SMs, bandwidth and L2 of it and the
              // others
  kWider,  // and how many others, the iteration alone, the slice, what all want over what is there
};
Features features(const Situation& situation, FeatureSet set);

enum class Learner : uint8_t { kForest, kPerceptron, kLinear, kSupportVectors };
inline constexpr const char* kLearnerNames[] = {"forest", "perceptron", "linear", "svr"};

// A measured sample: its job's place in the table, n processes in a slice.
struct Example {
  const JobCurve* job;
  size_t size, n;  // of kSliceSizes; processes
  double pace;
  Situation situation() const;
};
std::vector<Example> examples(const JobTable& table);

class Predictor {
 public:
  double pace(const Situation& situation) const;
  void write(std::ostream& out) const;  // of a forest
  static Result<Predictor> read(std::istream& in, const std::string& name);

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
inline constexpr const char* kSplitNames[] = {"samples", "neighbours", "jobs", "models"};

struct Fold {
  std::vector<Example> known, held_out;
};
std::vector<Fold> folds(const std::vector<Example>& examples, Split split, uint64_t seed);

struct Errors {
  double absolute = 0;  // mean |predicted - measured|
  double relative = 0;  // mean of that ÷ measured
  size_t count = 0;
};
Errors errors_of(const std::vector<Fold>& folds, FeatureSet set, Learner learner, uint64_t seed);

// Baselines without learning. Interpolation: of the same job's nearest measured shares, else
// numbers of neighbours, else the mean. Mean curve: of the others at this slice and number.
Errors errors_of_interpolation(const std::vector<Fold>& folds);
Errors errors_of_mean_curve(const std::vector<Fold>& folds);

}  // namespace heddle::plan
