// What a policy sees of the core, and what it may change there: Gpu.
#include <algorithm>
#include <utility>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

void Scheduler::State::fill(const Client& c, uint32_t kernel, LaunchKind kind,
                            LaunchView& v) const {
  v.client = c.id;
  v.kind = kind;
  v.priority = c.rule.priority;
  v.predicted_us = c.predict_us(kernel);
  v.wave_us = v.mean_us = v.predicted_us;
  if (const Kernel* k = c.kernel(kernel)) {
    if (k->stats->duration.known()) v.mean_us = k->stats->duration.us();
    v.facts = &k->facts;
    v.metrics = &k->stats->metrics;
    v.launches = k->stats->launches;
    v.groups = &c.place.groups;
    v.wave_us = v.predicted_us / (k->is_graph() ? std::max(1u, k->facts.grid_blocks) : k->waves);
    v.p90_us = static_cast<double>(k->stats->durations.summary().p90_us);
    v.profiled = k->stats->profiled;
    v.gap_after_us = k->stats->gap_synchronized.low_us();
  }
}

bool Scheduler::State::launch(LaunchId id, LaunchView& v) const {
  const uint32_t slot = asks.slot_of(id);
  if (slot == kNoAsk) return false;
  const Waiting& w = asks[slot];
  fill(*w.client, w.kernel, w.kind, v);
  v.seq = w.ask_seq;
  v.movable = w.movable();
  v.by_credit_us = w.by_credit_us;
  v.wait_us = to_us(clock - w.asked_at);
  v.run_us = 0;
  return true;
}

bool Scheduler::State::client(ClientId id, ClientView& v) const {
  const auto it = roster.all().find(id);
  if (it == roster.all().end()) return false;
  const Client& c = *it->second;
  v = {.id = c.id,
       .name = c.who.name,
       .label = c.who.label,
       .uid = c.who.uid,
       .pid = c.who.pid,
       .priority = c.rule.priority,
       .share = c.rule.share,
       .slo_ms = c.rule.slo_ms,
       .window_us = c.standing.window_us,
       .queued = c.asking.queued,
       .inflight_us = c.remaining_us(clock) + c.standing.credit_us,
       .gpu_us = c.gpu_time.had_us,
       .active = c.active,
       .profiled = c.known.measured->profiled};
  return true;
}

GpuView Scheduler::State::gpu() const {
  GpuView v;
  v.index = config.device;
  v.sm_total = v.sm_free = config.sm_total;
  v.switch_us = config.switch_us;
  v.mps = config.mps;
  SmSet taken;
  const int highest = roster.highest_active();
  for (const Client* c : roster.active()) {
    if (c->rule.priority > highest) {
      v.inflight_us += c->remaining_us(clock) + c->standing.credit_us;
      v.on_sets_us += bounds.on_sets_us(*c);
    }
    // What the groups hold is what their client says.
    v.sm_free -= std::min(v.sm_free, c->place.groups.sms_of(c->work.outstanding.sm_set() - taken));
    taken |= c->work.outstanding.sm_set();
  }
  saw.inflight_us = static_cast<float>(v.inflight_us);
  return v;
}

double Scheduler::State::gap_us(int priority) const {
  const double us = roster.least_above(priority, clock, &Client::gap_left_us);
  saw.gap_us = static_cast<float>(us);
  return us;
}

double Scheduler::State::gap_length_us(int priority) const {
  return roster.least_above(priority, clock, &Client::gap_length_us);
}

bool Scheduler::State::busy(int priority) const {
  const auto above = roster.above(priority);
  return std::any_of(above.begin(), above.end(),
                     [&](const Client* c) { return c->asking.queued > 0 || c->busy(clock); });
}

double Scheduler::State::idle_us(int priority) const {
  TimeNs idle = 0;
  for (size_t p = static_cast<size_t>(std::clamp(priority, 0, kPriorityCount)); p < busy_ns.size();
       ++p) {
    idle += busy_ns[p];
  }
  return to_us(idle);
}

BudgetVerdict Scheduler::State::budget_fits(LaunchId id, SmCount sm) {
  const uint32_t slot = asks.slot_of(id);
  if (slot == kNoAsk || !promises.any()) return {};
  const Waiting& w = asks[slot];
  Work work;
  work.kernel = w.kernel;
  work.kind = w.kind;
  const bool own_size = sm.get() == 0 && w.movable();
  work.sm_set = own_size ? w.client->set_of(w.kernel) : places.peek(*w.client, w, sm);
  w.client->predict(work);
  return promises.afford(*w.client, w.kernel, work.predicted_us, work.sm_set);
}

QueueId Scheduler::State::queue_create(std::string_view name) {
  for (size_t i = 0; i < queues.size(); ++i) {
    if (queues[i].name() == name) return static_cast<QueueId>(i);
  }
  queues.emplace_back(name);
  return static_cast<QueueId>(queues.size() - 1);
}

bool Scheduler::State::queue_insert(QueueId queue, LaunchId id, double key) {
  const uint32_t slot = asks.slot_of(id);
  if (slot == kNoAsk || queue >= queues.size()) return false;
  Waiting& w = asks[slot];
  if (w.queue >= 0) queues[static_cast<size_t>(w.queue)].remove(id);
  w.queue = static_cast<int32_t>(queue);
  queues[queue].insert(id, key, w.turn_us, w.arrival, w.client->predict_us(w.kernel));
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
  return asks[asks.slot_of(id)].client->work.outstanding.sm_set().empty();
}

size_t Scheduler::State::queue_len(QueueId queue) const {
  return queue < queues.size() ? queues[queue].size() : 0;
}

bool Scheduler::State::set_window(ClientId id, uint32_t window_us, double for_us) {
  Client* c = roster.find(id);
  if (c == nullptr) return false;
  c->standing.choice.set(window_us, to_ns(for_us), clock);
  windows_dirty = true;
  return true;
}

bool Scheduler::State::set_launch_priority(ClientId id, int launch_priority) {
  Client* c = roster.find(id);
  if (c == nullptr) return false;
  if (std::exchange(c->standing.launch_priority, launch_priority) != launch_priority) {
    c->standing.window_sent = false;
    windows_dirty = true;
  }
  return true;
}

}  // namespace heddle::core
