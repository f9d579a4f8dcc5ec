// The histogram of waits.
#include "daemon/core/waits.h"

#include <gtest/gtest.h>

#include "tests/unit/core_fixture.h"

namespace heddle::core {
namespace {

TEST(Waits, BucketsHoldWhatIsUpToTheirBound) {
  EXPECT_EQ(Waits::bucket_of(0), 0u);
  EXPECT_EQ(Waits::bucket_of(-5), 0u) << "a clock that jumped";
  EXPECT_EQ(Waits::bucket_of(1), 0u);
  EXPECT_EQ(Waits::bucket_of(1.5), 1u);
  EXPECT_EQ(Waits::bucket_of(2), 1u);
  EXPECT_EQ(Waits::bucket_of(2.1), 2u);
  EXPECT_EQ(Waits::bucket_of(1 << 20), 20u);
  EXPECT_EQ(Waits::bucket_of((1 << 20) + 1), 21u);
  EXPECT_EQ(Waits::bucket_of(1e18), 21u);
  for (size_t i = 0; i + 1 < Waits::kBuckets; ++i) {
    EXPECT_EQ(Waits::bucket_of(Waits::bound_us(i)), i);
    EXPECT_EQ(Waits::bucket_of(Waits::bound_us(i) + 0.5), i + 1);
  }
}

TEST(Waits, QuantilesLieInTheBucketThatHoldsThem) {
  Waits waits;
  EXPECT_EQ(quantile_us(waits.counts(), 0.5), 0);
  for (int i = 0; i < 98; ++i) waits.add(3);  // up to 4
  waits.add(1000);                            // up to 1024
  waits.add(5e6);
  EXPECT_DOUBLE_EQ(waits.sum_us(), 98 * 3 + 1000 + 5e6);
  EXPECT_GT(quantile_us(waits.counts(), 0.5), 2);
  EXPECT_LE(quantile_us(waits.counts(), 0.5), 4);
  EXPECT_GT(quantile_us(waits.counts(), 0.99), 512);
  EXPECT_LE(quantile_us(waits.counts(), 0.99), 1024);
  EXPECT_EQ(quantile_us(waits.counts(), 1), 1 << 20);
}

TEST_F(CoreTest, CountsWhatEachClientsGrantsWaited) {
  contend();
  now_ += 700 * kUs;
  done(1, 700);  // the gap lets client 2 go
  ASSERT_EQ(grants_.size(), 1u);
  const std::vector<ClientStatus> all = core_->view().clients();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].waits.sum_us(), 0) << "client 1 never asked";
  EXPECT_EQ(all[1].waits.sum_us(), 700);
  EXPECT_EQ(all[1].waits.counts()[Waits::bucket_of(700)], 1u);
}

}  // namespace
}  // namespace heddle::core
