// Which jobs share a GPU, two on each: placements judged by what was measured of every pair, never
// by a sum of what jobs use alone.
//
// `heddle-bench collect` measures each job of one side beside each of the other, at a share for
// each side: a round. With one job of either side on each GPU all placements of a round are known,
// and so is the best.
#pragma once

#include <vector>

#include "daemon/plan/cluster.h"

namespace heddle::plan {

struct Round {
  std::vector<size_t> left, right;  // of JobTable::curves, as many
  double left_share = 1, right_share = 1;
  std::vector<double> paces;  // measured, of left[i] and right[j] together: [i * right.size() + j]
};

inline constexpr size_t kSideMost = 8;  // all placements are tried

// In the order of the table: samples where a pair's two follow each other, and the pairs of a job.
std::vector<Round> rounds(const JobTable& table);

// Sums of paces a GPU, as they were measured.
struct Placed {
  double best = 0, random = 0, worst = 0;  // random: the mean of all placements
  double chosen = 0;                       // of the one from which the judge expects most
};
Placed place(const JobTable& table, const Round& round, Judge& judge);

}  // namespace heddle::plan
