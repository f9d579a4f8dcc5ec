// More tenants than memory: an idle client's memory is parked on the host where another one needs
// the room under a limit that they share, and comes back with the client's next call.
//
// A client is parked only if its rule says so (`park = true`), or itself (HEDDLE_PARK=1), and while
// it has no work: who has been idle for longest. Whom a call keeps waiting for room for long has
// one at work leave: its next calls wait, and the driver lets its work end first. The calls
// of who is parked wait in its shim (shim/link/residence.h), which tells of them, and what it holds
// counts for no limit. A keeper does the work and outlives heddled (keeper.h). Loop thread only.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/server/engine.h"
#include "daemon/server/keeper.h"
#include "daemon/server/log.h"
#include "daemon/server/memory.h"

namespace heddle::server {

class Parking {
 public:
  Parking(uv_loop_t* loop, Engine& engine, MemoryAccounts& accounts, Log& log);

  // The client wants to hold `bytes` in all, for which its limit has no room. True: others are
  // being parked, or can be once they are idle, and it may ask again.
  bool make_room(const Client& client, uint32_t device, uint64_t bytes);
  void leave(core::ClientId id);  // it ended, or attaches anew
  // Carries out the policy's orders, and tells the cores where memory is. With each heartbeat.
  void beat(core::TimeNs now);

  // "resident", "leaving", "parked", "waits for room" or "returning".
  const char* residence(core::ClientId id) const;

 private:
  enum class State : uint8_t { kLeaving, kParked, kReturning };
  struct Tenant {
    State state = State::kLeaving;
    Keeper* keeper = nullptr;  // while it is parked, nullptr: that one was killed
    pid_t pid = 0;
    uint64_t bytes = 0;
    uint32_t wanted_before = 0;  // Client::memory_wanted, when it left
    core::TimeNs left_at = 0;
    bool unpark = false;         // without a call that waits
    core::TimeNs wanted_at = 0;  // when it was first wanted back; 0: it is not
    core::TimeNs retry_at = 0;
    int lost = 0;  // keepers that ended without a word
  };
  // Of a client on the GPU.
  struct Stay {
    core::TimeNs not_before = 0;    // it is not parked until then,
    core::TimeNs failed_until = 0;  // and then neither, as that failed
    core::TimeNs asked_at = 0;      // it wanted room itself
    core::TimeNs since = 0;         // it is attached
    bool told_parked = false;       // to the cores; and its bytes, by GPU:
    std::array<uint64_t, ipc::kDevices> told_bytes{};
  };

  bool may_park(const Client& client) const;
  bool may_leave(const Client& client, bool idle) const;
  Client* idlest_beside(const Client& client, GpuNumbers::Numbers gpus, bool idle);
  void park(Client& client);
  bool leaves(core::ClientId id) const;  // or has left, and nobody wants it back
  bool keep(core::ClientId id, Tenant& tenant, uint64_t bytes);
  void said(core::ClientId id, const Keeper* by, const std::string& word, const std::string& rest);
  void ended(core::ClientId id, const Keeper* by);
  void failed(core::ClientId id);
  void look();
  void bring_back(core::ClientId id, Tenant& tenant);

  uv_loop_t* const loop_;
  Engine& engine_;
  MemoryAccounts& accounts_;
  Log& log_;
  std::map<core::ClientId, Tenant> tenants_;
  std::map<core::ClientId, Stay> stays_;
  struct Kept {
    std::unique_ptr<Keeper> keeper;
    pid_t pid;
  };
  std::vector<Kept> keepers_;  // also those whose clients are gone
  Timer again_;
};

}  // namespace heddle::server
