// How a device splits into groups of SMs. A partition is a set of them, a bit each, 0 the whole
// device (ipc/sm_set.h; DESIGN, "Partitions").
#pragma once

#include <cstdint>

namespace heddle::core {

inline constexpr uint32_t kSmGroups = 32;  // bits of a partition

// Sizes, in groups, of the fences that a process is prepared for: 1, 2, 3, 4, 6, 8 and 12, as bits
// n - 1. It makes each once, as it starts, at 5 MB and a millisecond, and cannot make one later.
inline constexpr uint32_t kFenceSizes = 0b1000'1010'1111;

struct SmGroups {
  uint8_t count;           // 0: the device does not split, or nobody said how
  uint8_t sms[kSmGroups];  // of each group

  uint32_t sms_of(uint32_t partition) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += (partition >> i & 1) != 0 ? sms[i] : 0;
    return sum;
  }

  // The last groups of `within` (0: of all) that hold `sm` SMs and are one of kFenceSizes, else all
  // of them: always the same ones, so that the others stay free of whatever is fenced. 0 if none
  // would be left out.
  uint32_t fence(uint32_t sm, uint32_t within) const {
    const uint32_t all = count < kSmGroups ? (1U << count) - 1 : ~0U;
    uint32_t fence = 0, held = 0, size = 0;
    bool found = false;
    for (uint32_t i = count; i-- > 0 && !found;) {
      if (within != 0 && (within >> i & 1) == 0) continue;
      fence |= 1U << i;
      held += sms[i];
      found = (kFenceSizes >> size++ & 1) != 0 && held >= sm;
    }
    return fence != all ? fence : 0;
  }
};

}  // namespace heddle::core
