// When the requests of a job come in virtual time.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/virtual/program.h"

namespace heddle::bench {
namespace {

TEST(Arrivals, GapsOfAnOnOffProcessHaveACoefficientOfVariationOfTwo) {
  Arrivals arrivals(*scenario::parse_arrivals("onoff 100"), {}, 7);
  double sum = 0, squares = 0, before = 0;
  constexpr int kGaps = 200'000;
  for (int i = 0; i < kGaps; ++i) {
    arrivals.advance();
    const double at = static_cast<double>(arrivals.next()) / 1e9, gap = at - before;
    sum += gap;
    squares += gap * gap;
    before = at;
  }
  const double mean = sum / kGaps;
  EXPECT_NEAR(mean, 0.01, 0.0002);
  EXPECT_NEAR(std::sqrt(squares / kGaps - mean * mean) / mean, 2, 0.03);
}

}  // namespace
}  // namespace heddle::bench
