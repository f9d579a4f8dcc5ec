// `heddle-bench table`: Markdown from any set of results, so that no table is typed by hand.
#pragma once

#include <string>
#include <vector>

#include "bench/runner/host.h"

namespace heddle::bench {

// One result's rows, its comparisons, and how it was measured. `all`: also a line for every figure,
// with its interval, spread and count.
std::string markdown(const Json& result, bool all = false);

int print_tables(const std::vector<std::string>& files, bool all);

}  // namespace heddle::bench
