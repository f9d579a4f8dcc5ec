// GPU time in virtual time, by the model and by the core: never more than passed, and near to each
// other, for the core sees starts and ends only now and then.
#include <gtest/gtest.h>

#include <random>

#include "daemon/sim/virtual.h"

namespace heddle::sim {
namespace {

struct Case {
  uint32_t seed;
  bool mps;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "seed " << c.seed << (c.mps ? ", mps" : ", timeslice");
}

core::Config core_of(bool mps) {
  core::Config core;
  core.mps = mps;
  core.switch_us = mps ? 10 : 70;
  return core;
}

GpuConfig gpu_of(bool mps) {
  GpuConfig gpu;
  gpu.mode = mps ? Mode::kMps : Mode::kTimeSlice;
  return gpu;
}

double core_us(VirtualMachine& machine, size_t client) {
  for (const core::ClientStatus& c : machine.scheduler().view().clients()) {
    if (c.view.id == client + 1) return c.gpu_us;
  }
  return 0;
}

class GpuTime : public ::testing::TestWithParam<Case> {};

TEST_P(GpuTime, OfAllClientsIsAtMostTheTimeThatPassed) {
  std::mt19937 random(GetParam().seed);
  const auto below = [&](uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(random);
  };
  VirtualMachine machine(core_of(GetParam().mps), gpu_of(GetParam().mps));
  const uint32_t clients = 1 + below(5);
  for (uint32_t i = 0; i < clients; ++i) {
    const int priority = below(2) == 0 ? 5 : static_cast<int>(below(10));
    const size_t client = machine.add_client({"c" + std::to_string(i), "", priority});
    for (uint32_t threads = 1 + below(2); threads > 0; --threads) {
      LoopSpec loop;
      loop.launch = {"k", 5 + below(2'000) * 1.0, 1 + below(600)};
      loop.launches = 1 + below(40);
      loop.gap_us = below(2) == 0 ? 0 : below(5'000);
      machine.loop(client, below(3'000'000), loop);
    }
  }
  for (int step = 1; step <= 100; ++step) {
    machine.run_until(step * 3'000'000);
    const double passed_us = static_cast<double>(machine.now()) / 1e3 + 0.01;
    double model = 0, core = 0;
    for (size_t i = 0; i < machine.clients(); ++i) {
      model += machine.stats(i).gpu_us;
      core += core_us(machine, i);
    }
    ASSERT_LE(model, passed_us);
    ASSERT_LE(core, passed_us);
    ASSERT_GT(model, 0);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    for (const bool mps : {false, true}) all.push_back({seed, mps});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuTime, ::testing::ValuesIn(cases()));

class GpuTimeOf : public ::testing::TestWithParam<bool> {};

// Both have windows, and work at all times.
TEST_P(GpuTimeOf, TwoEqualsIsHalfOfItEach) {
  VirtualMachine machine(core_of(GetParam()), gpu_of(GetParam()));
  for (const char* name : {"a", "b"}) {
    LoopSpec loop;
    loop.launch = {"k", 500, 264};
    loop.launches = 20;
    machine.loop(machine.add_client({name, "", 5}), 0, loop);
  }
  machine.run_until(1'000'000'000);
  for (const size_t client : {0, 1}) {
    const ClientStats stats = machine.stats(client);
    EXPECT_NEAR(stats.gpu_us, static_cast<double>(stats.launches) * 500, 1'000);
    EXPECT_NEAR(stats.gpu_us, 0.5e6, 0.03e6) << "switching costs some";
    EXPECT_NEAR(core_us(machine, client), stats.gpu_us, 0.05e6);
  }
}

TEST_P(GpuTimeOf, AClientWhoseKernelsMeetNobodysIsTheirs) {
  VirtualMachine machine(core_of(GetParam()), gpu_of(GetParam()));
  LoopSpec loop;
  loop.launch = {"k", 400, 264};
  loop.gap_us = 600;
  machine.loop(machine.add_client({"alone", "", 5}), 0, loop);
  machine.run_until(1'000'000'000);
  const double kernels_us = static_cast<double>(machine.stats(0).launches) * 400;
  EXPECT_NEAR(machine.stats(0).gpu_us, kernels_us, 0.02 * kernels_us);
  EXPECT_NEAR(core_us(machine, 0), kernels_us, 0.05 * kernels_us);
}

INSTANTIATE_TEST_SUITE_P(Modes, GpuTimeOf, ::testing::Bool());

}  // namespace
}  // namespace heddle::sim
