// Where SM sets lie: KRISP's Algorithm 1, the anchors of clients on a ring, and the sizes that a
// process is prepared for.
#include "daemon/core/client/outstanding.h"

#include <gtest/gtest.h>

#include "daemon/model/sm_groups.h"

namespace heddle::core {
namespace {

// Of 16 groups: 2, 4 and 8 at four positions each, which begin at groups 0, 4, 8 and 12.
uint32_t mask_of(const GroupLoad& load, uint32_t wanted, uint32_t overlap, uint32_t within = 0) {
  constexpr SetSizes kSizes(0b1000'1010);
  const SmFamily family{kSizes, SmFamily::Placement::kLive, false, 4, GroupCount(overlap)};
  const ipc::SmRing ring{.anchor = 1, .positions = 4};
  const GroupCount size(wanted), all(16);
  return resource_mask(load, family, ring, size, SmSet(within), all).bits();
}

TEST(ResourceMask, OfAnIdleGpuIsTheFirstPosition) {
  EXPECT_EQ(mask_of({}, 2, 0), 0x0003u);
  EXPECT_EQ(mask_of({}, 4, 0), 0x000fu);
  EXPECT_EQ(mask_of({}, 8, 0), 0x00ffu);
}

TEST(ResourceMask, IsThePositionWithTheFewestKernels) {
  const GroupLoad load = {3, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0};
  EXPECT_EQ(mask_of(load, 4, 32), 0x0f00u) << "1 kernel; the others have 3, 2 and 2";
  EXPECT_EQ(mask_of(load, 8, 32), 0x0ff0u) << "3 kernels; the others have 5, 3 and 5";
  EXPECT_EQ(mask_of(load, 2, 32), 0x0300u) << "none";
}

TEST(ResourceMask, OfTheLastPositionGoesAroundTheEnd) {
  const GroupLoad load = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0};
  EXPECT_EQ(mask_of(load, 8, 0), 0xf00fu);
}

TEST(ResourceMask, BeyondTheOverlapLimitIsASmallerSet) {
  const GroupLoad load = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1};
  EXPECT_EQ(mask_of(load, 4, 2), 0xf000u) << "two of its groups may have kernels";
  EXPECT_EQ(mask_of(load, 4, 1), 0x3000u);
  EXPECT_EQ(mask_of(load, 8, 1), 0x3000u);
}

TEST(ResourceMask, OfAFullGpuIsTheSmallestSetWithTheFewestKernels) {
  const GroupLoad load = {2, 2, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 2};
  EXPECT_EQ(mask_of(load, 8, 0), 0x0300u) << "never none";
}

TEST(ResourceMask, KeepsToTheClientsSms) {
  GroupLoad load{};
  load[4] = 1;
  EXPECT_EQ(mask_of(load, 4, 0, 0x00ff), 0x000fu);
  load[0] = 2;
  EXPECT_EQ(mask_of(load, 2, 0, 0x00f0), 0x0030u) << "all four begin there: never none";
  EXPECT_EQ(mask_of(load, 2, 0, 0x0fff), 0x0300u);
}

TEST(Anchors, LieAsFarApartAsCanBe) {
  std::vector<uint8_t> taken;
  for (const uint8_t wanted : {uint8_t{1}, uint8_t{9}, uint8_t{5}, uint8_t{13}}) {
    EXPECT_EQ(far_anchor(taken, GroupCount(16)), wanted);
    taken.push_back(wanted);
  }
  EXPECT_EQ(room_at(5, taken, GroupCount(16)), GroupCount(4));
  EXPECT_EQ(room_at(13, taken, GroupCount(16)), GroupCount(4)) << "around the end";
  EXPECT_EQ(room_at(5, {}, GroupCount(16)), GroupCount(16));
}

TEST(SmGroups, ASizeIsTheNextLargerOfThoseThatProcessesArePreparedFor) {
  SmGroups groups{};
  groups.count = GroupCount(16);
  for (int i = 0; i < 16; ++i) groups.widths[i] = i < 15 ? 8 : 12;
  const auto sms = [&](uint32_t wanted, uint32_t in = 0) {
    const SmSet within(in);
    const GroupCount size = groups.size_for(SmCount(wanted), kSetSizes, {}, within);
    if (size.get() == 0) return 0U;
    return groups.sms_of(ipc::ring_groups(size, {}, 0, within, groups.count)).get();
  };
  EXPECT_EQ(sms(1), 12u);
  EXPECT_EQ(sms(21), 28u);
  EXPECT_EQ(sms(37), 52u) << "5 groups: 6 are the next size";
  EXPECT_EQ(sms(64), 68u);
  EXPECT_EQ(sms(101), 0u) << "13 groups: no size but all";
  EXPECT_EQ(sms(20, 0b111), 24u);
  EXPECT_EQ(sms(1000, 0b11111), 40u) << "all that the client has";
}

}  // namespace
}  // namespace heddle::core
