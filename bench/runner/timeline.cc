#include "bench/runner/timeline.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace heddle::bench {
namespace {

constexpr double kWindowUs = 200'000;

}  // namespace

void save_timeline(const std::string& path, const std::string& scenario, const std::string& row,
                   const Json& jobs) {
  double first = 0, last = INFINITY;
  for (const Json& job : jobs) {
    const Json spans = job.value("spans_us", Json::array());
    if (spans.empty()) {
      throw HostError("no timeline of " + row + ": " + job.at("name").get<std::string>() +
                      " records no kernels");
    }
    first = std::max(first, spans.front()[0].get<double>());
    last = std::min(last, spans.back()[0].get<double>());
  }
  const double begin = (first + last - kWindowUs) / 2;
  Json out = {{"scenario", scenario}, {"row", row}, {"window_us", kWindowUs}};
  for (const Json& job : jobs) {
    Json kept = Json::array();
    for (const Json& span : job["spans_us"]) {
      const double at = std::round((span[0].get<double>() - begin) * 10) / 10;
      if (at >= 0 && at < kWindowUs) kept.push_back({at, span[1], span[2]});
    }
    out["jobs"].push_back({{"name", job["name"]},
                           {"role", job["role"]},
                           {"names", job.value("names", Json::array())},
                           {"spans_us", kept}});
  }
  if (!(std::ofstream(path) << out.dump() << '\n')) {
    throw HostError(path + ": cannot be written");
  }
}

}  // namespace heddle::bench
