// `heddle-bench validate`: a measured result against what virtual time says of the same scenario.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/runner/host.h"
#include "bench/scenario/scenario.h"
#include "bench/virtual/run.h"

namespace heddle::bench {

// What a result says of each row: "JOB mean ms", "JOB mean ÷ alone", "JOB p99 ÷ alone", "JOB / s",
// "JOB / s ÷ alone". Rows have the names of `heddle-bench run`.
using RowFigures = std::map<std::string, std::map<std::string, double>>;

// Of a file of `run` or `virtual`. Throws std::runtime_error if it has nothing about the scenario.
RowFigures figures_of(const Json& result, const scenario::Scenario& scenario,
                      const std::string& file);

struct Comparison {
  std::string row, metric;
  double real = 0, simulated = 0;
  double error() const { return simulated / real - 1; }
  bool is_ratio() const { return metric.ends_with("÷ alone"); }
};
// Figures that both have, by metric and then by row.
std::vector<Comparison> compare(const RowFigures& real, const RowFigures& simulated);

// True for rows of a job alone: the stand-ins are made after them, so that they judge nothing.
bool is_input(const Comparison& comparison);

// Of the pairs of rows whose real figures differ by more than `least` (0.05: 5 %): how many the
// simulation puts in the same order.
struct Order {
  size_t alike = 0, pairs = 0;
  std::string first_other;  // "A before B", as it really is, where the simulation says otherwise
  // Kendall's tau over those pairs: 1 all alike, -1 none.
  double tau() const {
    return pairs > 0 ? 2 * static_cast<double>(alike) / static_cast<double>(pairs) - 1 : 1;
  }
};
Order order_of(const std::vector<Comparison>& one_metric, double least);

// Simulates what each result measured and prints how far off that is: of one each figure, of
// several a line a way. An exit status.
int print_validation(const std::vector<std::string>& reals, const VirtualOptions& options);

}  // namespace heddle::bench
