#include "daemon/core/placement.h"

#include <algorithm>

namespace heddle::core {
namespace {

struct Candidate {
  SmSet set;
  uint32_t kernels = 0;
  GroupCount overlapped;  // groups that have kernels
};

Candidate candidate(const GroupLoad& load, SmSet set) {
  Candidate c{set, 0, {}};
  set.for_each([&](uint32_t group) {
    c.kernels += load[group];
    if (load[group] > 0) ++c.overlapped;
  });
  return c;
}

}  // namespace

// The paper's lines: 2 to 9 choose where, 12 to 21 how much of it. Its mask leaves out the units
// beyond the limit one by one; a set that was made beforehand is left for a smaller one.
SmSet resource_mask(const GroupLoad& load, const SmFamily& family, ipc::SmRing ring,
                    GroupCount wanted, SmSet within, GroupCount count) {
  Candidate best;
  for (GroupCount n = wanted; n.get() > 0; --n) {
    if (n != wanted && !family.sizes.has(n)) continue;
    best = candidate(load, ipc::ring_groups(n, ring, 0, within, count));
    for (uint32_t p = 1; p < ring.positions; ++p) {
      const Candidate c = candidate(load, ipc::ring_groups(n, ring, p, within, count));
      if (c.kernels < best.kernels) best = c;
    }
    if (best.overlapped <= family.overlap) break;
  }
  return best.set;
}

GroupCount overlapped(const GroupLoad& load, SmSet set) { return candidate(load, set).overlapped; }

uint8_t far_anchor(std::span<const uint8_t> taken, GroupCount of) {
  const uint32_t count = of.get();
  uint8_t best = 1;
  uint32_t best_far = 0;
  for (uint32_t at = 1; at <= count; ++at) {
    uint32_t far = count;
    for (const uint8_t other : taken) {
      const uint32_t apart = other > at ? other - at : at - other;
      far = std::min({far, apart, count - apart});
    }
    if (far > best_far) best_far = far, best = static_cast<uint8_t>(at);
  }
  return best;
}

GroupCount room_at(uint8_t anchor, std::span<const uint8_t> others, GroupCount of) {
  const uint32_t count = of.get();
  uint32_t room = count;
  for (const uint8_t other : others) {
    if (other == 0 || other == anchor) continue;
    room = std::min(room, (other + count - anchor) % count);
  }
  return GroupCount(room);
}

}  // namespace heddle::core
