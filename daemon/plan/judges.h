// What job policies expect of paces: by the forest that learned from other measurements, or by the
// truth made wrong by a stated error, to see how much that costs.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "daemon/plan/cluster.h"
#include "daemon/plan/predictor.h"

namespace heddle::plan {

class ForestJudge : public Judge {
 public:
  explicit ForestJudge(Predictor predictor) : predictor_(std::move(predictor)) {}
  // The lesser of two: of a slice that is as large as its share, and of the slice beside the
  // others.
  double pace(std::span<const Tenant> tenants, size_t which, uint32_t compute) override;

 private:
  double ask(const Situation& situation);
  // Nobody measured three jobs together: what each other one adds to an iteration's time adds up.
  double pace_by_curves(std::span<const Tenant> tenants, size_t which, double part);
  Predictor predictor_;
  std::unordered_map<uint64_t, double> known_;  // by hash of the features
};

// The true pace under MPS, off by `error` on average (0.035: 3.5 %); the same question gets the
// same answer.
class ErringJudge : public Judge {
 public:
  ErringJudge(double error, uint64_t seed) : error_(error), seed_(seed) {}
  double pace(std::span<const Tenant> tenants, size_t which, uint32_t compute) override;

 private:
  double error_;
  uint64_t seed_;
};

}  // namespace heddle::plan
