// What a policy sees of the core, and what it may change there: Gpu.
#include <algorithm>
#include <utility>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

void Scheduler::State::fill(const Client& c, uint32_t kernel, LaunchKind kind,
                            LaunchView& v) const {
  v.client = c.id;
  v.kind = kind;
  v.priority = c.priority;
  v.predicted_us = predict(c, kernel);
  v.wave_us = v.mean_us = v.predicted_us;
  if (const Kernel* k = c.kernel(kernel)) {
    if (k->stats->duration.known()) v.mean_us = k->stats->duration.us();
    v.facts = &k->facts;
    v.metrics = &k->stats->metrics;
    v.launches = k->stats->launches;
    v.groups = &c.groups;
    v.wave_us = v.predicted_us / (k->is_graph() ? std::max(1u, k->facts.grid_blocks) : k->waves);
    v.p90_us = static_cast<double>(k->stats->durations.summary().p90_us);
    v.profiled = k->stats->profiled;
    v.gap_after_us = k->stats->gap_synchronized.low_us();
  }
}

bool Scheduler::State::launch(LaunchId id, LaunchView& v) const {
  const uint32_t slot = slot_of(id);
  if (slot == kNoSlot) return false;
  const Waiting& w = waiting[slot];
  fill(*w.client, w.kernel, w.kind, v);
  v.seq = w.ask_seq;
  v.movable = w.movable();
  v.by_credit_us = w.by_credit_us;
  v.wait_us = to_us(clock - w.asked_at);
  v.run_us = 0;
  return true;
}

bool Scheduler::State::client(ClientId id, ClientView& v) const {
  const auto it = clients_by_id.find(id);
  if (it == clients_by_id.end()) return false;
  const Client& c = *it->second;
  v = {.id = c.id,
       .name = c.name,
       .label = c.label,
       .uid = c.uid,
       .pid = c.pid,
       .priority = c.priority,
       .share = c.share,
       .slo_ms = c.slo_ms,
       .window_us = c.window_us,
       .queued = c.queued,
       .inflight_us = c.remaining_us(clock) + c.credit_us,
       .gpu_us = c.gpu_us,
       .active = c.active,
       .profiled = c.measured->profiled};
  return true;
}

GpuView Scheduler::State::gpu() const {
  GpuView v;
  v.index = config.device;
  v.sm_total = v.sm_free = config.sm_total;
  v.switch_us = config.switch_us;
  v.mps = config.mps;
  SmSet taken;
  const int highest = highest_active();
  for (const Client* c : active) {
    if (c->priority > highest) {
      v.inflight_us += c->remaining_us(clock) + c->credit_us;
      v.on_sets_us += on_sets_us(*c);
    }
    // What the groups hold is what their client says.
    v.sm_free -= std::min(v.sm_free, c->groups.sms_of(c->outstanding.sm_set() - taken));
    taken |= c->outstanding.sm_set();
  }
  saw.inflight_us = static_cast<float>(v.inflight_us);
  return v;
}

// Over all active clients strictly above `priority`; unlimited where there is none.
double Scheduler::State::least_above(int priority, double (Client::*time)(TimeNs) const) const {
  double least = kUnlimitedUs;
  for (const Client* c : active_above(priority)) least = std::min(least, (c->*time)(clock));
  return least;
}

double Scheduler::State::gap_us(int priority) const {
  const double us = least_above(priority, &Client::gap_left_us);
  saw.gap_us = static_cast<float>(us);
  return us;
}

double Scheduler::State::gap_length_us(int priority) const {
  return least_above(priority, &Client::gap_length_us);
}

bool Scheduler::State::busy(int priority) const {
  const auto above = active_above(priority);
  return std::any_of(above.begin(), above.end(),
                     [&](const Client* c) { return c->queued > 0 || c->busy(clock); });
}

double Scheduler::State::idle_us(int priority) const {
  TimeNs idle = 0;
  for (size_t p = static_cast<size_t>(std::clamp(priority, 0, kPriorityCount)); p < busy_ns.size();
       ++p) {
    idle += busy_ns[p];
  }
  return to_us(idle);
}

QueueId Scheduler::State::queue_create(std::string_view name) {
  for (size_t i = 0; i < queues.size(); ++i) {
    if (queues[i].name() == name) return static_cast<QueueId>(i);
  }
  queues.emplace_back(name);
  return static_cast<QueueId>(queues.size() - 1);
}

bool Scheduler::State::queue_insert(QueueId queue, LaunchId id, double key) {
  const uint32_t slot = slot_of(id);
  if (slot == kNoSlot || queue >= queues.size()) return false;
  Waiting& w = waiting[slot];
  if (w.queue >= 0) queues[static_cast<size_t>(w.queue)].remove(id);
  w.queue = static_cast<int32_t>(queue);
  queues[queue].insert(id, key, w.turn_us, w.arrival, predict(*w.client, w.kernel));
  return true;
}

LaunchId Scheduler::State::queue_peek(QueueId queue, size_t place) const {
  return queue < queues.size() ? queues[queue].peek(place) : 0;
}

LaunchId Scheduler::State::queue_best_fit(QueueId queue, double us) const {
  const auto ready = [this](LaunchId id) { return follows_none_on_sets(id); };
  return queue < queues.size() ? queues[queue].best_fit(us, ready) : 0;
}

bool Scheduler::State::follows_none_on_sets(LaunchId id) const {
  return waiting[slot_of(id)].client->outstanding.sm_set().empty();
}

size_t Scheduler::State::queue_len(QueueId queue) const {
  return queue < queues.size() ? queues[queue].size() : 0;
}

bool Scheduler::State::set_window(ClientId id, uint32_t window_us, double for_us) {
  Client* c = find(id);
  if (c == nullptr) return false;
  c->choice.set(window_us, to_ns(for_us), clock);
  windows_dirty = true;
  return true;
}

bool Scheduler::State::set_launch_priority(ClientId id, int launch_priority) {
  Client* c = find(id);
  if (c == nullptr) return false;
  if (std::exchange(c->launch_priority, launch_priority) != launch_priority) {
    c->window_sent = false;
    windows_dirty = true;
  }
  return true;
}

}  // namespace heddle::core
