// A scenario of two jobs, for the tests of bench/runner.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/runner/figures.h"
#include "bench/scenario/scenario.h"

namespace heddle::bench {

using Names = std::vector<std::string>;

// `rows`: the keys `policies`, `baselines` and `expect`.
inline scenario::Scenario pair(const std::string& rows) {
  auto s = scenario::parse(rows + R"(
block_s = 1
[[job]]
name = "hp"
role = "latency"
slo_ms = 2
command = ["x"]
[[job]]
name = "be"
command = ["y"]
)",
                           "dir/pair.toml");
  EXPECT_TRUE(s) << (s ? "" : s.error().message);
  return *s;
}

inline Samples constant(uint32_t us, size_t count) {
  return {std::vector<uint32_t>(count, us), 1, 0};
}

// The host is twice as slow in the second repetition: ratios within a repetition do not see it.
inline std::vector<Block> drifting() {
  std::vector<Block> out;
  for (const uint32_t rep : {0U, 1U}) {
    const uint32_t k = rep + 1;
    out.push_back({rep, 0, "alone/hp", {{"hp", constant(1000 * k, 100)}}, -1, Json::object()});
    out.push_back({rep, 1, "alone/be", {{"be", constant(1000 * k, 80 / k)}}, -1, Json::object()});
    out.push_back({rep,
                   2,
                   "timeslice",
                   {{"hp", constant(2000 * k, 100)}, {"be", constant(2000 * k, 40 / k)}},
                   -1,
                   Json::object()});
    out.push_back({rep,
                   3,
                   "fifo",
                   {{"hp", constant(1500 * k, 100)}, {"be", constant(4000 * k, 20 / k)}},
                   0.1,
                   {{"asked", 5}}});
  }
  return out;
}

}  // namespace heddle::bench
