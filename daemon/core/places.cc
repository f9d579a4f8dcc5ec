#include "daemon/core/places.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "daemon/core/client/outstanding.h"

namespace heddle::core {

// The shim makes a client's contexts once, before its first launch. So the client keeps the sets
// that it attached with, also under later daemons.
void Places::give_family(Client& c, const SmFamily& family, MadeSets made) const {
  c.place.family = family;
  if (c.place.groups.count.get() == 0) return;
  if (made.any() && made.ring.anchor <= c.place.groups.count.get()) {
    c.place.family.sizes = made.sizes;
    c.place.ring = made.ring;
    c.place.claimed = true;
    return;
  }
  c.place.ring.positions =
      c.place.family.placement == SmFamily::Placement::kLive ? c.place.family.positions : 1;
  if (c.place.family.placement == SmFamily::Placement::kEnd) return;
  if (c.place.family.placement == SmFamily::Placement::kLive) {
    c.place.ring.anchor = 1;  // all clients have the same sets, and the core chooses among them
    return;
  }
  std::vector<uint8_t> taken;
  for (const auto& [id, other] : roster_.all()) {
    if (other.get() != &c && other->place.ring.anchor != 0)
      taken.push_back(other->place.ring.anchor);
  }
  c.place.ring.anchor = far_anchor(taken, c.place.groups.count);
}

// The distance at which far_anchor places so many clients. A client that claims an anchor of its
// own cannot push another one below this.
GroupCount Places::even_share(GroupCount of) const {
  const auto sharers = std::ranges::count_if(
      roster_.all(), [](const auto& entry) { return entry.second->place.ring.anchor != 0; });
  const auto parts = std::bit_ceil(static_cast<uint32_t>(std::max<ptrdiff_t>(sharers, 1)));
  return GroupCount(std::max(1u, of.get() / parts));
}

SmSet Places::isolated_set(const Client& c) const {
  if (c.place.ring.anchor == 0 || !c.place.family.isolated) return {};
  std::vector<uint8_t> all, given;
  for (const Client* other : roster_.active()) {
    if (other == &c || other->place.ring.anchor == 0) continue;
    all.push_back(other->place.ring.anchor);
    if (!other->place.claimed) given.push_back(other->place.ring.anchor);
  }
  const GroupCount unclaimed = room_at(c.place.ring.anchor, given, c.place.groups.count);
  const GroupCount room = std::max(room_at(c.place.ring.anchor, all, c.place.groups.count),
                                   std::min(unclaimed, even_share(c.place.groups.count)));
  if (room >= c.place.groups.count) return {};
  GroupCount size(1);
  for (GroupCount n(1); n <= room; ++n) size = c.place.family.sizes.has(n) ? n : size;
  return ipc::ring_groups(size, c.place.ring, 0, c.place.sm_set, c.place.groups.count);
}

SmSet Places::standing_set(const Client& c) const {
  const SmSet room = isolated_set(c);
  const SmCount sm = c.standing.kept_to.at(now_.clock);
  const GroupCount size = sm.get() != 0 ? c.place.size_for(sm) : GroupCount();
  if (size.get() == 0) return room;
  return ipc::ring_groups(size, c.place.ring, 0, room.or_if_empty(c.place.sm_set),
                          c.place.groups.count);
}

SmSet Places::peek(const Client& c, const Head& w, SmCount sm) const {
  if (!w.movable()) return w.gate.sm_set;
  const GroupCount size = c.place.size_for(sm);
  if (size.get() == 0) return c.place.cut_set;
  return c.place.set_of(size);
}

SmSet Places::place(const Client& c, const Head& w, SmCount sm) {
  if (w.at_gate()) {
    now_.stats.on_set += !w.gate.sm_set.empty() && w.gate.sm_set != c.place.sm_set ? 1 : 0;
    return w.gate.sm_set;
  }
  const Kernel* k = c.kernel(w.kernel);
  GroupCount size = k != nullptr && w.movable() ? k->size : GroupCount();
  if (sm.get() > 0) {
    size = w.movable() ? c.place.size_for(sm) : GroupCount();
    ++(size.get() != 0 ? now_.stats.on_set : now_.stats.off_set);
  }
  if (size.get() == 0) return c.place.cut_set;
  if (c.place.family.placement != SmFamily::Placement::kLive) {
    return c.place.set_of(size);
  }
  const SmSet set = live_set(c, load(nullptr), size);
  const GroupLoad others = load(&c);
  // A set that other clients leave free is better, even if the client's own work is there.
  return overlapped(others, set) <= c.place.family.overlap ? set : live_set(c, others, size);
}

SmCount Places::free(const Client& c, const Head& w, SmCount sm) const {
  if (c.place.groups.count.get() == 0) {  // a client without sets launches on all SMs
    const auto works = [&](const Client* o) { return o != &c && !o->work.outstanding.empty(); };
    const auto& active = roster_.active();
    return std::any_of(active.begin(), active.end(), works) ? SmCount()
                                                            : SmCount(now_.config.sm_total);
  }
  const GroupLoad others = load(&c);
  const GroupCount size = w.movable() ? c.place.size_for(sm) : GroupCount();
  const SmSet set = size.get() == 0 ? c.place.sm_set.or_if_empty(c.place.groups.all())
                                    : live_set(c, others, size);
  return overlapped(others, set) <= c.place.family.overlap ? c.place.groups.sms_of(set) : SmCount();
}

// A launch without a set counts in every group.
GroupLoad Places::load(const Client* but) const {
  GroupLoad load{};
  for (const Client* c : roster_.active()) {
    if (c == but) continue;
    const uint32_t everywhere = c->work.outstanding.any_on_all() ? 1 : 0;
    for (size_t i = 0; i < load.size(); ++i) {
      load[i] += c->work.outstanding.load()[i] + everywhere;
    }
  }
  return load;
}

SmSet Places::live_set(const Client& c, const GroupLoad& load, GroupCount size) const {
  return resource_mask(load, c.place.family, c.place.ring, size, c.place.sm_set,
                       c.place.groups.count);
}

}  // namespace heddle::core
