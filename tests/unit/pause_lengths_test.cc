// How long a pause must have lasted so that the rest is worth using.
#include "daemon/core/gpu_time.h"

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

constexpr double kCostUs = 1'700;

TEST(PauseLengths, KnowsNothingBeforeItHasSeenSome) {
  PauseLengths pauses;
  EXPECT_EQ(pauses.wait_us(kCostUs), kUnlimitedUs);
  for (int i = 0; i < 3; ++i) pauses.add(50'000, 0);
  EXPECT_EQ(pauses.wait_us(kCostUs), kUnlimitedUs);
  pauses.add(50'000, 0);
  EXPECT_LE(pauses.wait_us(kCostUs), 50);
}

// Half of a queue's requests come at once, the others exponentially.
TEST(PauseLengths, WaitsOutTheShortOnes) {
  PauseLengths pauses;
  TimeNs now = 0;
  for (int i = 0; i < 50; ++i) {
    pauses.add(140, now += 7'000'000);
    pauses.add(1'000 + 120.0 * i, now += 7'000'000);
  }
  EXPECT_GT(pauses.wait_us(kCostUs), 140);
  EXPECT_LT(pauses.wait_us(kCostUs), 300);
}

TEST(PauseLengths, NoneIsWorthItWhereAllAreShort) {
  PauseLengths pauses;
  for (int i = 0; i < 50; ++i) pauses.add(900, i * 1'000'000);
  EXPECT_EQ(pauses.wait_us(kCostUs), kUnlimitedUs);
}

TEST(PauseLengths, WhatWasLongAgoCountsLittle) {
  PauseLengths pauses;
  for (int i = 0; i < 50; ++i) pauses.add(900, i * 1'000'000);
  TimeNs now = 10'000'000'000;
  for (int i = 0; i < 50; ++i) pauses.add(8'000, now += 10'000'000);
  EXPECT_LT(pauses.wait_us(kCostUs), 100);
}

TEST(PauseLengths, GapsInsideOfARequestAreNone) {
  PauseLengths pauses;
  TimeNs now = 0;
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 1'000; ++k) pauses.add(20, now += 30'000);
    pauses.add(6'000, now += 6'000'000);
  }
  EXPECT_LE(pauses.wait_us(kCostUs), 50);
}

}  // namespace
}  // namespace heddle::core
