// The twin of a result: stand-ins that do as its jobs did.
#include <gtest/gtest.h>

#include <fstream>

#include "bench/runner/result.h"
#include "bench/virtual/outcome.h"
#include "bench/virtual/stand_in.h"
#include "tests/folder.h"

namespace heddle::bench {
namespace {

VirtualOptions options_of(const TestFolder& folder, const char* scenario) {
  VirtualOptions options;
  options.policy_directory = HEDDLE_POLICIES;
  options.seed = 7;
  options.scenario = folder.path() + "/s.toml";
  std::ofstream(options.scenario) << scenario;
  return options;
}

// A job without a trace does what was measured of it alone, whatever the scenario guessed.
TEST(VirtualTwin, ATwinDoesAsWasMeasured) {
  const TestFolder folder;
  VirtualOptions options = options_of(folder, R"(
repetitions = 1
block_s = 0.5
policies = ["priority@timeslice"]
[[job]]
name = "H"
role = "latency"
arrivals = "poisson 50%"
workload = "synthetic"
graph = true
tokens = 4
sim = { kernels = 1, kernel_us = 77 }
[[job]]
name = "L"
role = "batch"
workload = "synthetic"
sim = { kernels = 3, kernel_us = 99 }
)");
  auto s = scenario::load(options.scenario);
  ASSERT_TRUE(s) << s.error().message;
  const auto rate = [](double per_s) { return Json{{"per_s", {{"value", per_s}}}}; };
  const Json measured = {
      {"profile",
       {{"H", {{"wall_s", 1}, {"kernel_s", 0.5}, {"kernels", 90'000}, {"iterations", 50}}},
        {"L", {{"wall_s", 1}, {"kernel_s", 0.2}, {"kernels", 8'000}, {"iterations", 20}}}}},
      {"rates", {{"H", 40.0}}},
      {"figures", {{"alone/L", {{"jobs", {{"L", rate(25)}}}}}}}};
  do_as_measured(*s, measured);
  const scenario::SimJob &h = *s->jobs[0].sim, &l = *s->jobs[1].sim;
  EXPECT_EQ(h.kernels, 1u) << "a graph is one launch";
  EXPECT_EQ(h.tokens, 4u);
  EXPECT_DOUBLE_EQ(h.kernel.median_us, 2'500) << "10 ms of GPU time in four tokens";
  EXPECT_DOUBLE_EQ(h.gap.median_us, 3'125) << "at half load 40 a second: 12.5 ms each";
  EXPECT_EQ(l.kernels, 400u);
  EXPECT_DOUBLE_EQ(l.kernel.median_us, 25);
  EXPECT_DOUBLE_EQ(l.gap.median_us, 100) << "25 a second, which the host holds up";

  // A result's own twin is alike in what alone rows say.
  options.json = folder.path() + "/real.json";
  run_virtual(options);
  options.scenario = options.json;
  options.json.clear();
  const Json twin = run_virtual(options).result;
  const Json real = read_json(options.scenario);
  const auto alone = [](const Json& of) {
    return of["figures"]["alone/L"]["jobs"]["L"]["per_s"]["value"].get<double>();
  };
  EXPECT_NEAR(alone(twin) / alone(real), 1, 0.05);
}

// As by the shim: with stops a long kernel costs H little.
TEST(VirtualTwin, KernelsThatRunAreStopped) {
  const TestFolder folder;
  VirtualOptions options = options_of(folder, R"(
repetitions = 1
block_s = 0.5
policies = ["priority@timeslice", "priority:gpu.stops=\"off\"@timeslice"]
[[job]]
name = "H"
role = "latency"
arrivals = "poisson 50"
workload = "synthetic"
sim = { kernels = 1, kernel_us = 1000 }
[[job]]
name = "L"
role = "batch"
workload = "synthetic"
sim = { kernels = 3, kernel_us = 20000 }
)");
  const Json figures = run_virtual(options).result["figures"];
  const auto mean = [&](const char* row) {
    return figures[row]["jobs"]["H"]["mean_over_alone"]["value"].get<double>();
  };
  EXPECT_LT(mean("priority"), 1.6);
  EXPECT_GT(mean("priority:gpu.stops=\"off\""), 2);
}

}  // namespace
}  // namespace heddle::bench
