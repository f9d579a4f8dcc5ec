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

TEST(Arrivals, AfterSettlingTheyComeAsWithoutIt) {
  constexpr sim::TimeNs kSettled = 2'000'000'000;
  for (const char* kind : {"poisson 100", "onoff 100", "open 30", "burst 4 10"}) {
    Arrivals plain(*scenario::parse_arrivals(kind), {}, 7);
    Arrivals settled(*scenario::parse_arrivals(kind), {}, 7, kSettled);
    sim::TimeNs before = -1;
    for (; settled.next() < kSettled; settled.advance()) {
      EXPECT_GE(settled.next(), before) << kind;
      before = settled.next();
    }
    for (int i = 0; i < 500; ++i) {
      ASSERT_EQ(settled.next(), kSettled + plain.next()) << kind << ", arrival " << i;
      plain.advance();
      settled.advance();
    }
  }
}

}  // namespace
}  // namespace heddle::bench
