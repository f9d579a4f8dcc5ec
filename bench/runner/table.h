// `heddle-bench table`: Markdown from any set of results, so that no table is typed by hand. Of
// fewer slices than kForInterval (statistics.h) no table has a figure.
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

// Of one result: markdown() or brief().
inline std::string table_of(const Json& result, bool wide) {
  return wide ? markdown(result) : brief({result});
}

struct TableStyle {
  bool wide = false;  // markdown() of each, instead of brief() of all
  bool all = false;   // its argument
};
int print_tables(const std::vector<std::string>& files, const TableStyle& style);

}  // namespace heddle::bench
