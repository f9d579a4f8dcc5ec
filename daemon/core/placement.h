// Where work goes on the ring of groups: pure functions.
//
// KRISP (section 4.2) keeps for each compute unit how many kernels it has, and gives a kernel the
// least loaded units. Here a unit is a group of SMs, and a shader engine a GPC. On an H100
// neighbours on the ring are of different GPCs (bench/results/groups.json), so that a set of
// neighbouring groups is what KRISP calls distributed.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "daemon/model/sm_groups.h"

namespace heddle::core {

// Kernels in flight, by group.
using GroupLoad = std::array<uint32_t, kSmGroups>;

enum class Spread : uint8_t {
  kConserved,    // as few engines as hold it, evenly filled (KRISP's own)
  kPacked,       // one engine after the other
  kDistributed,  // evenly over all engines
};

// KRISP's Algorithm 1 by its prose: a mask of `wanted` groups, of the engines with the least work
// the groups with the least. At most `overlap` of them may have others' work: beyond that the mask
// has fewer than wanted, but never none. Groups i * engines / count to the next are of engine i.
SmSet resource_mask(const GroupLoad& load, GroupCount count, uint32_t engines, GroupCount wanted,
                    GroupCount overlap, Spread spread);

// Of sets that were made beforehand, the one that Algorithm 1 would come nearest to: `wanted`
// groups with the least work. If more than `overlap` groups of each have others' work, the largest
// smaller set that has no more; else the smallest set. Empty: there are none.
SmSet least_loaded(const GroupLoad& load, std::span<const SmSet> sets, GroupCount wanted,
                   GroupCount overlap);

// The anchor (1 to count) that is farthest from those taken; 1 if there are none.
uint8_t far_anchor(std::span<const uint8_t> taken, GroupCount count);

// Groups from `anchor` on until the next of `others`; count if there is none.
GroupCount room_at(uint8_t anchor, std::span<const uint8_t> others, GroupCount count);

}  // namespace heddle::core
