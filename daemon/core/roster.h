// The clients that are attached to the device, and which of them are active: have work, or had some
// not long ago.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/core/client/client.h"

namespace heddle::core {

class Roster {
 public:
  // nullptr: no client has that ID.
  Client* find(ClientId id) const;
  void add(std::unique_ptr<Client> client);
  void remove(Client& client);
  void activate(Client& client);
  void retire(Client& client);
  // The client's priority may have changed: sorts it in anew, as the last among equals.
  void move(Client& client);

  const std::unordered_map<ClientId, std::unique_ptr<Client>>& all() const { return by_id_; }
  std::span<const ClientId> ids() const { return ids_; }  // ascending
  // A few dozen at most, the most important first.
  std::span<Client* const> active() const { return active_; }
  std::span<Client* const> above(int priority) const;  // active and strictly more important
  std::span<Client* const> below(int priority) const;
  int highest_active() const;    // kPriorityCount: none is active
  int highest_attached() const;  // kPriorityCount: none is attached
  // Whether a client above should run alone, so that its runs' time alone becomes known.
  bool comparing(int priority, TimeNs now) const;
  // Whether a client above has work on the device, or waits to launch some.
  bool busy(int priority, TimeNs now) const;
  // Gpu::gap_us.
  double gap_left_us(int priority, TimeNs now) const {
    return least_above(priority, now, &Client::gap_left_us);
  }
  // The least value over all active clients strictly above; unlimited: there is none.
  double least_above(int priority, TimeNs now, double (Client::*us)(TimeNs) const) const;

 private:
  void insert_active(Client& client);

  std::unordered_map<ClientId, std::unique_ptr<Client>> by_id_;
  mutable std::array<Client*, 64> found_{};  // a cache: saves a division and a cache line
  std::vector<ClientId> ids_;
  std::vector<Client*> active_;
};

}  // namespace heddle::core
