#include "bench/runner/watch.h"

#include <algorithm>

namespace heddle::bench {

std::string duration_text(double seconds) {
  const int whole = static_cast<int>(seconds + 0.5);
  char text[32];
  if (whole < 60) {
    snprintf(text, sizeof text, "%d s", whole);
  } else {
    snprintf(text, sizeof text, "%d:%02d", whole / 60, whole % 60);
  }
  return text;
}

std::string block_text(const Block& block, const scenario::Scenario& scenario) {
  std::string out;
  char text[160];
  for (const scenario::Job& job : scenario.jobs) {
    const auto found = block.jobs.find(job.name);
    if (found == block.jobs.end()) continue;
    std::vector<uint32_t> sorted = found->second.us;
    std::sort(sorted.begin(), sorted.end());
    const double count = static_cast<double>(sorted.size());
    double sum = 0;
    for (const uint32_t us : sorted) sum += us;
    if (sorted.empty()) {
      snprintf(text, sizeof text, "  %s: nothing done", job.name.c_str());
    } else if (job.role == scenario::Role::kLatency) {
      snprintf(text, sizeof text, "  %s %.3f p99 %.3f ms", job.name.c_str(), sum / count / 1e3,
               quantile(sorted, 0.99) / 1e3);
    } else {
      snprintf(text, sizeof text, "  %s %.2f/s", job.name.c_str(), count / found->second.span_s);
    }
    out += text;
  }
  return out;
}

}  // namespace heddle::bench
