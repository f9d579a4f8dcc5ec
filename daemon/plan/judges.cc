#include "daemon/plan/judges.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "daemon/plan/random.h"

namespace heddle::plan {
namespace {

uint64_t mixed(uint64_t hash, uint64_t value) { return Random(hash ^ value).next(); }

void add(double& sum, double use, double most) {
  if (use >= 0) sum = std::max(sum, 0.0) + std::min(use, most);
}

}  // namespace

double ForestJudge::ask(const Situation& situation) {
  uint64_t hash = 0;
  for (double f : features(situation, predictor_.set()))
    hash = mixed(hash, std::bit_cast<uint64_t>(f));
  const auto [at, fresh] = known_.try_emplace(hash, 0);
  if (fresh) at->second = predictor_.pace(situation);
  return at->second;
}

double ForestJudge::pace(std::span<const Tenant> tenants, size_t which, uint32_t compute) {
  const Tenant& self = tenants[which];
  if (!self.job->fits(size_index(compute))) return 0;
  const double part = static_cast<double>(compute) / double{kComputeSlices};
  if (predictor_.set() == FeatureSet::kCurves) return pace_by_curves(tenants, which, part);
  Situation s;
  // Nobody measured a difference between online and offline jobs: the tables have one kind.
  s.share = s.slice = part;
  s.own = self.job->use;
  s.alone_ms = self.job->alone_ms;
  double pace = 1e9;
  if (self.share < 1) {
    Situation small = s;
    small.share = small.slice = std::max(part * self.share, 1.0 / double{kComputeSlices});
    pace = ask(small) * std::min(1.0, part * self.share / small.share);
  }
  for (size_t i = 0; i < tenants.size(); ++i) {
    if (i == which) continue;
    const double most = part * tenants[i].share;
    add(s.beside.sm, tenants[i].job->use.sm, most);
    add(s.beside.bandwidth, tenants[i].job->use.bandwidth, most);
    add(s.beside.l2, tenants[i].job->use.l2, most);
  }
  s.others = static_cast<double>(tenants.size() - 1);
  return std::min(pace, ask(s));
}

double ForestJudge::pace_by_curves(std::span<const Tenant> tenants, size_t which, double part) {
  const Tenant& self = tenants[which];
  const double share = part * self.share;
  const double alone = self.job->alone_at(share);
  double times = 1;
  for (size_t i = 0; i < tenants.size(); ++i) {
    if (i == which) continue;
    const double pace =
        ask(situation_beside(*self.job, share, *tenants[i].job, part * tenants[i].share, part));
    times += std::max(0.0, alone / pace - 1);
  }
  return alone / times;
}

double ErringJudge::pace(std::span<const Tenant> tenants, size_t which, uint32_t compute) {
  const double truth = true_pace(tenants, which, compute, Sharing::kMps);
  if (error_ == 0) return truth;
  uint64_t hash = mixed(seed_, compute);
  for (size_t i = 0; i < tenants.size(); ++i) {
    const Tenant& t = tenants[i];
    // Of the others, the order says nothing.
    const uint64_t name = std::hash<std::string>()(t.job->name());
    const uint64_t one = mixed(name, std::bit_cast<uint64_t>(t.share));
    hash = i == which ? mixed(hash, one) : hash + one;
  }
  constexpr double kMeanOfNormal = 0.7978845608;  // E|z|
  return truth * std::exp(error_ / kMeanOfNormal * Random(hash).normal());
}

}  // namespace heddle::plan
