// Which SMs a text means, and which groups these are (ipc/sm_set.h).
#include "ipc/sm_set.h"

#include <gtest/gtest.h>

#include <vector>

namespace heddle::ipc {
namespace {

// An H200.
const std::vector<uint16_t> kH200 = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 12};

SmSet groups(const char* text, const std::vector<uint16_t>& widths = kH200) {
  const auto range = parse_sms(text);
  EXPECT_TRUE(range) << text;
  return range ? groups_of(*range, widths) : SmSet();
}

TEST(SmRange, ATextNamesANumberARangeOrAShare) {
  EXPECT_EQ(groups("32"), SmSet(0xf));
  EXPECT_EQ(groups("0-31"), SmSet(0xf));
  EXPECT_EQ(groups("32-131"), SmSet(0xfff0));
  EXPECT_EQ(groups("25%"), SmSet(0xf));
  EXPECT_EQ(groups("25%-100%"), SmSet(0xfff0));
  EXPECT_EQ(groups("120-131"), SmSet(0x8000));
  EXPECT_EQ(groups("132"), SmSet(0xffff));
  EXPECT_EQ(sms_of(groups("25%-100%"), kH200), SmCount(100));
}

TEST(SmRange, ATextThatIsNoRangeIsRefused) {
  for (const char* text : {"", "0", "%", "-1", "8-", "8-4", "8-4%", "25%-50", "101%", "10%-10%",
                           "1-2-3", "32 ", " 32", "a", "99999", "50%x", "4294967297"}) {
    EXPECT_FALSE(parse_sms(text)) << text;
  }
}

TEST(SmRange, RangesThatMeetShareNoGroupAndLeaveNone) {
  for (uint32_t percent = 4; percent <= 95; ++percent) {
    const SmSet low = groups_of({0, percent, true}, kH200);
    const SmSet high = groups_of({percent, 100, true}, kH200);
    EXPECT_TRUE((low & high).empty()) << percent;
    EXPECT_EQ(low | high, SmSet(0xffff)) << percent;
  }
  for (uint32_t sm = 5; sm < 126; ++sm) {
    const SmSet low = groups_of({0, sm, false}, kH200);
    const SmSet high = groups_of({sm, 132, false}, kH200);
    EXPECT_TRUE((low & high).empty()) << sm;
    EXPECT_EQ(low | high, SmSet(0xffff)) << sm;
  }
}

TEST(SmRange, OneGroupIsTheLeast) {
  EXPECT_EQ(groups("1"), SmSet(1));
  EXPECT_EQ(groups("1%"), SmSet(1));
  EXPECT_EQ(groups("131-131"), SmSet(0x8000));
  EXPECT_EQ(groups("500-600"), SmSet(0x8000)) << "beyond the device";
}

TEST(MadeSets, AreOfAWordThatSaysAsMuch) {
  constexpr MadeSets kMade{SetSizes(0b1011), {.anchor = 9, .positions = 4}};
  static_assert(unpack_made(pack_made(kMade)) == kMade);
  EXPECT_FALSE(unpack_made(pack_made({})).any()) << "it made none";
  for (const uint64_t word : {uint64_t{0}, ~uint64_t{0}, uint64_t{0b1011} << 32,
                              uint64_t{0b1011} << 32 | 5 << 8, pack_made(kMade) | 1 << 16}) {
    EXPECT_FALSE(unpack_made(word).any()) << word;
  }
}

TEST(SmRange, DeviceWithoutGroupsHasNoSets) { EXPECT_TRUE(groups("25%", {}).empty()); }

}  // namespace
}  // namespace heddle::ipc
