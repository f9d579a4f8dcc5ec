#include "daemon/server/roster.h"

#include <algorithm>
#include <utility>

namespace heddle::server {

Client& Roster::add(std::unique_ptr<Client> owned) {
  Client& client = *owned;
  clients_.emplace(client.identity().id, std::move(owned));
  managed_.push_back(&client);
  share_turn();
  return client;
}

void Roster::drop(Client& client) {
  std::erase(managed_, &client);
  share_turn();
}

// Shares a turn's records equally among users, and each user's part equally among their clients.
void Roster::share_turn() {
  constexpr uint32_t kRecordsLeast = 4;  // less is not worth the look
  std::unordered_map<uid_t, uint32_t> clients_of;
  for (const Client* client : managed_) ++clients_of[client->identity().uid];
  for (Client* client : managed_) {
    const auto sharers =
        static_cast<uint32_t>(clients_of.size()) * clients_of[client->identity().uid];
    client->set_share(std::max(Client::kRecordsPerTurn / sharers, kRecordsLeast));
  }
}

}  // namespace heddle::server
