#include "bench/virtual/stand_in.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "bench/runner/rows.h"

namespace heddle::bench {
namespace {

using scenario::Job;
using scenario::SimJob;

// Whose GPU is idle for less than this part of its time has launches queued up: the host is ahead.
constexpr double kAhead = 0.1;

const Json* value_at(const Json& in, std::initializer_list<std::string> path) {
  const Json* at = &in;
  for (const std::string& key : path) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &at->at(key);
  }
  return at;
}

// Of an iteration alone, µs. 0: it was not measured. Requests wait for each other, so that of those
// at a given load the load tells.
double alone_us(const Job& job, const Json& measured) {
  const Json* rate = value_at(measured, {"rates", job.name});
  if (job.arrivals.load > 0 && rate != nullptr)
    return job.arrivals.load * 1e6 / rate->get<double>();
  const std::string row = alone_name(job.name, false);
  const bool closed = job.arrivals.kind == scenario::ArrivalKind::kClosed;
  const Json* per_s = value_at(measured, {"figures", row, "jobs", job.name, "per_s", "value"});
  if (closed) return per_s != nullptr ? 1e6 / per_s->get<double>() : 0;
  const Json* ms =
      value_at(measured, {"figures", row, "jobs", job.name, "jct_ms", "mean", "value"});
  return ms != nullptr ? ms->get<double>() * 1e3 : 0;
}

uint32_t number(const Job& job, const char* param) {
  uint32_t out = 0;
  const auto found = job.params.find(param);
  if (found == job.params.end()) return 0;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), out);
  return out;
}

}  // namespace

void do_as_measured(scenario::Scenario& scenario, const Json& measured) {
  for (Job& job : scenario.jobs) {
    const Json* profile = value_at(measured, {"profile", job.name});
    double total_us = alone_us(job, measured);
    if ((job.sim && !job.sim->trace.empty()) || profile == nullptr || total_us <= 0) continue;
    if (!job.sim) job.sim.emplace();
    SimJob& sim = *job.sim;
    if (const uint32_t tokens = number(job, "tokens"); tokens > 0) sim.tokens = tokens;
    const double iterations =
        profile->at("iterations").get<double>() * std::max(sim.tokens, uint32_t{1});
    total_us /= std::max(sim.tokens, uint32_t{1});
    const double gpu_us =
        std::min(profile->at("kernel_s").get<double>() * 1e6 / iterations, total_us);
    const auto graph = job.params.find("graph");
    const bool whole = graph != job.params.end() && graph->second == "true";
    if (!whole && profile->contains("kernels")) {
      const double launches = profile->at("kernels").get<double>() / iterations;
      sim.kernels = std::max(1u, static_cast<uint32_t>(std::lround(launches)));
      sim.syncs = std::min(sim.syncs, sim.kernels);
    }
    const double spread = std::exp(sim.kernel.sigma * sim.kernel.sigma / 2);
    sim.kernel.median_us = gpu_us / sim.kernels / spread;
    const bool ahead = gpu_us > (1 - kAhead) * total_us;
    sim.gap = {ahead ? 0 : total_us / sim.kernels, 0};
    sim.pause = {ahead ? total_us - gpu_us : 0, 0};
  }
}

}  // namespace heddle::bench
