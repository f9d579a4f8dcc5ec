// The attached clients, by number. Loop thread only.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/server/attached.h"

namespace heddle::server {

class Roster {
 public:
  using Clients = std::unordered_map<core::ClientId, std::unique_ptr<Client>>;

  core::ClientId next_id() { return ++last_id_; }
  Client& add(std::unique_ptr<Client> client);
  // The client was let go, or is about to be removed: its memory is not read any more.
  void drop(Client& client);
  void remove(core::ClientId id) { clients_.erase(id); }

  Client* find(core::ClientId id) const {
    const auto it = clients_.find(id);
    return it != clients_.end() ? it->second.get() : nullptr;
  }
  const Clients& all() const { return clients_; }
  const std::vector<Client*>& managed() const { return managed_; }  // clients whose memory is read

 private:
  void share_turn();

  core::ClientId last_id_ = 0;
  Clients clients_;
  std::vector<Client*> managed_;
};

}  // namespace heddle::server
