// Heads: the oldest held unit of each client, by slot. Slots are reused, so a policy's handle
// carries the slot's generation.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "daemon/core/client/client.h"

namespace heddle::core {

struct UnitAtGate {
  double unit_us = 0;      // predicted time until the unit, once granted, can be stopped
  double ran_us = 0;       // of a graph that was stopped inside: the time that it ran before
  SmSet sm_set;            // chosen when it was posted
  uint16_t inside = 0;     // gates inside it
  bool in_thread = false;  // a thread waits for the ticket, not a stream
};

struct Head {
  Client* client = nullptr;  // nullptr: the slot is free
  TimeNs asked_at = 0;
  TimeNs wanted_since = 0;  // earlier than asked_at for a graph that was stopped inside
  double turn_us = 0;       // equals are served in this order, then by arrival
  uint64_t arrival = 0;
  uint64_t stream_seq = 0;
  double open_us = 0;  // LaunchView::open_us
  uint32_t generation = 1;
  uint32_t kernel = kUnknownKernel;
  uint32_t ask_seq = 0;
  int32_t queue = -1;  // the policy's queue; -1: the built-in serves it
  uint16_t stream = 0;
  uint16_t thread = 0;
  LaunchKind kind = LaunchKind::kKernel;
  bool unmovable = false;
  bool withheld = false;  // its client is over a ceiling: it meets the policy later
  bool was_withheld = false;
  bool early = false;  // the core holds it (Pauses)
  bool was_early = false;
  UnitAtGate gate;

  bool at_gate() const { return !gate.in_thread; }
  double predicted_us() const {
    return gate.unit_us > 0 ? gate.unit_us : client->predict_us(kernel);
  }
  bool movable() const { return !unmovable && client->place.groups.count > GroupCount(1); }
  // Whether it, or what its client posts next, can be moved to an SM set.
  bool moves() const {
    return (!unmovable || at_gate()) && client->place.groups.count > GroupCount(1);
  }
};

class Heads {
 public:
  Heads() { waiting_.reserve(256); }

  size_t count() const { return count_; }
  size_t wanting() const { return count_ - withheld_; }  // not withheld by a ceiling
  void withhold(uint32_t slot, bool withheld);
  uint32_t slots() const { return static_cast<uint32_t>(waiting_.size()); }
  Head& operator[](uint32_t slot) { return waiting_[slot]; }
  const Head& operator[](uint32_t slot) const { return waiting_[slot]; }
  std::span<Head> all() { return waiting_; }  // free slots too
  std::span<const Head> all() const { return waiting_; }

  uint32_t slot_of(LaunchId id) const;  // kNoHead if the handle is stale
  LaunchId id_of(uint32_t slot) const;
  // For a client without a head.
  uint32_t add(Client& client, const LaunchBody& launch, TimeNs at);
  void release(uint32_t slot);
  void take_turn(uint32_t slot);
  // Whether a client that is as important, or more, waits.
  bool before(const Client& client) const;
  // A head was granted. A client that pauses does not keep its turn for long after this
  // (kTurnLagUs).
  void served(const Head& ask);

 private:
  static void stand_at_gate(Head& ask, const LaunchBody& launch);

  std::vector<Head> waiting_;
  std::vector<uint32_t> free_;
  size_t count_ = 0, withheld_ = 0;
  uint64_t arrivals_ = 0;
  std::array<double, kPriorityCount> turn_us_{};  // the latest turn that was served, by priority
};

}  // namespace heddle::core
