// Limits on device memory, between the accounts (memory.h) and the clients: what their terms say,
// and whom to ask for what it does not use. Loop thread only.
#pragma once

#include <functional>

#include "daemon/server/log.h"
#include "daemon/server/memory.h"
#include "daemon/server/messages.h"
#include "daemon/server/roster.h"

namespace heddle::server {

class MemoryLedger {
 public:
  // `want_back(id)`: the client is to look what it need not keep.
  MemoryLedger(uint64_t context, const Roster& roster, Log& log,
               std::function<void(core::ClientId)> want_back);

  // Before the client hears that it is attached: it reads what it was granted then.
  void join(Client& client, const AttachMessage& message);
  void leave(core::ClientId id) { accounts_.leave(id); }
  // By its terms, which may be others.
  void set_limits(Client& client);
  void need(Client& client, const MemoryNeed& need);
  // Tells everybody how much others hold, which changes with each of their allocations.
  void show();
  const MemoryAccounts& accounts() const { return accounts_; }

 private:
  void show(Client& client, uint32_t device, const MemoryAccounts::View& view);
  void ask_others(core::ClientId id, uint32_t device);

  const Roster& roster_;
  Log& log_;
  const std::function<void(core::ClientId)> want_back_;
  MemoryAccounts accounts_;
};

}  // namespace heddle::server
