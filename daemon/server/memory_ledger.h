// Connects the accounts of device memory (memory.h) with the clients: their limits by their terms,
// and requests to give unused memory back. Loop thread only.
#pragma once

#include <functional>

#include "daemon/server/log.h"
#include "daemon/server/memory.h"
#include "daemon/server/messages.h"
#include "daemon/server/roster.h"

namespace heddle::server {

class MemoryLedger {
 public:
  // `want_back(id)`: asks the client to give back memory that it does not use. `make_room(client,
  // device, bytes)`: whether others' memory is about to make room for so much in all.
  using MakeRoom = std::function<bool(const Client&, uint32_t device, uint64_t bytes)>;
  MemoryLedger(uint64_t context, const Roster& roster, Log& log,
               std::function<void(core::ClientId)> want_back, MakeRoom make_room);

  // Called before the client hears that it is attached, because it reads its grant then.
  void join(Client& client, const AttachMessage& message);
  void leave(core::ClientId id) { accounts_.leave(id); }
  // Sets the limits by the client's present terms.
  void set_limits(Client& client);
  void need(Client& client, const MemoryNeed& need);
  // Tells all clients how much others hold. That changes with each of their allocations.
  void show();
  const MemoryAccounts& accounts() const { return accounts_; }
  MemoryAccounts& accounts() { return accounts_; }

 private:
  void show(Client& client, uint32_t device, const MemoryAccounts::View& view);
  void ask_others(core::ClientId id, uint32_t device);

  const Roster& roster_;
  Log& log_;
  const std::function<void(core::ClientId)> want_back_;
  const MakeRoom make_room_;
  MemoryAccounts accounts_;
};

}  // namespace heddle::server
