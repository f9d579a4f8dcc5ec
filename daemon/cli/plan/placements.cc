// `heddle plan placements`: how good the pairs are that judges choose, by measured pairs.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/daemon.h"
#include "daemon/cli/plan/plan.h"
#include "daemon/plan/judges.h"
#include "daemon/plan/placements.h"

namespace heddle::cli {
namespace {

using nlohmann::json;

// By the same two jobs at other shares.
class MeasuredJudge : public plan::Judge {
 public:
  explicit MeasuredJudge(const plan::JobTable& table) : table_(table) {}
  double pace(std::span<const plan::Tenant> tenants, size_t which, uint32_t) override {
    const plan::Tenant &self = tenants[which], &other = tenants[1 - which];
    double sum = 0, count = 0;
    for (const plan::Beside& b : table_.beside) {
      const bool these =
          &table_.curves[b.job] == self.job && &table_.curves[b.neighbour] == other.job;
      if (!these || (b.share == self.share && b.neighbour_share == other.share)) continue;
      sum += b.pace;
      ++count;
    }
    return count > 0 ? sum / count : 0;
  }

 private:
  const plan::JobTable& table_;
};

// A forest that has seen no pair of the round, or each of them at other shares alone; nullptr: the
// table has no other pairs.
std::unique_ptr<plan::Judge> forest_for(const plan::JobTable& table, const plan::Round& round,
                                        bool elsewhere, uint64_t seed) {
  const auto has = [&](const std::vector<size_t>& side, const plan::JobCurve* job) {
    return std::any_of(side.begin(), side.end(),
                       [&](size_t at) { return &table.curves[at] == job; });
  };
  auto known = plan::examples(table);
  std::erase_if(known, [&](const plan::Example& e) {
    const bool there = has(round.left, e.job) && has(round.right, e.neighbour);
    const bool back = has(round.right, e.job) && has(round.left, e.neighbour);
    const auto at = [&](double own, double other) {
      return !elsewhere || (e.share == own && e.neighbour_share == other);
    };
    return (there && at(round.left_share, round.right_share)) ||
           (back && at(round.right_share, round.left_share));
  });
  if (known.empty()) return nullptr;
  return std::make_unique<plan::ForestJudge>(
      plan::train(known, plan::features_for(table), plan::Learner::kForest, seed));
}

}  // namespace

int plan_placements(const PlanOptions& o, bool as_json) {
  const auto table = plan::read_jobs(o.data);
  if (!table) return show_error(as_json, {kFailed, "plan: " + table.error().message, {}});
  const std::vector<plan::Round> rounds = plan::rounds(*table);
  if (rounds.empty()) {
    return show_error(as_json, {kFailed,
                                "plan: " + o.data +
                                    ": holds no jobs that were each measured "
                                    "beside each of others; measure with `heddle-bench collect`",
                                {}});
  }
  plan::ErringJudge rule(0, o.seed);
  MeasuredJudge measured(*table);
  std::unique_ptr<plan::Judge> forest;
  const plan::Round* before = nullptr;
  int group = 0;  // of rounds of the same jobs
  json rows = json::array();
  for (const plan::Round& round : rounds) {
    if (before == nullptr || before->left != round.left || before->right != round.right) {
      forest = forest_for(*table, round, false, o.seed);
      ++group;
    }
    before = &round;
    const auto seen = forest_for(*table, round, true, o.seed);
    const auto chosen = [&](plan::Judge* judge) {
      return judge != nullptr ? json(plan::place(*table, round, *judge).chosen) : json();
    };
    const plan::Placed placed = plan::place(*table, round, rule);
    rows.push_back({{"group", group},
                    {"shares", {round.left_share, round.right_share}},
                    {"best", placed.best},
                    {"measured", chosen(&measured)},
                    {"forest", chosen(forest.get())},
                    {"seen", chosen(seen.get())},
                    {"rule", placed.chosen},
                    {"random", placed.random},
                    {"worst", placed.worst}});
  }
  if (as_json) {
    write_json({{"source", table->source}, {"rounds", rows}});
    return kOk;
  }
  std::cout << table->source << ": " << rows.size() << " rounds of measured pairs\n";
  printf("%-10s %22s\n", "chosen by", "sum of paces a GPU");
  for (const char* by : {"best", "measured", "seen", "forest", "rule", "random", "worst"}) {
    double sum = 0, count = 0;
    for (const json& row : rows) {
      if (row[by].is_null()) continue;
      sum += row[by].get<double>();
      ++count;
    }
    if (count > 0) printf("%-10s %22.3f\n", by, sum / count);
  }
  return kOk;
}

}  // namespace heddle::cli
