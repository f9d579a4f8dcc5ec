#include "daemon/core/orders.h"

namespace heddle::core {

bool Orders::queue_insert(QueueId queue, LaunchId id, double key) {
  const uint32_t slot = heads_.slot_of(id);
  if (slot == kNoHead) return false;
  Head& w = heads_[slot];
  return queues_.insert(queue, w.queue, id, key, w.turn_us, w.arrival, w.predicted_us());
}

bool Orders::set_allowance(ClientId id, Allowance allowed, double for_us) {
  Client* c = roster_.find(id);
  if (c == nullptr) return false;
  c->standing.choice.set(allowed, to_ns(for_us), now_.clock);
  c->standing.opening.gates = false;
  now_.allowances_dirty = true;
  return true;
}

bool Orders::set_launch_priority(ClientId id, int launch_priority) {
  Client* c = roster_.find(id);
  if (c == nullptr) return false;
  if (std::exchange(c->standing.launch_priority, launch_priority) != launch_priority) {
    c->standing.allowance_sent = false;
    now_.allowances_dirty = true;
  }
  return true;
}

bool Orders::keep_to(ClientId id, SmCount sm, double for_us) {
  Client* c = roster_.find(id);
  if (c == nullptr) return false;
  KeptTo& kept = c->standing.kept_to;
  now_.allowances_dirty |= kept.at(now_.clock) != sm || (kept.until == kNever) != (for_us == 0);
  kept = {sm, for_us == 0 ? kNever : now_.clock + to_ns(for_us)};
  return true;
}

bool Orders::set_stop(ClientId id, StopWhen when) {
  Client* c = roster_.find(id);
  if (c != nullptr) c->standing.stop_when = when;
  return c != nullptr;
}

bool Orders::set_slice(ClientId id, uint32_t slice_us) {
  Client* c = roster_.find(id);
  if (c != nullptr) c->standing.slice_us = slice_us;
  return c != nullptr;
}

bool Orders::resize(ClientId id) {
  Client* c = roster_.find(id);
  if (c == nullptr) return false;
  for (Kernel& k : c->known.kernels) k.policy = 0;
  now_.kernels_dirty = now_.allowances_dirty = true;
  return true;
}

}  // namespace heddle::core
