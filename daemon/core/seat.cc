#include "daemon/core/seat.h"

#include <algorithm>

namespace heddle::core {

bool Seat::start(Policy& next, Policy* live) {
  if (live != nullptr && !next.take_over(*live)) return false;
  started_queues_.clear();
  std::swap(orders_.queues(), started_queues_);
  const bool ok = next.init(orders_) != HookResult::kFault;
  std::swap(orders_.queues(), started_queues_);
  return ok;
}

void Seat::adopt(Policy* next) {
  if (policy_ != nullptr) policy_->exit(orders_, Ending::kReplaced);
  orders_.queues() = std::exchange(started_queues_, {});
  if (next == nullptr) orders_.queues().clear();
  policy_ = next;
  ++number_;
  now_.kernels_dirty = true;
  faults_.clear();
  for (const ClientId id : roster_.ids()) roster_.find(id)->standing.forget_policy();
}

bool Seat::faulted(HookResult result) {
  if (result != HookResult::kFault) return false;
  ++now_.stats.policy_faults;
  const uint32_t weight = policy_ != nullptr ? policy_->fault_weight() : 1;
  for (uint32_t i = 0; i < std::min(weight, now_.config.fault_max); ++i) {
    faults_.push_back(now_.clock);
  }
  while (!faults_.empty() && to_us(now_.clock - faults_.front()) > now_.config.fault_span_us) {
    faults_.pop_front();
  }
  if (faults_.size() >= now_.config.fault_max && policy_ != nullptr) drop();
  return true;
}

void Seat::drop() {
  last_words_ = {now_.clock, policy_->dump(orders_), {}, {}};
  for (const Queue& queue : orders_.queues().all()) {
    last_words_.queues.push_back({std::string(queue.name()), queue.size()});
  }
  last_words_.decisions = telling_.last_grants();
  policy_->exit(orders_, Ending::kFaulted);
  policy_ = nullptr;
  ++number_;
  quarantined_ = true;
  faults_.clear();
  orders_.queues().clear();
  for (Head& w : heads_.all()) w.queue = -1;
  for (const ClientId id : roster_.ids()) roster_.find(id)->standing.forget_policy();
  now_.kernels_dirty = now_.allowances_dirty = now_.dispatch_wanted = true;
}

// ---- hooks ------------------------------------------------------------------------------------

void Seat::allowance(Client& c, AllowanceVerdict (Policy::*hook)(Gpu&, ClientId)) {
  if (policy_ == nullptr) return;
  const AllowanceVerdict verdict = (policy_->*hook)(orders_, c.id);
  faulted(verdict.result);
  if (c.standing.choice.take(verdict)) now_.allowances_dirty = true;
}

void Seat::exit(const Client& c) {
  if (policy_ != nullptr) faulted(policy_->client_exit(orders_, c.id));
}

KernelVerdict Seat::kernel(const Client& c, uint32_t kernel) {
  if (now_.bypass || !hears(&Policy::hears_kernels)) return {};
  const bool graph = c.known.kernels[kernel].is_graph();
  LaunchView view;
  Sight::fill(c, kernel, graph ? LaunchKind::kGraph : LaunchKind::kKernel, view);
  const KernelVerdict verdict = policy_->kernel_init(orders_, view);
  return faulted(verdict.result) ? KernelVerdict{} : verdict;
}

void Seat::started(const Client& c, const Work& work) {
  if (!hears(&Policy::hears_running)) return;
  LaunchView view;
  Sight::fill(c, work.kernel, work.kind, view);
  view.wait_us = work.waited_us;
  faulted(policy_->running(orders_, view));
}

void Seat::stopped(const Client& c, const Work& work, float measured_us) {
  if (!hears(&Policy::hears_stopping)) return;
  LaunchView view;
  Sight::fill(c, work.kernel, work.kind, view);
  // A launch that did not run on its SM set tells nothing about that set.
  const Kernel* const k = c.kernel(work.kernel);
  const bool off_set = work.strayed && k != nullptr && k->size.get() != 0;
  view.run_us = off_set ? 0 : measured_us;
  view.wait_us = work.waited_us;
  faulted(policy_->stopping(orders_, view));
}

bool Seat::enqueue(uint32_t slot) {
  if (policy_ == nullptr || now_.bypass || heads_[slot].client->held_back()) return false;
  const EnqueueVerdict verdict = policy_->enqueue(orders_, heads_.id_of(slot));
  if (!faulted(verdict.result)) return verdict.result == HookResult::kDecided && verdict.run;
  orders_.queues().remove(heads_.id_of(slot), heads_[slot].queue);
  return false;
}

void Seat::tick() {
  if (now_.clock < tick_deadline() || now_.bypass) return;
  tick_at_ = now_.clock + to_ns(now_.config.tick_us);
  faulted(policy_->tick(orders_));
}

TimeNs Seat::tick_deadline() const {
  return hears(&Policy::hears_tick) && !roster_.active().empty() ? tick_at_ : kNever;
}

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

bool Orders::set_parked(ClientId id, bool parked) {
  Client* c = roster_.find(id);
  if (c == nullptr) return false;
  if (parked != c->place.memory.parked) c->place.memory.to_move = now_.parking_dirty = true;
  return true;
}

bool Orders::resize(ClientId id) {
  Client* c = roster_.find(id);
  if (c == nullptr) return false;
  for (Kernel& k : c->known.kernels) k.policy = 0;
  now_.kernels_dirty = now_.allowances_dirty = true;
  return true;
}

}  // namespace heddle::core
