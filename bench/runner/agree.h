// `heddle-bench agree`: whether two results of one scenario say the same, row by row.
#pragma once

#include <string>
#include <vector>

#include "bench/runner/figures.h"

namespace heddle::bench {

// One ratio that both results have, each with its 95 % interval.
struct Agreement {
  std::string row;     // "gapfill@mps", or "gapfill@mps ÷ mps+priority"
  std::string figure;  // "service mean ÷ alone"
  Figure first, second;

  // Whether the intervals meet. Of equally wide ones of the same truth, one pair in 180 does not.
  bool holds() const { return first.lo <= second.hi && second.lo <= first.hi; }
};

// The ratios that both have, over alone and of each policy over its rival: mean and p99 of latency
// jobs, rates of batch jobs. Absolute times are left out: they move with the host. Throws
// std::runtime_error unless both are of the same scenario and kind of GPU; `names` are for its
// message.
std::vector<Agreement> agreements(const Json& first, const Json& second,
                                  const std::pair<std::string, std::string>& names);

// Prints a Markdown table of them; an exit status: 1 if any does not hold.
int print_agreements(const std::string& first, const std::string& second);

}  // namespace heddle::bench
