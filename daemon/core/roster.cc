#include "daemon/core/roster.h"

#include <algorithm>

namespace heddle::core {

Client* Roster::find(ClientId id) const {
  Client*& place = found_[id % found_.size()];
  if (place == nullptr || place->id != id) {
    const auto it = by_id_.find(id);
    if (it == by_id_.end()) return nullptr;
    place = it->second.get();
  }
  return place;
}

void Roster::add(std::unique_ptr<Client> client) {
  const ClientId id = client->id;
  by_id_.emplace(id, std::move(client));
  ids_.insert(std::lower_bound(ids_.begin(), ids_.end(), id), id);
}

void Roster::remove(Client& client) {
  std::erase(active_, &client);
  std::erase(ids_, client.id);
  found_[client.id % found_.size()] = nullptr;
  by_id_.erase(client.id);
}

void Roster::insert_active(Client& client) {
  const auto before = [&](const Client* other) {
    return other->rule.priority <= client.rule.priority;
  };
  active_.insert(std::partition_point(active_.begin(), active_.end(), before), &client);
}

void Roster::activate(Client& client) {
  client.active = true;
  insert_active(client);
}

void Roster::retire(Client& client) {
  client.active = false;
  std::erase(active_, &client);
}

void Roster::move(Client& client) {
  if (std::erase(active_, &client) > 0) insert_active(client);
}

std::span<Client* const> Roster::above(int priority) const {
  if (priority <= highest_active()) return {};
  const auto more = [&](const Client* c) { return c->rule.priority < priority; };
  return {active_.begin(), std::partition_point(active_.begin(), active_.end(), more)};
}

std::span<Client* const> Roster::below(int priority) const {
  if (active_.empty() || active_.back()->rule.priority <= priority) return {};
  const auto as_much = [&](const Client* c) { return c->rule.priority <= priority; };
  return {std::partition_point(active_.begin(), active_.end(), as_much), active_.end()};
}

int Roster::highest_active() const {
  return active_.empty() ? kPriorityCount : active_.front()->rule.priority;
}

int Roster::highest_attached() const {
  int highest = kPriorityCount;
  for (const auto& [id, client] : by_id_) highest = std::min(highest, client->rule.priority);
  return highest;
}

bool Roster::comparing(int priority, TimeNs now) const {
  const auto more = above(priority);
  return std::any_of(more.begin(), more.end(),
                     [&](const Client* c) { return c->run.comparison.comparing(now); });
}

double Roster::least_above(int priority, TimeNs now, double (Client::*us)(TimeNs) const) const {
  double least = kUnlimitedUs;
  for (const Client* c : above(priority)) least = std::min(least, (c->*us)(now));
  return least;
}

bool Roster::busy(int priority, TimeNs now) const {
  const auto those = above(priority);
  return std::any_of(those.begin(), those.end(),
                     [now](const Client* c) { return c->wants() || c->busy(now); });
}

}  // namespace heddle::core
