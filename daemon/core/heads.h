// The oldest unit of each client that is held, by slot. Slots are used again, so a policy's handle
// carries the slot's generation.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "daemon/core/client/client.h"

namespace heddle::core {

struct UnitAtGate {
  double unit_us = 0;  // predicted, until what it lets go can be stopped
  double ran_us = 0;   // of a graph that was stopped inside: what is done
  SmSet sm_set;        // where it was put as it was posted
  uint16_t inside = 0;
  bool in_thread = false;  // its thread waits for the ticket, and no stream
};

struct Head {
  Client* client = nullptr;  // nullptr: the slot is free
  TimeNs asked_at = 0;
  TimeNs wanted_since = 0;  // a graph that was stopped inside asks again
  double turn_us = 0;       // equals are served in this order, and then as they came
  uint64_t arrival = 0;
  uint64_t stream_seq = 0;
  double open_us = 0;  // LaunchView's
  uint32_t generation = 1;
  uint32_t kernel = kUnknownKernel;
  uint32_t ask_seq = 0;
  int32_t queue = -1;  // of the policy; -1: the built-in serves it
  uint16_t stream = 0;
  uint16_t thread = 0;
  LaunchKind kind = LaunchKind::kKernel;
  bool unmovable = false;
  bool withheld = false;  // its client is over a ceiling: it meets the policy later
  bool was_withheld = false;
  bool early = false;  // the core holds it (Pauses)
  bool was_early = false;
  UnitAtGate gate;  // of a ticket

  bool at_gate() const { return !gate.in_thread; }
  double predicted_us() const {
    return gate.unit_us > 0 ? gate.unit_us : client->predict_us(kernel);
  }
  bool movable() const { return !unmovable && client->place.groups.count > GroupCount(1); }
  // Or what its client posts next is.
  bool moves() const {
    return (!unmovable || at_gate()) && client->place.groups.count > GroupCount(1);
  }
};

class Heads {
 public:
  Heads() { waiting_.reserve(256); }

  size_t count() const { return count_; }
  size_t wanting() const { return count_ - withheld_; }  // those that no ceiling withholds
  void withhold(uint32_t slot, bool withheld);
  uint32_t slots() const { return static_cast<uint32_t>(waiting_.size()); }
  Head& operator[](uint32_t slot) { return waiting_[slot]; }
  const Head& operator[](uint32_t slot) const { return waiting_[slot]; }
  std::span<Head> all() { return waiting_; }  // free slots too
  std::span<const Head> all() const { return waiting_; }

  uint32_t slot_of(LaunchId id) const;  // kNoAsk if it is stale
  LaunchId id_of(uint32_t slot) const;
  // The client has none yet.
  uint32_t add(Client& client, const LaunchBody& launch, TimeNs at);
  void release(uint32_t slot);
  void take_turn(uint32_t slot);
  // Somebody waits whose turn it is before the client has another: as important, or more.
  bool before(const Client& client) const;
  // It was let go: whoever pauses does not fall behind its turn by long.
  void served(const Head& ask);

 private:
  static void stand_at_gate(Head& ask, const LaunchBody& launch);

  std::vector<Head> waiting_;
  std::vector<uint32_t> free_;
  size_t count_ = 0, withheld_ = 0;
  uint64_t arrivals_ = 0;
  std::array<double, kPriorityCount> turn_us_{};  // of the last that was served
};

}  // namespace heddle::core
