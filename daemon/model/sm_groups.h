// How a device splits into groups of SMs, and which sets of them a process is prepared for. A set
// is a bit each, 0 the whole device (ipc/sm_set.h).
#pragma once

#include <bit>
#include <cstdint>

#include "ipc/sm_set.h"

namespace heddle::core {

inline constexpr uint32_t kSmGroups = ipc::kSmGroups;

// Sizes, in groups, as bits n - 1: 1, 2, 3, 4, 6, 8 and 12. A process makes a context for each as
// it starts, at 5 MB and a millisecond, and cannot make one later.
inline constexpr uint32_t kFenceSizes = 0b1000'1010'1111;
// Contexts of one process, that of its rule's set included.
inline constexpr uint32_t kFamilyMost = 12;

// How a policy wants the sets of processes that attach from now on (sm_set.family in Lua).
struct SmFamily {
  enum class Placement : uint8_t {
    kEnd,   // every set ends at the last group: what is fenced leaves the same SMs free
    kRing,  // each client's sets begin at an anchor of its own, as far from the others' as can be
    kLive,  // each size at several positions: who asks gets the one with least work (KRISP, Alg. 1)
  };
  uint32_t sizes = kFenceSizes;
  Placement placement = Placement::kEnd;
  bool isolated = false;  // kRing: a set is cut where the next active client's begin
  uint8_t positions = 1;  // kLive
  uint8_t overlap = 0;    // kLive: groups of a set that may have others' work (KRISP 4.3)

  bool operator==(const SmFamily&) const = default;
  // Contexts that it needs.
  uint32_t count() const { return static_cast<uint32_t>(std::popcount(sizes)) * positions; }
};

struct SmGroups {
  uint8_t count;           // 0: the device does not split, or nobody said how
  uint8_t sms[kSmGroups];  // of each group

  uint32_t all() const { return count < kSmGroups ? (1U << count) - 1 : ~0U; }
  uint32_t sms_of(uint32_t set) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += (set >> i & 1) != 0 ? sms[i] : 0;
    return sum;
  }

  // The least of `sizes` that holds `sm` SMs at the ring's first position within `within` (0: all),
  // or all of that; 0 if no group of the device would be left out.
  uint8_t size_for(uint32_t sm, uint32_t sizes, ipc::SmRing ring, uint32_t within) const {
    const uint32_t limit = within != 0 ? within : all();
    for (uint32_t n = 1; sm > 0 && n < count; ++n) {
      const uint32_t set = ipc::ring_groups(n, ring, 0, within, count);
      if (set == limit) return static_cast<uint8_t>(n);
      if ((sizes >> (n - 1) & 1) != 0 && sms_of(set) >= sm) return static_cast<uint8_t>(n);
    }
    return 0;
  }
};

}  // namespace heddle::core
