// Samples of alternated cases, their order statistics, and the JSON that bench/table.py reads.
// Used by the CUDA microbenchmarks of this folder, from one thread.
//
// A case is judged against the control of its experiment within the same round, because a shared
// host drifts by more than the effects that are looked for: the report carries the
// median of the paired differences and its 95 % interval, not a difference of medians.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace heddle::bench {

// What a case hands its values to; `metric` indexes Experiment::metrics.
class Recorder {
 public:
  explicit Recorder(size_t metrics) : values_(metrics), round_(metrics), medians_(metrics) {}

  void add(size_t metric, double value) { round_[metric].push_back(value); }

  void end_round() {
    for (size_t m = 0; m < round_.size(); ++m) {
      values_[m].insert(values_[m].end(), round_[m].begin(), round_[m].end());
      medians_[m].push_back(round_[m].empty() ? NAN : quantile(round_[m], 0.5));
      round_[m].clear();
    }
  }

  const std::vector<double>& values(size_t metric) const { return values_[metric]; }
  const std::vector<double>& round_medians(size_t metric) const { return medians_[metric]; }

  // Nearest-rank quantile; copies, since callers keep the order of rounds.
  static double quantile(std::vector<double> v, double q) {
    std::sort(v.begin(), v.end());
    return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
  }

 private:
  std::vector<std::vector<double>> values_, round_, medians_;
};

struct Case {
  std::string name;
  std::function<void(Recorder&)> run;
};

// The first case is the control. Every round runs all cases, each round starting one case later.
struct Experiment {
  std::string name;
  std::string about;
  std::vector<std::string> metrics;
  size_t rounds = 1000;
  std::vector<Case> cases;
};

inline std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", v);
  return std::isfinite(v) ? text : "null";
}

inline std::string summary(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  std::string out = "{\"n\":" + std::to_string(v.size()) +
                    ",\"mean\":" + number(sum / static_cast<double>(v.size()));
  for (auto [key, q] : {std::pair("p5", .05), {"p50", .5}, {"p95", .95}, {"p99", .99}})
    out += std::string(",\"") + key + "\":" + number(Recorder::quantile(v, q));
  return out + "}";
}

// Median of the paired differences with the 95 % interval that order statistics give.
inline std::string paired_difference(const std::vector<double>& v,
                                     const std::vector<double>& control) {
  std::vector<double> d;
  for (size_t i = 0; i < v.size(); ++i)
    if (std::isfinite(v[i] - control[i])) d.push_back(v[i] - control[i]);
  if (d.empty()) return "null";
  const double n = static_cast<double>(d.size());
  const double half = 0.98 / std::sqrt(n);
  return "{\"p50\":" + number(Recorder::quantile(d, .5)) +
         ",\"lo\":" + number(Recorder::quantile(d, std::max(0.0, .5 - half))) +
         ",\"hi\":" + number(Recorder::quantile(d, std::min(1.0, .5 + half))) + "}";
}

// Runs an experiment and returns it as one JSON object.
inline std::string run(const Experiment& e) {
  std::vector<Recorder> recorders(e.cases.size(), Recorder(e.metrics.size()));
  const size_t warm_up = std::min<size_t>(20, e.rounds / 10);
  for (size_t round = 0; round < e.rounds + warm_up; ++round) {
    for (size_t i = 0; i < e.cases.size(); ++i) {
      const size_t c = (i + round) % e.cases.size();
      if (round >= warm_up) {
        e.cases[c].run(recorders[c]);
        recorders[c].end_round();
      } else {
        Recorder discarded(e.metrics.size());
        e.cases[c].run(discarded);
      }
    }
  }
  std::string out = "{\"name\":\"" + e.name + "\",\"about\":\"" + e.about +
                    "\",\"rounds\":" + std::to_string(e.rounds) + ",\"cases\":[";
  for (size_t c = 0; c < e.cases.size(); ++c) {
    out += (c ? ",\n  {" : "\n  {") + std::string("\"name\":\"") + e.cases[c].name + "\"";
    for (size_t m = 0; m < e.metrics.size(); ++m) {
      if (recorders[c].values(m).empty()) continue;
      out += ",\"" + e.metrics[m] + "\":" + summary(recorders[c].values(m));
      if (c > 0 && !recorders[0].values(m).empty())
        out += ",\"" + e.metrics[m] + "_over_control\":" +
               paired_difference(recorders[c].round_medians(m), recorders[0].round_medians(m));
    }
    out += "}";
  }
  return out + "]}";
}

}  // namespace heddle::bench
