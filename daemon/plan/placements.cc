#include "daemon/plan/placements.h"

#include <algorithm>
#include <numeric>

namespace heddle::plan {
namespace {

// What was measured from there on of two jobs together, the way there and back; nullptr: no pair.
const Beside* pair_at(const JobTable& table, size_t at) {
  if (at + 1 >= table.beside.size()) return nullptr;
  const Beside &there = table.beside[at], &back = table.beside[at + 1];
  const bool both = there.job == back.neighbour && there.neighbour == back.job &&
                    there.share == back.neighbour_share && there.neighbour_share == back.share;
  return both ? &there : nullptr;
}

// The round that begins there; without jobs if none does.
Round round_at(const JobTable& table, size_t at) {
  const Beside* const first = pair_at(table, at);
  if (first == nullptr) return {};
  Round round;
  round.left_share = first->share;
  round.right_share = first->neighbour_share;
  const auto goes_on = [&](const Beside* pair) {
    return pair != nullptr && pair->share == round.left_share &&
           pair->neighbour_share == round.right_share;
  };
  for (const Beside* pair = first; goes_on(pair) && pair->job == first->job;
       pair = pair_at(table, at + 2 * round.right.size())) {
    round.right.push_back(pair->neighbour);
  }
  const size_t side = round.right.size();
  if (side < 2 || side > kSideMost) return {};
  for (size_t i = 0; i < side * side; ++i) {
    const Beside* const pair = pair_at(table, at + 2 * i);
    if (!goes_on(pair) || pair->neighbour != round.right[i % side]) return {};
    if (i % side == 0) round.left.push_back(pair->job);
    if (pair->job != round.left.back()) return {};
    round.paces.push_back(pair->pace + table.beside[at + 2 * i + 1].pace);
  }
  return round;
}

}  // namespace

std::vector<Round> rounds(const JobTable& table) {
  std::vector<Round> all;
  for (size_t at = 0; at < table.beside.size();) {
    Round round = round_at(table, at);
    at += std::max<size_t>(1, 2 * round.paces.size());
    if (!round.left.empty()) all.push_back(std::move(round));
  }
  return all;
}

Placed place(const JobTable& table, const Round& round, Judge& judge) {
  const size_t side = round.left.size();
  std::vector<double> expected(side * side);
  for (size_t i = 0; i < expected.size(); ++i) {
    const Tenant both[] = {{&table.curves[round.left[i / side]], false, round.left_share},
                           {&table.curves[round.right[i % side]], false, round.right_share}};
    for (size_t k = 0; k < 2; ++k) expected[i] += judge.pace(both, k, kComputeSlices);
  }
  std::vector<size_t> beside(side);  // left[i] has right[beside[i]]
  std::iota(beside.begin(), beside.end(), 0);
  const auto per_gpu = [&](const std::vector<double>& of) {
    double sum = 0;
    for (size_t i = 0; i < side; ++i) sum += of[i * side + beside[i]];
    return sum / static_cast<double>(side);
  };
  Placed placed;
  placed.random = std::accumulate(round.paces.begin(), round.paces.end(), 0.0) /
                  static_cast<double>(round.paces.size());
  placed.best = placed.worst = per_gpu(round.paces);
  double most = -1;
  do {
    const double measured = per_gpu(round.paces), wanted = per_gpu(expected);
    placed.best = std::max(placed.best, measured);
    placed.worst = std::min(placed.worst, measured);
    if (wanted > most) {
      most = wanted;
      placed.chosen = measured;
    }
  } while (std::next_permutation(beside.begin(), beside.end()));
  return placed;
}

}  // namespace heddle::plan
