// What a job printed, as samples of a block.
#include <gtest/gtest.h>

#include "bench/runner/job.h"
#include "bench/runner/rows.h"
#include "tests/unit/runner_pair.h"

namespace heddle::bench {
namespace {

TEST(Job, IterationsBelongToTheBlockInWhichTheyBegan) {
  const Window window{10, 2, 0.5, 0.5, "closed"};
  const Samples s = within({{9.9, 10.1}, {10.1, 10.4}, {11.9, 12.3}, {12, 12.2}}, window);
  EXPECT_EQ(s.us, (std::vector<uint32_t>{300'000, 400'000}));
  EXPECT_NEAR(s.span_s, 2.2, 1e-9);
  EXPECT_TRUE(within({}, window).us.empty());
  EXPECT_TRUE(s.tbt_us.empty()) << "an iteration without tokens has no times between them";
}

TEST(Job, TheFirstTokenCountsFromTheBeginAndTheOthersFromTheOneBefore) {
  const Window window{10, 2, 0.5, 0.5, "closed"};
  const Samples s = within({{9.5, 9.6, 9.7}, {10, 10.3, 10.4, 10.9}, {11, 11.5}}, window);
  EXPECT_EQ(s.us, (std::vector<uint32_t>{900'000, 500'000}));
  EXPECT_EQ(s.ttft_us, (std::vector<uint32_t>{300'000}));
  EXPECT_EQ(s.tbt_us, (std::vector<uint32_t>{100'000, 500'000}));
}

TEST(Requests, AJobWithALoadRunsAClosedLoopUntilItsRateIsKnown) {
  auto s = pair("");
  s.jobs[0].arrivals = *scenario::parse_arrivals("onoff 50%");
  EXPECT_EQ(requests_of(s, Variant{}, 0, {7, 1}), "closed");
  const std::string known = requests_of(s, Variant{}, 12.5, {7, 1});
  EXPECT_EQ(known.rfind("onoff 12.5 ", 0), 0U) << known;
  EXPECT_EQ(known, requests_of(s, Variant{.mps = true, .managed = true}, 12.5, {7, 1}))
      << "all rows of a repetition have the same requests";
  EXPECT_NE(known, requests_of(s, Variant{}, 12.5, {7, 2}));
}

TEST(Job, AnIterationIsALineOfTwoNumbersOrMore) {
  EXPECT_EQ(parse_iteration("1.5 2.25"), (std::vector<double>{1.5, 2.25}));
  EXPECT_EQ(parse_iteration("1 2 3.5 "), (std::vector<double>{1, 2, 3.5}));
  for (const char* other : {"done", "", "7", "1 2 x", "{\"us\":[1]}", "loading 1 2"}) {
    EXPECT_TRUE(parse_iteration(other).empty()) << other;
  }
}

}  // namespace
}  // namespace heddle::bench
