#include "bench/runner/watch.h"

#include <algorithm>

namespace heddle::bench {
namespace {

constexpr const char* kShimThread = "heddle";  // shim/link/helper.cc names it

// The daemon's own counters and those of the scheduler, by their names.
std::map<std::string, double> counters(const Json& status) {
  std::map<std::string, double> out;
  const auto take = [&](const Json& numbers) {
    for (const auto& [key, value] : numbers.items()) {
      if (value.is_number()) out[key] += value.get<double>();
    }
  };
  take(status.value("counters", Json::object()));
  for (const Json& device : status.value("devices", Json::array())) {
    take(device.value("stats", Json::object()));
  }
  return out;
}

}  // namespace

Watch::Watch(Daemon& daemon, std::vector<std::pair<std::string, const Job*>> jobs)
    : daemon_(daemon), jobs_(std::move(jobs)), counters_(counters(daemon.status())) {
  daemon_cpu_s_ = cpu_s(daemon_.pid());
  for (const auto& [name, job] : jobs_) shim_cpu_s_.push_back(cpu_s(job->pid(), kShimThread));
  begin_s_ = monotonic_s();
}

void Watch::end(Block& out) {
  out.counted_s = monotonic_s() - begin_s_;
  const auto cores = [&](const std::optional<double>& before, const std::optional<double>& now) {
    return before && now ? std::max(0.0, *now - *before) / out.counted_s : -1;
  };
  out.daemon_cpu = cores(daemon_cpu_s_, cpu_s(daemon_.pid()));
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const double busy = cores(shim_cpu_s_[i], cpu_s(jobs_[i].second->pid(), kShimThread));
    if (busy >= 0) out.shim_cpu[jobs_[i].first] = busy;
  }
  const Json status = daemon_.status();
  for (const Json& device : status.value("devices", Json::array())) {
    for (const Json& bound : device.value("bounds", Json::array())) {
      const Json& added = bound["added_us_max"];
      if (added.is_number()) out.added_us_max = std::max(out.added_us_max, added.get<double>());
      const double over_us = bound["exceeded_us_max"];
      if (over_us <= out.exceeded_us_max) continue;
      out.exceeded_us_max = over_us;
      out.exceeded_by = bound["exceeded_by"];
    }
  }
  for (const auto& [key, value] : counters(status)) {
    if (value != counters_[key]) out.counters[key] = value - counters_[key];
  }
  if (out.counters.count("bound_violations") == 0) out.exceeded_us_max = 0;  // of another block
}

}  // namespace heddle::bench
