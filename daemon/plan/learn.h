// Four learners of a number from features, written plainly: the sets are small (about 1 400), and
// a library of machine learning costs more to build than all of the planner. Deterministic by seed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace heddle::plan {

using Features = std::vector<double>;

struct Samples {
  std::vector<Features> x;  // all of one length
  std::vector<double> y;
};

class Learned {
 public:
  virtual ~Learned() = default;
  virtual double predict(const Features& x) const = 0;
};

// Random forest (Breiman): each split is the one of least variance among a random choice of
// features, leaves hold one sample. Each tree sees all samples: bootstrap samples left too many of
// a measured curve's points out (relative error 3.4 % instead of 3.9 % on held-out samples).
class Forest : public Learned {
 public:
  struct Options {
    uint32_t trees = 100;
    double features = 0.8;  // part of them that each split may choose from
    uint64_t seed = 1;
  };
  static std::unique_ptr<Forest> grow(const Samples& samples, const Options& options);
  static Result<std::unique_ptr<Forest>> read(std::istream& in, const std::string& name,
                                              size_t features);

  double predict(const Features& x) const override;
  void write(std::ostream& out) const;

 private:
  struct Node {
    int32_t feature;  // -1: a leaf
    uint32_t right;   // its left child is the node after it
    double value;     // the leaf's, or: left if the feature is at most this
  };
  using Tree = std::vector<Node>;
  friend class Grower;
  std::vector<Tree> trees_;
};

// Ordinary least squares with a constant.
std::unique_ptr<Learned> linear_regression(const Samples& samples);
// Support vector regression, Gaussian kernel; features and target are standardized.
std::unique_ptr<Learned> support_vectors(const Samples& samples);
// One hidden layer of 32 tanh units, Adam.
std::unique_ptr<Learned> perceptron(const Samples& samples, uint64_t seed);

}  // namespace heddle::plan
