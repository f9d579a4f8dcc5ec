#include "daemon/core/heads.h"

#include <algorithm>
#include <utility>

namespace heddle::core {
namespace {

// How far a turn may lie behind the last one served. A client asks again only after its last launch
// was let go, and must not lose its turn by that delay.
constexpr double kTurnLagUs = 2000;

}  // namespace

uint32_t Heads::slot_of(LaunchId id) const {
  const uint32_t slot = static_cast<uint32_t>(id) - 1;
  if (slot >= waiting_.size() || waiting_[slot].client == nullptr) return kNoHead;
  return waiting_[slot].generation == static_cast<uint32_t>(id >> 32) ? slot : kNoHead;
}

LaunchId Heads::id_of(uint32_t slot) const {
  return LaunchId{waiting_[slot].generation} << 32 | (slot + 1);
}

uint32_t Heads::add(Client& c, const LaunchBody& b, TimeNs at) {
  if (free_.empty()) {
    free_.push_back(slots());
    waiting_.emplace_back();
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  Head& w = waiting_[slot];
  w.client = &c;
  w.asked_at = w.wanted_since = at;
  w.arrival = ++arrivals_;
  w.stream_seq = b.stream_seq;
  w.kernel = b.kernel;
  w.ask_seq = b.ask_seq;
  w.queue = -1;
  w.withheld = w.was_withheld = w.early = w.was_early = false;
  w.stream = b.stream;
  w.thread = b.thread;
  w.kind = b.kind;
  w.gate = {};
  w.gate.in_thread = b.admission == Admission::kAsk;
  w.unmovable = b.unmovable || w.at_gate();  // a unit at a gate has its SM set already
  if (w.at_gate()) stand_at_gate(w, b);
  c.head.slot = slot;
  c.head.since = at;
  ++count_;
  return slot;
}

void Heads::stand_at_gate(Head& w, const LaunchBody& b) {
  Client& c = *w.client;
  c.work.at_gate = true;
  if (!b.unmovable) w.gate.sm_set = c.set_of(b.kernel).or_if_empty(c.place.sm_set);
  w.gate.inside = b.may_follow;
  const Recalled known = c.work.take_recalled(b.stream, b.stream_seq);
  w.gate.ran_us = known.ran_us;
  if (known.since != 0) w.wanted_since = known.since;
  w.gate.unit_us =
      std::max(c.predict_us(b.kernel) / (b.may_follow + 1), static_cast<double>(b.unit_us));
}

void Heads::withhold(uint32_t slot, bool withheld) {
  Head& w = waiting_[slot];
  w.was_withheld |= withheld;
  if (std::exchange(w.withheld, withheld) == withheld) return;
  w.client->head.withheld = withheld;
  withheld_ += withheld ? 1 : -1;
}

void Heads::release(uint32_t slot) {
  withhold(slot, false);
  Head& w = waiting_[slot];
  w.client->head.slot = kNoHead;
  if (w.at_gate()) w.client->work.at_gate = false;
  --count_;
  w.client = nullptr;
  ++w.generation;
  free_.push_back(slot);
}

bool Heads::before(const Client& c) const {
  return count_ > 0 && std::any_of(waiting_.begin(), waiting_.end(), [&](const Head& w) {
           return w.client != nullptr && w.client->rule.priority <= c.rule.priority &&
                  !w.withheld && !w.client->held_back();
         });
}

void Heads::served(const Head& w) {
  double& last = turn_us_[static_cast<size_t>(w.client->rule.priority)];
  last = std::max(last, w.turn_us);
}

// Equals share the GPU's time by their weights: start-time fair queueing (Goyal, Vin and Cheng,
// SIGCOMM 1996). A client's turn begins where its last one ends, so more threads buy no larger
// share. It begins not long before the last turn that was served, so a pause buys none either.
void Heads::take_turn(uint32_t slot) {
  Head& w = waiting_[slot];
  Client& c = *w.client;
  w.turn_us = std::max(c.head.turn_us, turn_us_[static_cast<size_t>(c.rule.priority)] - kTurnLagUs);
  c.head.turn_us = w.turn_us + std::max(1.0, w.predicted_us() + w.open_us) / c.rule.share;
}

}  // namespace heddle::core
