#include "bench/runner/run.h"

#include <algorithm>
#include <iostream>

#include "bench/runner/kept.h"
#include "bench/runner/result.h"

namespace heddle::bench {
namespace {

using Names = std::pair<std::string, std::string>;

// A figure of a job in a row; nullptr if the result has none, or too few requests for it.
const Json* find(const Json& result, const std::string& row, const std::string& job,
                 const char* figure) {
  const Json* found = &result.at("figures");
  for (const std::string& key : {row, std::string("jobs"), job, std::string(figure)}) {
    const auto next = found->find(key);
    if (next == found->end()) return nullptr;
    found = &*next;
  }
  return found->contains("few") ? nullptr : found;
}

void over_alone(const Json& first, const Json& second, std::vector<Agreement>& out) {
  struct Kind {
    const char *role, *figure, *words;
  };
  static constexpr Kind kKinds[] = {{"latency", "mean_over_alone", " mean ÷ alone"},
                                    {"latency", "p99_over_alone", " p99 ÷ alone"},
                                    {"batch", "per_s_over_alone", " rate ÷ alone"}};
  for (const auto& [row, figures] : first.at("figures").items()) {
    for (const Json& job : first.at("jobs")) {
      const std::string name = job.at("name");
      for (const Kind& kind : kKinds) {
        if (job.at("role") != kind.role) continue;
        const Json* a = find(first, row, name, kind.figure);
        const Json* b = find(second, row, name, kind.figure);
        if (a == nullptr || b == nullptr) continue;
        out.push_back({row, name + kind.words, figure_from(*a), figure_from(*b)});
      }
    }
  }
}

void over_rival(const Json& first, const Json& second, std::vector<Agreement>& out) {
  constexpr const char* kKeys[] = {"of", "over", "job", "metric"};
  for (const Json& a : first.at("ratios")) {
    for (const Json& b : second.at("ratios")) {
      const bool same = std::all_of(std::begin(kKeys), std::end(kKeys),
                                    [&](const char* key) { return a.at(key) == b.at(key); });
      if (!same) continue;
      out.push_back({a.at("of").get<std::string>() + " ÷ " + a.at("over").get<std::string>(),
                     a.at("job").get<std::string>() + " " +
                         (a.at("metric") == "per_s" ? "rate" : a.at("metric").get<std::string>()),
                     figure_from(a), figure_from(b)});
    }
  }
}

std::string text(const Figure& f) {
  char out[64];
  snprintf(out, sizeof out, "%.3f [%.3f, %.3f]", f.value, f.lo, f.hi);
  return out;
}

}  // namespace

std::vector<Agreement> agreements(const Json& first, const Json& second, const Names& names) {
  for (const auto& [result, name] : {std::pair(&first, &names.first), {&second, &names.second}}) {
    if (result->value("benchmark", "") != "scenario" || !result->contains("figures")) {
      throw std::runtime_error(*name + ": has no figures of heddle-bench run; name a finished one");
    }
  }
  const auto same = [&](const char* key) { return first.at(key) == second.at(key); };
  if (!same("scenario")) {
    throw std::runtime_error(names.second + ": is of another scenario than " + names.first +
                             "; compare two results of the same text");
  }
  if (!same("mode") || !same("gpu")) {
    throw std::runtime_error(names.second + ": was measured on " +
                             second.at("gpu").get<std::string>() + ", " + names.first + " on " +
                             first.at("gpu").get<std::string>() +
                             "; heddle-bench validate compares those");
  }
  std::vector<Agreement> out;
  over_alone(first, second, out);
  over_rival(first, second, out);
  if (out.empty()) {
    throw std::runtime_error(names.second + ": has no row in common with " + names.first +
                             "; measure both with the same --policies and --baselines");
  }
  return out;
}

int print_agreements(const std::string& first, const std::string& second) {
  Json a = read_json(first), b = read_json(second);
  const std::vector<Agreement> all = whole({first, second}, [&] {
    a = figured(std::move(a), first);
    b = figured(std::move(b), second);
    return agreements(a, b, {first, second});
  });
  std::cout << "**" << a.at("name").get<std::string>() << "**, "
            << (a.at("mode") == "simulated" ? "simulated" : a.at("gpu").get<std::string>()) << ": "
            << first << " against " << second << "\n\n| row | ratio | first [95 %] | second [95 %] "
            << "| |\n| --- | --- | ---: | ---: | --- |\n";
  size_t apart = 0;
  for (const Agreement& one : all) {
    apart += one.holds() ? 0 : 1;
    std::cout << "| " << one.row << " | " << one.figure << " | " << text(one.first) << " | "
              << text(one.second) << " | " << (one.holds() ? "" : "apart") << " |\n";
  }
  std::cout << '\n'
            << all.size() - apart << " of " << all.size() << " ratios agree within their intervals";
  std::string sign = ": apart are ";
  for (const Agreement& one : all) {
    if (one.holds()) continue;
    std::cout << sign << one.row << " (" << one.figure << ')';
    sign = ", ";
  }
  std::cout << ".\n";
  return apart == 0 ? 0 : 1;
}

}  // namespace heddle::bench
