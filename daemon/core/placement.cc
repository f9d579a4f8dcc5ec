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

uint32_t loaded_groups(const GroupLoad& load, uint32_t set) {
  uint32_t count = 0;
  for (; set != 0; set &= set - 1) {
    count += load[static_cast<size_t>(std::countr_zero(set))] > 0 ? 1 : 0;
  }
  return count;
}

uint32_t work_of(const GroupLoad& load, uint32_t set) {
  uint32_t sum = 0;
  for (; set != 0; set &= set - 1) sum += load[static_cast<size_t>(std::countr_zero(set))];
  return sum;
}

}  // namespace

uint32_t resource_mask(const GroupLoad& load, uint32_t count, uint32_t engines, uint32_t wanted,
                       uint32_t overlap, Spread spread) {
  count = std::min(count, kSmGroups);
  wanted = std::min(wanted, count);
  if (wanted == 0) return 0;
  std::array<Engine, kSmGroups> order;
  engines = engines_of(load, count, engines, order);
  const uint32_t of_engine = (count + engines - 1) / engines;
  uint32_t used = spread == Spread::kDistributed ? engines : (wanted + of_engine - 1) / of_engine;
  used = std::clamp(used, 1U, engines);
  const uint32_t each = spread == Spread::kPacked ? of_engine : (wanted + used - 1) / used;
  uint32_t mask = 0, taken = 0, overlapped = 0;
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
      if (load[groups[j]] > 0 && ++overlapped > overlap) continue;  // it counts as allocated
      mask |= 1U << groups[j];
    }
  }
  if (mask != 0) return mask;
  // Everything has work: one group, with the least.
  const auto least = std::min_element(load.begin(), load.begin() + count);
  return 1U << (least - load.begin());
}

uint32_t least_loaded(const GroupLoad& load, std::span<const uint32_t> sets, uint32_t wanted,
                      uint32_t overlap) {
  uint32_t best = 0;
  // Allowed before refused, then the size nearest below what is wanted (above it costs others),
  // then the least work.
  const auto better = [&](uint32_t a, uint32_t b) {
    const bool a_may = loaded_groups(load, a) <= overlap, b_may = loaded_groups(load, b) <= overlap;
    if (a_may != b_may) return a_may;
    const auto a_size = static_cast<uint32_t>(std::popcount(a));
    const auto b_size = static_cast<uint32_t>(std::popcount(b));
    if (!a_may) return a_size != b_size ? a_size < b_size : work_of(load, a) < work_of(load, b);
    const bool a_fits = a_size >= wanted, b_fits = b_size >= wanted;
    if (a_fits != b_fits) return a_fits;
    if (a_size != b_size) return a_fits == (a_size < b_size);
    return work_of(load, a) < work_of(load, b);
  };
  for (const uint32_t set : sets) {
    if (set != 0 && (best == 0 || better(set, best))) best = set;
  }
  return best;
}

uint8_t far_anchor(std::span<const uint8_t> taken, uint32_t count) {
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

uint32_t room_at(uint8_t anchor, std::span<const uint8_t> others, uint32_t count) {
  uint32_t room = count;
  for (const uint8_t other : others) {
    if (other == 0 || other == anchor) continue;
    room = std::min(room, (other + count - anchor) % count);
  }
  return room;
}

}  // namespace heddle::core
