// The accounts of device memory: who may hold how much, of which limits (ipc/memory.h).
//
// A group is everybody whom one limit holds together, on each GPU apart. Its account is the sum of
// what its members were granted; a member uses at most that. What a process was granted is free
// again when it ends. What it does not use it must give back when it is asked: else it is taken,
// so that none keeps what it only claims. No clock and no socket: the server brings questions and
// the time, and carries answers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/event.h"
#include "daemon/server/attached.h"
#include "daemon/server/gpus.h"
#include "ipc/layout.h"
#include "ipc/memory.h"

namespace heddle::server {

// What the client says that it has allocated on the device, and how often it was refused.
uint64_t memory_used(const Client& client, uint32_t device);
uint64_t memory_refused(const Client& client, uint32_t device);

// A limit that holds a client, together with all others who have the same name in `group`.
struct Membership {
  std::string group;
  ipc::MemoryAmount limit;
};
// By its rule, and by what it asks for itself. Both hold.
std::vector<Membership> memberships_of(const Identity& who);

class MemoryAccounts {
 public:
  // Longer than a shim takes to give back, and less than the one that asks waits.
  static constexpr core::TimeNs kGiveBackNs = 120'000'000;
  using Bytes = std::array<uint64_t, ipc::kDevices>;  // by the client's devices
  // What a client uses of what it was granted, by its own count: read for listings, and to know
  // whom to ask for what is left.
  using UsedBy = std::function<uint64_t(core::ClientId, uint32_t device)>;
  // `context`: what each process counts beside its allocations, for its context and modules.
  MemoryAccounts(uint64_t context, UsedBy used) : context_(context), used_(std::move(used)) {}

  // What it says that it holds is granted, up to its limit. What it uses beyond counts all the
  // same.
  void join(core::ClientId id, const DeviceMap& gpus, const Bytes& total, const Bytes& held);
  // Other limits: nothing is taken away by them.
  void set_limits(core::ClientId id, std::vector<Membership> limits);
  void leave(core::ClientId id) { members_.erase(id); }

  // The client will hold `bytes` in all; or, `release`, keeps to that from now on.
  ipc::MemoryVerdict need(core::ClientId id, uint32_t device, uint64_t bytes);
  void release(core::ClientId id, uint32_t device, uint64_t bytes);
  // Others with whom it shares a limit, and who have been granted more than they use there.
  std::vector<std::pair<core::ClientId, uint32_t>> with_slack(core::ClientId id,
                                                              uint32_t device) const;
  // One of those is asked for what it does not use. True: it was, for kGiveBackNs, and that is
  // taken; its shim must see that before anybody else is granted it.
  bool ask_back(core::ClientId id, uint32_t device, core::TimeNs now);

  struct View {
    uint64_t granted = 0;
    uint64_t limit = 0;   // the least that holds it; 0: none
    uint64_t others = 0;  // of that, besides what the client allocated itself
    std::string group;    // whose limit it is
  };
  View view(core::ClientId id, uint32_t device) const;
  // Those of all clients that have a limit, at the cost of one.
  std::map<std::pair<core::ClientId, uint32_t>, View> views() const;

  struct Group {
    std::string name;
    uint8_t gpu = 0;
    uint64_t limit = 0, granted = 0, used = 0;
    uint32_t members = 0;
  };
  std::vector<Group> groups() const;
  // The client's device that is this GPU, or kDevices.
  uint32_t device_on(core::ClientId id, uint8_t gpu) const;

 private:
  struct Member {
    DeviceMap gpus{};
    Bytes total{}, granted{};
    std::array<core::TimeNs, ipc::kDevices> asked{};  // since when; 0: it gave all back
    std::vector<Membership> limits;
  };
  // What counts of it: it may use more than it was granted, as graphs and pools grow by themselves.
  uint64_t held(core::ClientId id, const Member& member, uint32_t device) const;
  // Calls `visit(id, member, device)` for each other of the group on that GPU.
  template <class Visit>
  void for_each_other(core::ClientId id, const std::string& group, uint8_t gpu,
                      Visit&& visit) const;
  template <class Others>
  static View view_of(const Member& member, uint32_t device, Others&& others);
  uint64_t held_by_others(core::ClientId id, const std::string& group, uint8_t gpu) const;

  const uint64_t context_;
  const UsedBy used_;
  std::map<core::ClientId, Member> members_;
};

}  // namespace heddle::server
