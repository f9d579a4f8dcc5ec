// The claims of one turn: what clients wrote since their rings were last read, in order of time.
// Loop thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/server/intake.h"
#include "daemon/server/roster.h"

namespace heddle::server {

class Batch {
 public:
  struct Entry {
    core::TimeNs at;
    size_t claim;  // in the order in which they were collected
    Client* client;
  };

  Batch();

  // Reads all clients' rings, each up to its share of a turn. Unless `all`, or a client without a
  // lease has news, leased clients are read only every kLeasedNs: each look makes their next record
  // wait for its cache lines. `impossible(client)` is called if a client's memory is impossible,
  // and its claims are dropped.
  template <class Impossible>
  void collect(const Roster& roster, core::TimeNs now, bool all, Impossible&& impossible) {
    clear();
    const size_t others = read(roster, now, false, impossible);
    if (others == roster.managed().size()) return;
    if (!all && empty() && now - leased_read_ < kLeasedNs) return;
    leased_read_ = now;
    read(roster, now, true, impossible);
  }
  // Appends one client's claims. False: its memory is impossible.
  bool hear(Client& client, core::TimeNs now);
  void clear() {
    entries_.clear();
    claims_.clear();
  }
  void sort();

  bool empty() const { return entries_.empty(); }
  const std::vector<Entry>& entries() const { return entries_; }
  Claim& claim(const Entry& entry) { return claims_[entry.claim]; }

 private:
  // An eager program launches every 10 or 20 µs, and no client can use gaps that short.
  static constexpr core::TimeNs kLeasedNs = 20'000;

  // Reads the clients that are `leased`, or those that are not. Returns how many there are.
  template <class Impossible>
  size_t read(const Roster& roster, core::TimeNs now, bool leased, Impossible&& impossible) {
    const std::vector<Client*>& clients = roster.managed();
    size_t count = 0;
    // Prefetch, so that the cache lines of all clients come over at the same time.
    for (const Client* client : clients) {
      if (client->leased() != leased) continue;
      client->prefetch();
      ++count;
    }
    for (const Client* client : clients) {
      if (client->leased() == leased) client->prefetch_news();
    }
    for (size_t i = clients.size(); i-- > 0;) {
      if (clients[i]->leased() == leased && !hear(*clients[i], now)) impossible(*clients[i]);
    }
    return count;
  }

  std::vector<Claim> claims_;
  std::vector<Entry> entries_;
  core::TimeNs leased_read_ = 0;  // when the leased clients were last read
};

}  // namespace heddle::server
