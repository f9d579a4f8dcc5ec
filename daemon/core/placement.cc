#include "daemon/core/placement.h"

#include <algorithm>
#include <numeric>

namespace heddle::core {
namespace {

struct Engine {
  uint32_t from = 0, to = 0;  // groups [from, to)
  uint32_t load = 0;
};

// Engines, those with the least work first; fewer groups than engines are an engine each.
uint32_t engines_of(const GroupLoad& load, uint32_t count, uint32_t engines,
                    std::array<Engine, kSmGroups>& out) {
  engines = std::clamp(engines, 1U, count);
  for (uint32_t i = 0; i < engines; ++i) {
    Engine& e = out[i];
    e = {i * count / engines, (i + 1) * count / engines};
    e.load = std::accumulate(load.begin() + e.from, load.begin() + e.to, 0U);
  }
  std::sort(out.begin(), out.begin() + engines, [](const Engine& a, const Engine& b) {
    return a.load != b.load ? a.load < b.load : a.from < b.from;
  });
  return engines;
}

GroupCount loaded_groups(const GroupLoad& load, SmSet set) {
  GroupCount count;
  set.for_each([&](uint32_t group) { count += GroupCount(load[group] > 0 ? 1 : 0); });
  return count;
}

uint32_t work_of(const GroupLoad& load, SmSet set) {
  uint32_t sum = 0;
  set.for_each([&](uint32_t group) { sum += load[group]; });
  return sum;
}

}  // namespace

SmSet resource_mask(const GroupLoad& load, GroupCount of, uint32_t engines, GroupCount want,
                    GroupCount overlap, Spread spread) {
  const uint32_t count = std::min(of.get(), kSmGroups), wanted = std::min(want.get(), count);
  if (wanted == 0) return {};
  std::array<Engine, kSmGroups> order;
  engines = engines_of(load, count, engines, order);
  const uint32_t of_engine = (count + engines - 1) / engines;
  uint32_t used = spread == Spread::kDistributed ? engines : (wanted + of_engine - 1) / of_engine;
  used = std::clamp(used, 1U, engines);
  const uint32_t each = spread == Spread::kPacked ? of_engine : (wanted + used - 1) / used;
  SmSet mask;
  uint32_t taken = 0, overlapped = 0;
  // Engines differ in size: what the chosen ones cannot hold comes from the others.
  for (uint32_t e = 0; e < engines && taken < wanted; ++e) {
    std::array<uint32_t, kSmGroups> groups;
    const uint32_t size = order[e].to - order[e].from;
    std::iota(groups.begin(), groups.begin() + size, order[e].from);
    std::sort(groups.begin(), groups.begin() + size, [&](uint32_t a, uint32_t b) {
      return load[a] != load[b] ? load[a] < load[b] : a < b;
    });
    const uint32_t most = std::min({e < used ? each : size, size, wanted - taken});
    for (uint32_t j = 0; j < most; ++j, ++taken) {
      if (load[groups[j]] > 0 && ++overlapped > overlap.get()) continue;  // it counts as allocated
      mask |= SmSet::of(groups[j]);
    }
  }
  if (!mask.empty()) return mask;
  // Everything has work: one group, with the least.
  const auto least = std::min_element(load.begin(), load.begin() + count);
  return SmSet::of(static_cast<uint32_t>(least - load.begin()));
}

SmSet least_loaded(const GroupLoad& load, std::span<const SmSet> sets, GroupCount wanted,
                   GroupCount overlap) {
  SmSet best;
  // Allowed before refused, then the size nearest below what is wanted (above it costs others),
  // then the least work.
  const auto better = [&](SmSet a, SmSet b) {
    const bool a_may = loaded_groups(load, a) <= overlap, b_may = loaded_groups(load, b) <= overlap;
    if (a_may != b_may) return a_may;
    const GroupCount a_size = a.count(), b_size = b.count();
    if (!a_may) return a_size != b_size ? a_size < b_size : work_of(load, a) < work_of(load, b);
    const bool a_fits = a_size >= wanted, b_fits = b_size >= wanted;
    if (a_fits != b_fits) return a_fits;
    if (a_size != b_size) return a_fits == (a_size < b_size);
    return work_of(load, a) < work_of(load, b);
  };
  for (const SmSet set : sets) {
    if (!set.empty() && (best.empty() || better(set, best))) best = set;
  }
  return best;
}

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
