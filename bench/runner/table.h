// `heddle-bench table`: Markdown from any set of results, so that no table is typed by hand.
#pragma once

#include <string>
#include <vector>

#include "bench/runner/host.h"

namespace heddle::bench {

// One result's rows, its comparisons, and how it was measured. `all`: also a line for every figure,
// with its interval, spread and count.
std::string markdown(const Json& result, bool all = false);

// One table of several results: a line for each job of each, a column for each row's ratio over
// alone; what they expected and how many met it, and how each was measured.
std::string brief(const std::vector<Json>& results);

struct TableStyle {
  bool all = false;    // markdown()'s
  bool brief = false;  // brief() of all, instead of a table each
};
int print_tables(const std::vector<std::string>& files, const TableStyle& style);

}  // namespace heddle::bench
