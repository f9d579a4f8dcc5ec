// `heddle-bench micro`: what a launch costs. Defined in --help (bench/main.cc); run from an
// installed tree, because what is measured is what was installed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::bench {

struct MicroOptions {
  std::string json;
  std::string driver;  // a libcuda.so.1; empty: the simulated one
  bool quick = false;
};

// Both return an exit status, and throw std::runtime_error with the place and the remedy.
int micro(const MicroOptions& options);
int launch_loop(uint32_t count);
// `count` gated launches of so many clients: what of them is the daemon's (micro_gate.cc).
// `beside`: in real time, on another processor than the clients.
int gated_loop(uint32_t clients, uint32_t count, bool beside);

// Leases Q0 and gates everybody else, granting at once: what is left is the round trip.
inline constexpr const char* kGatePolicy = R"(local function window(c)
  if c.priority == 0 then return LEASE end
  return GATE
end
return policy {
  name = "gate", api = 1, version = "1.0.0",
  hooks = {
    client_init = window, client_active = window, client_idle = window,
    enqueue = function(k) return RUN end,
  },
}
)";

struct Measured {
  double median = 0;
  double spread = 0;  // interquartile range
  size_t rounds = 0;
};

// `samples` must not be empty.
Measured summarize(std::vector<double> samples);
double percentile(std::vector<double> samples, double p);

// What a process under the shim and a daemon measured (micro_launch.cc). Nanoseconds.
struct LaunchSamples {
  std::vector<double> passthrough;  // per call, shim - direct, one per round
  std::vector<double> nodaemon;
  std::vector<double> lease;
  std::vector<double> paced;           // one per launch, minus the median bypassed one
  std::vector<double> silent;          // the same of those behind a silence
  std::vector<double> sparse;          // the same where few launches are told
  std::vector<double> unobserved;      // ... of a client that is alone at work
  std::vector<double> threads;         // p99 of single launches, 8 threads ÷ 1, one per round
  std::vector<double> threads_direct;  // the same of direct ones
  std::vector<double> gated;           // one per launch, minus the median direct call
  std::vector<double> crowd;           // the same of 16 gated clients at once
};
LaunchSamples measure_launches(const MicroOptions& options);

// In this process, without shim and daemon (micro_core.cc).
std::vector<double> measure_hook_ns(const MicroOptions& options);
std::vector<double> measure_decisions_per_s(const MicroOptions& options);

// The installed tree: the folder above the one of this executable.
std::string dist();

inline uint32_t scaled(const MicroOptions& options, uint32_t rounds) {
  return options.quick ? rounds / 10 : rounds;
}

}  // namespace heddle::bench
