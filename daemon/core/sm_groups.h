// How a device splits into groups of SMs. A partition is a set of them, a bit each, 0 the whole
// device (ipc/partition.h; DESIGN, "Partitions").
#pragma once

#include <cstdint>

namespace heddle::core {

inline constexpr uint32_t kSmGroups = 32;  // bits of a partition

struct SmGroups {
  uint8_t count;           // 0: the device does not split, or nobody said how
  uint8_t sms[kSmGroups];  // of each group

  uint32_t sms_of(uint32_t partition) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += (partition >> i & 1) != 0 ? sms[i] : 0;
    return sum;
  }

  // The last groups of `within` (0: of all) that hold `sm` SMs, all of them if they hold fewer:
  // always the same ones, so that the others stay free of whatever is fenced. 0 if none would be
  // left out.
  uint32_t fence(uint32_t sm, uint32_t within) const {
    uint32_t fence = 0, held = 0;
    for (uint32_t i = count; i-- > 0 && held < sm;) {
      if (within != 0 && (within >> i & 1) == 0) continue;
      fence |= 1U << i;
      held += sms[i];
    }
    const uint32_t all = count < kSmGroups ? (1U << count) - 1 : ~0U;
    return fence != all ? fence : 0;
  }
};

}  // namespace heddle::core
