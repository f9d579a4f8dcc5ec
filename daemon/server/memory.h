// The accounts of device memory: how much each client may hold under its limits (ipc/memory.h).
//
// A group is all clients that share one limit, on each GPU apart. Its account is the sum of its
// members' grants, and a member uses at most its grant. A grant is free again when its process
// ends. A member must give back memory that it does not use when it is asked; otherwise the daemon
// takes it, so that no client keeps memory that it only claims. No clock and no socket: the server
// brings questions and the time, and carries the answers.
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

// The bytes that the client says it has allocated on the device, and its number of refusals.
uint64_t memory_used(const Client& client, uint32_t device);
uint64_t memory_refused(const Client& client, uint32_t device);

// A limit of a client, which it shares with all clients of the same `group`.
struct Membership {
  std::string group;
  ipc::MemoryAmount limit;
};
// The limits by its rule, and by its own request. Both hold.
std::vector<Membership> memberships_of(const Identity& who);

class MemoryAccounts {
 public:
  // Longer than a shim takes to give memory back, and shorter than the asking shim waits.
  static constexpr core::TimeNs kGiveBackNs = 120'000'000;
  using Bytes = std::array<uint64_t, ipc::kDevices>;  // by the client's devices
  // The bytes of its grant that a client uses, by its own count. Read for listings, and to find
  // clients that can give memory back.
  using UsedBy = std::function<uint64_t(core::ClientId, uint32_t device)>;
  // `context`: bytes that count for each process beside its allocations, for context and modules.
  MemoryAccounts(uint64_t context, UsedBy used) : context_(context), used_(std::move(used)) {}

  // The client joins. The bytes that it says it holds are granted up to its limit; use beyond that
  // counts all the same.
  void join(core::ClientId id, const DeviceMap& gpus, const Bytes& total, const Bytes& held);
  // Sets other limits. They take no grant away.
  void set_limits(core::ClientId id, std::vector<Membership> limits);
  void leave(core::ClientId id) { members_.erase(id); }

  // need(): the client wants to hold `bytes` in all. release(): it will hold no more than that.
  ipc::MemoryVerdict need(core::ClientId id, uint32_t device, uint64_t bytes);
  void release(core::ClientId id, uint32_t device, uint64_t bytes);
  // Whether the client's limits have room for `bytes` in all, if the clients `without` held
  // nothing.
  using Clients = std::function<bool(core::ClientId)>;
  bool fits_without(core::ClientId id, uint32_t device, uint64_t bytes,
                    const Clients& without) const;
  // What it holds counts for no limit while its memory is parked.
  void set_away(core::ClientId id, bool away);
  // The same for what it holds now, on all devices. Who holds more than its limit fits alone.
  bool fits_back(core::ClientId id, const Clients& without) const;
  bool share_limit(core::ClientId a, core::ClientId b) const;
  // Other clients (with their device) that share a limit with it, and use less than their grant.
  std::vector<std::pair<core::ClientId, uint32_t>> with_slack(core::ClientId id,
                                                              uint32_t device) const;
  // Asks one of those for its unused memory. True: it was asked kGiveBackNs ago, so the memory is
  // taken now; its shim must see that before another client is granted it.
  bool ask_back(core::ClientId id, uint32_t device, core::TimeNs now);

  struct View {
    uint64_t granted = 0;
    uint64_t limit = 0;   // the tightest limit; 0: none
    uint64_t others = 0;  // bytes that count of it besides the client's own allocations
    std::string group;    // the group of that limit
  };
  View view(core::ClientId id, uint32_t device) const;
  // The views of all clients with a limit, at the cost of one view.
  std::map<std::pair<core::ClientId, uint32_t>, View> views() const;

  struct Group {
    std::string name;
    uint8_t gpu = 0;
    uint64_t limit = 0, granted = 0, used = 0;
    uint32_t members = 0;
  };
  std::vector<Group> groups() const;
  // The client's device that is this GPU; kDevices: none.
  uint32_t device_on(core::ClientId id, uint8_t gpu) const;

 private:
  struct Member {
    DeviceMap gpus{};
    Bytes total{}, granted{};
    std::array<core::TimeNs, ipc::kDevices> asked{};  // when it was asked; 0: it gave all back
    std::vector<Membership> limits;
    bool away = false;
  };
  // The bytes that count for it: the grant, or its use if that is more, as graphs and pools grow by
  // themselves.
  uint64_t held(core::ClientId id, const Member& member, uint32_t device) const;
  // Calls `visit(id, member, device)` for each other member of the group on that GPU that is not
  // away.
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
