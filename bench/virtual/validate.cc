#include "bench/virtual/validate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "bench/runner/kept.h"
#include "bench/runner/result.h"
#include "bench/virtual/outcome.h"

namespace heddle::bench {

using scenario::Role;
using scenario::Scenario;

RowFigures figures_of(const Json& result, const Scenario& s, const std::string& file) {
  if (result.value("benchmark", "") != "scenario" || result.value("name", "") != s.name ||
      !result.contains("figures")) {
    throw std::runtime_error(file + ": has no figures of scenario '" + s.name +
                             "'; name the one that it measured");
  }
  RowFigures out;
  const Json& rows = result.at("figures");
  for (const auto& [name, row] : rows.items()) {
    for (const scenario::Job& job : s.jobs) {
      if (!row.at("jobs").contains(job.name)) continue;
      const Json& one = row.at("jobs").at(job.name);
      const auto take = [&, &name = name](const std::string& metric, const char* key) {
        if (!one.contains(key) || one[key].contains("few")) return;
        out[name][job.name + metric] = one[key].at("value").get<double>();
      };
      if (job.role == Role::kLatency) {
        if (one.contains("jct_ms")) {
          out[name][job.name + " mean ms"] = one["jct_ms"].at("mean").at("value").get<double>();
        }
        take(" mean ÷ alone", "mean_over_alone");
        take(" p99 ÷ alone", "p99_over_alone");
      } else {
        take(" / s", "per_s");
        take(" / s ÷ alone", "per_s_over_alone");
      }
    }
  }
  return out;
}

namespace {

constexpr double kAim = 0.15;      // what is hoped for GPU-bound jobs
constexpr double kOrdered = 0.05;  // rows that are closer have no order

// Lower is better for times, higher for rates.
bool is_rate(const std::string& metric) { return metric.find(" / s") != std::string::npos; }

void print_metric(const std::vector<Comparison>& rows) {
  size_t within = 0;
  double sum = 0;
  std::vector<Comparison> judged;
  for (const Comparison& c : rows) {
    char text[160];
    const bool good = std::abs(c.error()) <= kAim;
    snprintf(text, sizeof text, " | %.3f | %.3f | %+.0f %% | %s |\n", c.real, c.simulated,
             100 * c.error(),
             is_input(c) ? "input"
             : good      ? ""
                         : "outside");
    std::cout << "| " << c.metric << " | " << c.row << text;
    if (is_input(c)) continue;
    within += good ? 1 : 0;
    sum += std::abs(c.error());
    judged.push_back(c);
  }
  if (judged.empty()) return;
  const Order order = order_of(judged, kOrdered);
  char text[160];
  snprintf(text, sizeof text,
           "mean absolute error %.0f %%, %zu of %zu within %.0f %%; order %zu of %zu (tau %.2f)",
           100 * sum / static_cast<double>(judged.size()), within, judged.size(), 100 * kAim,
           order.alike, order.pairs, order.tau());
  std::cout << "| **" << rows.front().metric << "** | " << text
            << (order.first_other.empty() ? "" : "; not: " + order.first_other) << " | | | | |\n";
}

}  // namespace

std::vector<Comparison> compare(const RowFigures& real, const RowFigures& simulated) {
  std::vector<Comparison> out;
  for (const auto& [row, metrics] : real) {
    const auto same = simulated.find(row);
    if (same == simulated.end()) continue;
    for (const auto& [metric, value] : metrics) {
      const auto found = same->second.find(metric);
      if (found != same->second.end() && value > 0) {
        out.push_back({row, metric, value, found->second});
      }
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Comparison& a, const Comparison& b) { return a.metric < b.metric; });
  return out;
}

bool is_input(const Comparison& comparison) { return comparison.row.starts_with("alone/"); }

Order order_of(const std::vector<Comparison>& rows, double least) {
  Order order;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = i + 1; k < rows.size(); ++k) {
      const Comparison &a = rows[i], &b = rows[k];
      if (std::abs(a.real / b.real - 1) <= least) continue;
      ++order.pairs;
      if ((a.real < b.real) == (a.simulated < b.simulated)) {
        ++order.alike;
      } else if (order.first_other.empty()) {
        const bool a_first = (a.real < b.real) != is_rate(a.metric);
        order.first_other = (a_first ? a : b).row + " before " + (a_first ? b : a).row;
      }
    }
  }
  return order;
}

int print_validation(const std::string& real, const VirtualOptions& options) {
  const Json measured = figured(read_json(real), real);
  const heddle::Result<Scenario> scenario = scenario::load(options.scenario, options.pair);
  if (!scenario) throw std::runtime_error(scenario.error().message);
  const RowFigures truth = figures_of(measured, *scenario, real);
  const VirtualRun run = run_virtual(options);
  const std::vector<Comparison> all =
      compare(truth, figures_of(run.result, *scenario, options.scenario + " (simulated)"));
  std::cout << "**" << scenario->name << "**: " << real << " ("
            << measured.value("mode", "mode unknown") << ", " << measured.value("gpu", "?")
            << ") against virtual time, seed " << run.result["seed"] << "\n\n"
            << "| figure | row | real | simulated | error | |\n"
            << "| --- | --- | ---: | ---: | ---: | --- |\n";
  for (size_t i = 0; i < all.size();) {
    size_t end = i;
    while (end < all.size() && all[end].metric == all[i].metric) ++end;
    print_metric(
        {all.begin() + static_cast<ptrdiff_t>(i), all.begin() + static_cast<ptrdiff_t>(end)});
    i = end;
  }
  for (const scenario::Job& job : scenario->jobs) {
    std::cout << (&job == scenario->jobs.data() ? "\nIn the simulation: " : "; ") << job.name
              << " is "
              << (job.sim->trace.empty()
                      ? "a synthetic stand-in"
                      : std::filesystem::path(job.sim->trace).filename().string());
  }
  std::cout
      << ".\nInputs: traces, and the rows of a job alone, which made the stand-ins; no other row "
         "of this result did.\n\n";
  return 0;
}

}  // namespace heddle::bench
