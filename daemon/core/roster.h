// Who is attached to the device, and who of them is active: has work, or had some not long ago.
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
  // nullptr: nobody has that ID.
  Client* find(ClientId id) const;
  void add(std::unique_ptr<Client> client);
  void remove(Client& client);
  void activate(Client& client);
  void retire(Client& client);
  // Its rule is another: among equals it is the last.
  void move(Client& client);

  const std::unordered_map<ClientId, std::unique_ptr<Client>>& all() const { return by_id_; }
  std::span<const ClientId> ids() const { return ids_; }  // ascending
  // A few dozen at most, the most important first.
  std::span<Client* const> active() const { return active_; }
  std::span<Client* const> above(int priority) const;  // active ones, strictly
  std::span<Client* const> below(int priority) const;
  int highest_active() const;    // kPriorityCount: nobody is
  int highest_attached() const;  // the same
  // One of those above is to be left alone, so that its runs alone are known.
  bool comparing(int priority, TimeNs now) const;
  // One of those above has work on the device, or waits to launch some.
  bool busy(int priority, TimeNs now) const;
  // Gpu's gap_us.
  double gap_left_us(int priority, TimeNs now) const {
    return least_above(priority, now, &Client::gap_left_us);
  }
  // The least of all active clients strictly above; unlimited where there is none.
  double least_above(int priority, TimeNs now, double (Client::*us)(TimeNs) const) const;

 private:
  void insert_active(Client& client);

  std::unordered_map<ClientId, std::unique_ptr<Client>> by_id_;
  mutable std::array<Client*, 64> found_{};  // lately: no division, and one cache line less
  std::vector<ClientId> ids_;
  std::vector<Client*> active_;
};

}  // namespace heddle::core
