#include "bench/micro.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "bench/runner/setting.h"

namespace heddle::bench {
namespace {

struct Line {
  const char* name;
  Measured figure;
};

std::vector<double> microseconds(std::vector<double> ns) {
  for (double& value : ns) value /= 1e3;
  return ns;
}

}  // namespace

double percentile(std::vector<double> samples, double p) {
  const auto at = static_cast<size_t>(p * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(at), samples.end());
  return samples[at];
}

Measured summarize(std::vector<double> samples) {
  return {percentile(samples, 0.5), percentile(samples, 0.75) - percentile(samples, 0.25),
          samples.size()};
}

int micro(const MicroOptions& options) {
  const std::vector<double> hook = measure_hook_ns(options);
  const std::vector<double> decisions = measure_decisions_per_s(options);
  const LaunchSamples launches = measure_launches(options);
  const std::vector<double> gated_us = microseconds(launches.gated);
  Measured p99 = summarize(gated_us);
  p99.median = percentile(gated_us, 0.99);
  const Line rows[] = {{"passthrough_ns", summarize(launches.passthrough)},
                       {"nodaemon_ns", summarize(launches.nodaemon)},
                       {"lease_ns", summarize(launches.lease)},
                       {"lease_paced_ns", summarize(launches.paced)},
                       {"lease_silence_ns", summarize(launches.silent)},
                       {"sparse_paced_ns", summarize(launches.sparse)},
                       {"unobserved_paced_ns", summarize(launches.unobserved)},
                       {"launch_p99_8_threads_over_1", summarize(launches.threads)},
                       {"direct_p99_8_threads_over_1", summarize(launches.threads_direct)},
                       {"gate_rtt_us_p50", summarize(gated_us)},
                       {"gate_rtt_us_p99", p99},
                       {"gate_16_rtt_us_p50", summarize(microseconds(launches.crowd))},
                       {"hook_ns", summarize(hook)},
                       {"decisions_per_s", summarize(decisions)}};

  const std::string driver = options.driver.empty() ? "simulated" : options.driver;
  Loop loop;
  const auto gpu = options.driver.empty() ? std::nullopt : find_gpu(loop);
  nlohmann::json document{{"date", today()},
                          {"commit", commit()},
                          {"gpu", gpu ? gpu->name : "simulated"},
                          {"processors", std::thread::hardware_concurrency()},
                          {"driver", driver},
                          {"quick", options.quick}};
  std::printf("driver: %s; median (interquartile range, samples)\n", driver.c_str());
  for (const Line& row : rows) {
    const Measured& f = row.figure;
    std::printf("%-28s %12.2f  (%.2f, %zu)\n", row.name, f.median, f.spread, f.rounds);
    document[row.name] = f.median;
    document["spread"][row.name] = f.spread;
    document["samples"][row.name] = f.rounds;
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    if (!(file << document.dump(2) << '\n')) {
      throw std::runtime_error(options.json +
                               ": cannot be written; check the path given to --json");
    }
  }
  return 0;
}

}  // namespace heddle::bench
