// A scenario of two jobs, for the tests of bench/runner.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace heddle::bench
