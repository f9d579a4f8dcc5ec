// How a device splits into groups of SMs, and which sets of them a process is prepared for.
#pragma once

#include <cstdint>

#include "ipc/sm_set.h"

namespace heddle::core {

using ipc::GroupCount;
using ipc::MadeSets;
using ipc::SetSizes;
using ipc::SmCount;
using ipc::SmSet;

inline constexpr uint32_t kSmGroups = ipc::kSmGroups;

// Sizes, in groups: 1, 2, 3, 4, 6, 8 and 12. A process makes a context for each as it starts, at
// 5 MB and a millisecond, and cannot make one later.
inline constexpr SetSizes kSetSizes{0b1000'1010'1111};
// Contexts of one process, that of its rule's set included.
inline constexpr uint32_t kFamilyMost = ipc::kSetsMost;

// How a policy wants the sets of processes that attach from now on (sm_set.family in Lua).
struct SmFamily {
  enum class Placement : uint8_t {
    kEnd,   // every set ends at the last group: launches on sets leave the same SMs free
    kRing,  // each client's sets begin at an anchor of its own, as far from the others' as can be
    kLive,  // each size at several positions: who asks gets the one with least work (KRISP, Alg. 1)
  };
  SetSizes sizes = kSetSizes;
  Placement placement = Placement::kEnd;
  bool isolated = false;  // kRing: a set is cut where the next active client's begin
  uint8_t positions = 1;  // kLive
  GroupCount overlap{};   // kLive: groups of a set that may have others' work (KRISP 4.3)

  bool operator==(const SmFamily&) const = default;
  // Contexts that it needs.
  uint32_t count() const { return sizes.count() * positions; }
};

struct SmGroups {
  GroupCount count;           // 0: the device does not split, or nobody said how
  uint8_t widths[kSmGroups];  // SMs of each group

  SmSet all() const { return SmSet::first(count); }
  SmCount sms_of(SmSet set) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count.get(); ++i) sum += set.has(i) ? widths[i] : 0;
    return SmCount(sum);
  }

  // The least of `sizes` that holds `sm` SMs at the ring's first position within `within` (empty:
  // all), or all of that; 0 if no group of the device would be left out.
  GroupCount size_for(SmCount sm, SetSizes sizes, ipc::SmRing ring, SmSet within) const {
    const SmSet limit = within.or_if_empty(all());
    for (GroupCount n(1); sm.get() > 0 && n < count; ++n) {
      const SmSet set = ipc::ring_groups(n, ring, 0, within, count);
      if (set == limit || (sizes.has(n) && sms_of(set) >= sm)) return n;
    }
    return {};
  }
};

}  // namespace heddle::core
