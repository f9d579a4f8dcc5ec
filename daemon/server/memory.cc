#include "daemon/server/memory.h"

#include <algorithm>

#include "daemon/base/container_id.h"

namespace heddle::server {
namespace {

constexpr uint64_t kAll = ~uint64_t{0};

uint64_t less(uint64_t from, uint64_t bytes) { return from - std::min(from, bytes); }
uint64_t sum(uint64_t a, uint64_t b) { return a + std::min(b, kAll - a); }

std::string group_of(const Identity& who) {
  const std::string rule = "rule " + who.rule;
  switch (who.terms.memory_per) {
    case MemoryPer::kRule:
      return rule;
    case MemoryPer::kClient:
      return rule + ", client " + std::to_string(who.id);
    case MemoryPer::kUser:
      return rule + ", uid " + std::to_string(who.uid);
    case MemoryPer::kLabel:
      return rule + ", label " + who.label;
    case MemoryPer::kCgroup:
      return rule + ", cgroup " + who.cgroup;
    case MemoryPer::kContainer: {
      const std::string container = container_id_of(who.cgroup);
      return rule + (container.empty() ? ", cgroup " + who.cgroup : ", container " + container);
    }
  }
  return rule;
}

}  // namespace

std::vector<Membership> memberships_of(const Identity& who) {
  std::vector<Membership> all;
  if (const auto limit = ipc::parse_memory(who.terms.memory))
    all.push_back({group_of(who), *limit});
  // Groups of a run are per user, so that no client joins another user's.
  if (const auto asked = ipc::parse_memory(who.memory_asked)) {
    const std::string whose = who.run.empty() ? "client " + std::to_string(who.id)
                                              : "run " + std::to_string(who.uid) + ":" + who.run;
    all.push_back({whose, *asked});
  }
  return all;
}

void MemoryAccounts::join(core::ClientId id, const DeviceMap& gpus, const Bytes& total,
                          const Bytes& held) {
  Member& member = members_[id];
  member.gpus = gpus;
  member.total = total;
  member.granted = held;
}

void MemoryAccounts::set_limits(core::ClientId id, std::vector<Membership> limits) {
  const auto member = members_.find(id);
  if (member == members_.end()) return;
  const bool was_free = member->second.limits.empty();
  member->second.limits = std::move(limits);
  if (member->second.limits.empty()) member->second.granted = {};
  if (!was_free) return;
  for (uint32_t device = 0; device < ipc::kDevices; ++device) {
    for (const Membership& limit : member->second.limits) {
      const uint64_t most = limit.limit.of(member->second.total[device]);
      uint64_t& granted = member->second.granted[device];
      if (most != 0) granted = std::min(granted, most);
    }
  }
}

uint64_t MemoryAccounts::held(core::ClientId id, const Member& member, uint32_t device) const {
  return std::max(member.granted[device], used_(id, device));
}

template <class Visit>
void MemoryAccounts::for_each_other(core::ClientId id, const std::string& group, uint8_t gpu,
                                    Visit&& visit) const {
  const auto belongs = [&](const Member& member) {
    return std::any_of(member.limits.begin(), member.limits.end(),
                       [&](const Membership& limit) { return limit.group == group; });
  };
  for (const auto& [other, member] : members_) {
    if (other == id || member.away || !belongs(member)) continue;
    const uint32_t device = device_on(other, gpu);
    if (device < ipc::kDevices) visit(other, member, device);
  }
}

uint64_t MemoryAccounts::held_by_others(core::ClientId id, const std::string& group,
                                        uint8_t gpu) const {
  uint64_t all = 0;
  for_each_other(id, group, gpu, [&](core::ClientId other, const Member& member, uint32_t device) {
    all = sum(all, sum(held(other, member, device), context_));
  });
  return all;
}

// If there is too little room, but enough with other members' unused memory, the client is told to
// retry.
ipc::MemoryVerdict MemoryAccounts::need(core::ClientId id, uint32_t device, uint64_t bytes) {
  const auto it = members_.find(id);
  if (it == members_.end() || device >= ipc::kDevices) return ipc::kMemoryGranted;
  Member& member = it->second;
  const uint8_t gpu = member.gpus[device];
  if (gpu == kNoGpu) return ipc::kMemoryGranted;
  uint64_t room = kAll, room_soon = kAll, chunk = ipc::kMemoryChunk;
  for (const Membership& limit : member.limits) {
    const uint64_t most = limit.limit.of(member.total[device]);
    if (most == 0) continue;  // the limit is a part of an unknown size
    const uint64_t free = less(less(most, context_), held_by_others(id, limit.group, gpu));
    uint64_t slack = 0;
    for_each_other(id, limit.group, gpu, [&](core::ClientId other, const Member& m, uint32_t d) {
      slack = sum(slack, less(m.granted[d], used_(other, d)));
    });
    room = std::min(room, free);
    room_soon = std::min(room_soon, sum(free, slack));
    chunk = std::min(chunk, ipc::memory_chunk(most));
  }
  uint64_t& granted = member.granted[device];
  if (bytes <= granted) return ipc::kMemoryGranted;
  if (bytes <= room) {
    granted = bytes + std::min(chunk, (room - bytes) / 8);
    return ipc::kMemoryGranted;
  }
  return bytes <= room_soon ? ipc::kMemoryRetry : ipc::kMemoryRefused;
}

bool MemoryAccounts::fits_without(core::ClientId id, uint32_t device, uint64_t bytes,
                                  const Clients& without) const {
  const auto it = members_.find(id);
  if (it == members_.end() || device >= ipc::kDevices) return true;
  const Member& member = it->second;
  const uint8_t gpu = member.gpus[device];
  return std::all_of(member.limits.begin(), member.limits.end(), [&](const Membership& limit) {
    const uint64_t most = limit.limit.of(member.total[device]);
    uint64_t all = bytes == kAll ? most : sum(bytes, context_);
    for_each_other(id, limit.group, gpu, [&](core::ClientId other, const Member& m, uint32_t d) {
      if (!without(other)) all = sum(all, sum(held(other, m, d), context_));
    });
    return most == 0 || gpu == kNoGpu || all <= most;
  });
}

void MemoryAccounts::set_away(core::ClientId id, bool away) {
  const auto member = members_.find(id);
  if (member != members_.end()) member->second.away = away;
}

bool MemoryAccounts::fits_back(core::ClientId id, const Clients& without) const {
  const auto it = members_.find(id);
  for (uint32_t device = 0; it != members_.end() && device < ipc::kDevices; ++device) {
    const uint64_t bytes = held(id, it->second, device);
    if (bytes == 0 || fits_without(id, device, bytes, without)) continue;
    if (!fits_without(id, device, kAll, without)) return false;
  }
  return true;
}

bool MemoryAccounts::share_limit(core::ClientId a, core::ClientId b) const {
  const auto one = members_.find(a), other = members_.find(b);
  if (one == members_.end() || other == members_.end()) return false;
  const auto& limits = other->second.limits;
  return std::any_of(one->second.limits.begin(), one->second.limits.end(), [&](const auto& limit) {
    return std::any_of(limits.begin(), limits.end(),
                       [&](const Membership& its) { return its.group == limit.group; });
  });
}

void MemoryAccounts::release(core::ClientId id, uint32_t device, uint64_t bytes) {
  const auto it = members_.find(id);
  if (it == members_.end() || device >= ipc::kDevices) return;
  uint64_t& granted = it->second.granted[device];
  granted = std::min(granted, bytes);
  if (granted <= used_(id, device)) it->second.asked[device] = 0;
}

bool MemoryAccounts::ask_back(core::ClientId id, uint32_t device, core::TimeNs now) {
  Member& member = members_.at(id);
  core::TimeNs& asked = member.asked[device];
  if (asked == 0) asked = now;
  if (now - asked < kGiveBackNs) return false;
  member.granted[device] = std::min(member.granted[device], used_(id, device));
  asked = 0;
  return true;
}

std::vector<std::pair<core::ClientId, uint32_t>> MemoryAccounts::with_slack(core::ClientId id,
                                                                            uint32_t device) const {
  std::vector<std::pair<core::ClientId, uint32_t>> all;
  const auto it = members_.find(id);
  if (it == members_.end() || device >= ipc::kDevices) return all;
  for (const Membership& limit : it->second.limits) {
    for_each_other(id, limit.group, it->second.gpus[device],
                   [&](core::ClientId other, const Member& member, uint32_t d) {
                     if (member.granted[d] > used_(other, d)) all.emplace_back(other, d);
                   });
  }
  return all;
}

MemoryAccounts::View MemoryAccounts::view(core::ClientId id, uint32_t device) const {
  const auto it = members_.find(id);
  if (it == members_.end() || device >= ipc::kDevices) return {};
  return view_of(it->second, device, [&](const std::string& group, uint8_t gpu) {
    uint64_t others = context_;
    for_each_other(id, group, gpu, [&](core::ClientId other, const Member&, uint32_t d) {
      others = sum(others, sum(used_(other, d), context_));
    });
    return others;
  });
}

std::map<std::pair<core::ClientId, uint32_t>, MemoryAccounts::View> MemoryAccounts::views() const {
  std::map<std::pair<std::string, uint8_t>, uint64_t> used;
  for (const Group& group : groups()) used[{group.name, group.gpu}] = group.used;
  std::map<std::pair<core::ClientId, uint32_t>, View> all;
  for (const auto& [id, member] : members_) {
    for (uint32_t device = 0; !member.limits.empty() && device < ipc::kDevices; ++device) {
      if (member.total[device] == 0) continue;
      const uint64_t own = used_(id, device);
      all[{id, device}] = view_of(member, device, [&](const std::string& group, uint8_t gpu) {
        return less(used[{group, gpu}], own);
      });
    }
  }
  return all;
}

// `others(group, gpu)`: the bytes that count for a group besides the member's own allocations.
template <class Others>
MemoryAccounts::View MemoryAccounts::view_of(const Member& member, uint32_t device,
                                             Others&& others) {
  View view;
  view.granted = member.granted[device];
  if (member.gpus[device] == kNoGpu) return view;
  uint64_t least = kAll;
  for (const Membership& limit : member.limits) {
    const uint64_t most = limit.limit.of(member.total[device]);
    if (most == 0) continue;
    const uint64_t besides = others(limit.group, member.gpus[device]);
    if (less(most, besides) >= least) continue;
    least = less(most, besides);
    view.limit = most;
    view.others = besides;
    view.group = limit.group;
  }
  return view;
}

std::vector<MemoryAccounts::Group> MemoryAccounts::groups() const {
  std::map<std::pair<std::string, uint8_t>, Group> all;
  for (const auto& [id, member] : members_) {
    for (uint32_t device = 0; device < ipc::kDevices && !member.away; ++device) {
      const uint8_t gpu = member.gpus[device];
      if (gpu == kNoGpu || member.total[device] == 0) continue;
      for (const Membership& limit : member.limits) {
        Group& group = all[{limit.group, gpu}];
        group.name = limit.group;
        group.gpu = gpu;
        group.limit = limit.limit.of(member.total[device]);
        group.granted = sum(group.granted, sum(member.granted[device], context_));
        group.used = sum(group.used, sum(used_(id, device), context_));
        ++group.members;
      }
    }
  }
  std::vector<Group> list;
  for (auto& [key, group] : all) list.push_back(std::move(group));
  return list;
}

uint32_t MemoryAccounts::device_on(core::ClientId id, uint8_t gpu) const {
  const auto member = members_.find(id);
  if (member == members_.end()) return ipc::kDevices;
  const DeviceMap& gpus = member->second.gpus;
  return static_cast<uint32_t>(std::find(gpus.begin(), gpus.end(), gpu) - gpus.begin());
}

}  // namespace heddle::server
