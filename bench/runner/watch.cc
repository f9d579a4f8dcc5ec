#include "bench/runner/watch.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace heddle::bench {
namespace {

constexpr const char* kShimThread = "heddle";  // shim/link/helper.cc names it

using Numbers = std::map<std::string, double>;

// The daemon's own counters and those of the scheduler, by their names.
Numbers counters(const Json& status) {
  Numbers out;
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

// µs in each hook of each device's policy; nothing if no policy tells of hooks.
std::optional<Numbers> hooks(const Json& status) {
  std::optional<Numbers> out;
  for (const Json& device : status.value("devices", Json::array())) {
    const Json policy = device.value("policy", Json::object());
    if (!policy.contains("hooks")) continue;
    if (!out) out.emplace();
    for (const Json& hook : policy["hooks"]) {
      const std::string name = std::to_string(device.value("index", 0)) + hook.value("hook", "");
      (*out)[name] = hook.value("sum_us", 0.0);
    }
  }
  return out;
}

// A policy that was loaded meanwhile counts from nothing: the growth is unknown then.
std::optional<double> hooks_grown_us(const Json& before, const Json& now) {
  const std::optional<Numbers> first = hooks(before), last = hooks(now);
  if (!first || !last) return std::nullopt;
  double grown_us = 0;
  for (const auto& [name, us] : *first) {
    if (last->count(name) == 0 || last->at(name) < us) return std::nullopt;
    grown_us -= us;
  }
  for (const auto& [name, us] : *last) grown_us += us;
  return grown_us;
}

template <class F>
F* symbol(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

}  // namespace

Json grown(const Json& before, const Json& now) {
  Numbers first = counters(before), out;
  for (const auto& [key, value] : counters(now)) {
    if (value != first[key]) out[key] = value - first[key];
  }
  if (const auto us = hooks_grown_us(before, now)) out["hooks_us"] = *us;
  return out;
}

Watch::Watch(Daemon& daemon, std::vector<std::pair<std::string, const Job*>> jobs)
    : daemon_(daemon), jobs_(std::move(jobs)), before_(daemon.status()) {
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
    const Json policy = device.value("policy", Json::object());
    if (policy.contains("said")) {
      out.said = {{"verdicts", policy["said"]}, {"trace", policy["trace"]}};
    }
    for (const Json& bound : device.value("bounds", Json::array())) {
      const Json& added = bound["added_us_max"];
      if (added.is_number()) out.added_us_max = std::max(out.added_us_max, added.get<double>());
      const double over_us = bound["exceeded_us_max"];
      if (over_us <= out.exceeded_us_max) continue;
      out.exceeded_us_max = over_us;
      out.exceeded_by = bound["exceeded_by"];
    }
  }
  out.counters = grown(before_, status);
  if (out.counters.count("bound_violations") == 0) out.exceeded_us_max = 0;  // of another block
}

EnergyMeter::EnergyMeter() {
  load();
  if (problem_.empty() && !joules()) problem_ = "NVML has no energy counter for this GPU";
}

void EnergyMeter::load() {
  const char* named = getenv("HEDDLE_NVML");
  void* nvml = dlopen(named != nullptr ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) {
    problem_ = dlerror();
    return;
  }
  const auto init = symbol<int()>(nvml, "nvmlInit_v2");
  const auto by_index = symbol<int(unsigned, void**)>(nvml, "nvmlDeviceGetHandleByIndex_v2");
  const auto by_uuid = symbol<int(const char*, void**)>(nvml, "nvmlDeviceGetHandleByUUID");
  total_mj_ = symbol<int(void*, unsigned long long*)>(nvml, "nvmlDeviceGetTotalEnergyConsumption");
  if (init == nullptr || by_index == nullptr || total_mj_ == nullptr) {
    problem_ = "NVML lacks functions; it is too old";
    return;
  }
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  std::string first = visible != nullptr ? visible : "";
  first.resize(std::min(first.size(), first.find(',')));
  const bool uuid = first.rfind("GPU-", 0) == 0 && by_uuid != nullptr;
  int error = init();
  if (error == 0) {
    error = uuid ? by_uuid(first.c_str(), &device_)
                 : by_index(static_cast<unsigned>(strtoul(first.c_str(), nullptr, 10)), &device_);
  }
  if (error != 0) problem_ = "NVML does not answer: error " + std::to_string(error);
}

std::optional<double> EnergyMeter::joules() const {
  unsigned long long mj = 0;
  if (!problem_.empty() || total_mj_(device_, &mj) != 0) return std::nullopt;
  return static_cast<double>(mj) / 1e3;
}

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
