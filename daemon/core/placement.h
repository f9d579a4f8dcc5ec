// Where work goes on the ring of groups: pure functions.
//
// KRISP (section 4.3) counts for each compute unit the kernels that it has, and gives a kernel the
// least loaded units. Here a unit is a group of SMs. A process has only the sets that it made as it
// started: runs of neighbours on the ring. On an H100 neighbours are of different GPCs
// (bench/results/groups.json), so that of KRISP's distributions over shader engines there is one:
// "distributed".
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "daemon/model/sm_groups.h"

namespace heddle::core {

// Kernels in flight on a set, by group: Algorithm 1's CU_Kernel_Counters.
using GroupLoad = std::array<uint32_t, kSmGroups>;

// KRISP's Algorithm 1 for the sets of a family: of its size `wanted`, the position on the ring
// whose groups have the fewest kernels. If more than `family.overlap` of its groups have any, the
// same of the next smaller size; of the smallest size in any case: never none. `within` (empty:
// all `count` groups): what the client is kept to.
SmSet resource_mask(const GroupLoad& load, const SmFamily& family, ipc::SmRing ring,
                    GroupCount wanted, SmSet within, GroupCount count);

// Groups of the set that have kernels.
GroupCount overlapped(const GroupLoad& load, SmSet set);

// The anchor (1 to count) that is farthest from those taken; 1 if there are none.
uint8_t far_anchor(std::span<const uint8_t> taken, GroupCount count);

// Groups from `anchor` on until the next of `others`; count if there is none.
GroupCount room_at(uint8_t anchor, std::span<const uint8_t> others, GroupCount count);

}  // namespace heddle::core
