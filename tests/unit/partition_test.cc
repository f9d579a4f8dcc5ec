// Which SMs a text means, and which groups these are (ipc/sm_set.h).
#include "ipc/sm_set.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace heddle::ipc {
namespace {

// An H200.
const std::vector<uint16_t> kH200 = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 12};

uint32_t groups(const char* text, const std::vector<uint16_t>& sms = kH200) {
  const auto range = parse_sms(text);
  EXPECT_TRUE(range) << text;
  return range ? groups_of(*range, sms) : 0;
}
uint32_t count(const char* text) { return sms_of(groups(text), kH200); }

TEST(Partition, ATextNamesANumberARangeOrAShare) {
  EXPECT_EQ(groups("32"), 0xfU);
  EXPECT_EQ(groups("0-31"), 0xfU);
  EXPECT_EQ(groups("32-131"), 0xfff0U);
  EXPECT_EQ(groups("25%"), 0xfU);
  EXPECT_EQ(groups("25%-100%"), 0xfff0U);
  EXPECT_EQ(groups("120-131"), 0x8000U);
  EXPECT_EQ(groups("132"), 0xffffU);
  EXPECT_EQ(count("25%-100%"), 100U);
}

TEST(Partition, WhatIsNoneIsRefused) {
  for (const char* text : {"", "0", "%", "-1", "8-", "8-4", "8-4%", "25%-50", "101%", "10%-10%",
                           "1-2-3", "32 ", " 32", "a", "99999", "50%x", "4294967297"}) {
    EXPECT_FALSE(parse_sms(text)) << text;
  }
}

TEST(Partition, RangesThatMeetShareNoGroupAndLeaveNone) {
  for (uint32_t percent = 4; percent <= 95; ++percent) {
    const uint32_t low = groups_of({0, percent, true}, kH200);
    const uint32_t high = groups_of({percent, 100, true}, kH200);
    EXPECT_EQ(low & high, 0U) << percent;
    EXPECT_EQ(low | high, 0xffffU) << percent;
  }
  for (uint32_t sm = 5; sm < 126; ++sm) {
    const uint32_t low = groups_of({0, sm, false}, kH200);
    EXPECT_EQ(low ^ groups_of({sm, 132, false}, kH200), 0xffffU) << sm;
  }
}

TEST(Partition, OneGroupIsTheLeast) {
  EXPECT_EQ(groups("1"), 1U);
  EXPECT_EQ(groups("1%"), 1U);
  EXPECT_EQ(groups("131-131"), 0x8000U);
  EXPECT_EQ(groups("500-600"), 0x8000U) << "beyond the device";
}

TEST(Partition, ADeviceWithoutGroupsHasNoPartitions) { EXPECT_EQ(groups("25%", {}), 0U); }

}  // namespace
}  // namespace heddle::ipc
