// What a scenario expects of its rows, held against what was measured. For run.cc and virtual/.
#pragma once

#include <vector>

#include "bench/runner/figures.h"

namespace heddle::bench {

// Of each expectation, in their order:
//   {"expected": its text, "source": ..., "value", "lo", "hi", "bound", "met"}
// `value` has its 95 % interval unless it is a counter; `bound` is times the idle fraction where
// the text says so; `met` is true or false by the value, and null where nothing is to be judged:
// "why" says what is missing. `figures` and `idle` are those of summarize() and idle_fractions().
Json judge(const scenario::Scenario& scenario, const std::vector<Row>& rows,
           const std::vector<Block>& blocks, const Json& figures, const Json& idle);

}  // namespace heddle::bench
