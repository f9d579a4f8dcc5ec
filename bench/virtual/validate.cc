#include "bench/virtual/validate.h"

#include <algorithm>
#include <cmath>
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

namespace {

std::vector<Comparison> simulate(const std::string& real, VirtualOptions options) {
  const Json measured = figured(read_json(real), real);
  options.scenario = real;
  const VirtualRun run = run_virtual(options);
  const heddle::Result<Scenario> scenario = scenario::parse(measured.at("scenario"), real);
  if (!scenario) throw std::runtime_error(scenario.error().message);
  std::cerr << real << ": seed " << run.result["seed"] << '\n';
  return compare(figures_of(measured, *scenario, real),
                 figures_of(run.result, *scenario, real + " (simulated)"));
}

// Of each way and figure: how far off the middle one of the results is, and how many are near.
void print_ways(const std::vector<Comparison>& all) {
  std::vector<std::string> ways, metrics;
  const auto note = [](std::vector<std::string>& in, const std::string& name) {
    if (std::find(in.begin(), in.end(), name) == in.end()) in.push_back(name);
  };
  for (const Comparison& c : all) {
    if (!c.is_ratio() || is_input(c)) continue;
    note(ways, c.row);
    note(metrics, c.metric);
  }
  std::cout << "| median error (within " << 100 * kAim << " %) |";
  for (const std::string& metric : metrics) std::cout << ' ' << metric << " |";
  std::cout << "\n| --- |";
  for (size_t i = 0; i < metrics.size(); ++i) std::cout << " ---: |";
  std::cout << '\n';
  for (const std::string& way : ways) {
    std::cout << "| " << way << " |";
    for (const std::string& metric : metrics) {
      std::vector<double> off;
      for (const Comparison& c : all) {
        if (c.row == way && c.metric == metric) off.push_back(std::abs(c.error()));
      }
      const auto near = std::count_if(off.begin(), off.end(), [](double e) { return e <= kAim; });
      char text[64] = " – |";
      if (!off.empty()) {
        snprintf(text, sizeof text, " %.0f %% (%zd of %zu) |", 100 * median(off).value, near,
                 off.size());
      }
      std::cout << text;
    }
    std::cout << '\n';
  }
}

}  // namespace

int print_validation(const std::vector<std::string>& reals, const VirtualOptions& options) {
  std::vector<Comparison> all;
  for (const std::string& real : reals) {
    const std::vector<Comparison> one = simulate(real, options);
    all.insert(all.end(), one.begin(), one.end());
  }
  if (reals.size() > 1) {
    print_ways(all);
    return 0;
  }
  std::cout << "| figure | row | real | simulated | error | |\n"
            << "| --- | --- | ---: | ---: | ---: | --- |\n";
  for (size_t i = 0; i < all.size();) {
    size_t end = i;
    while (end < all.size() && all[end].metric == all[i].metric) ++end;
    print_metric(
        {all.begin() + static_cast<ptrdiff_t>(i), all.begin() + static_cast<ptrdiff_t>(end)});
    i = end;
  }
  return 0;
}

}  // namespace heddle::bench
