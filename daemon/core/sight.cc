#include "daemon/core/sight.h"

#include <algorithm>

namespace heddle::core {

void Sight::fill(const Client& c, uint32_t kernel, LaunchKind kind, LaunchView& v) {
  v = {};  // the view may hold another launch; an unannounced kernel fills in little
  v.client = c.id;
  v.kind = kind;
  v.priority = c.rule.priority;
  v.predicted_us = c.predict_us(kernel);
  v.wave_us = v.mean_us = v.predicted_us;
  if (const Kernel* k = c.kernel(kernel)) {
    if (k->stats->duration.known()) v.mean_us = k->stats->duration.us();
    v.facts = &k->facts;
    v.metrics = &k->metrics();
    v.launches = k->stats->launches;
    v.groups = &c.place.groups;
    v.wave_us = v.predicted_us / (k->is_graph() ? std::max(1u, k->facts.grid_blocks) : k->waves);
    v.p90_us = static_cast<double>(k->stats->durations.summary().p90_us);
    v.profiled = k->stats->profiled;
    v.gap_after_us = k->stats->gap_synchronized.low_us();
  }
}

bool Sight::launch(LaunchId id, LaunchView& v) const {
  const uint32_t slot = heads_.slot_of(id);
  if (slot == kNoHead) return false;
  const Head& w = heads_[slot];
  fill(*w.client, w.kernel, w.kind, v);
  v.predicted_us = w.predicted_us();
  v.seq = w.ask_seq;
  v.movable = w.moves();
  v.open_us = w.open_us;
  v.wait_us = to_us(now_.clock - w.asked_at);
  v.run_us = 0;
  return true;
}

bool Sight::client(ClientId id, ClientView& v) const {
  const auto it = roster_.all().find(id);
  if (it == roster_.all().end()) return false;
  const Client& c = *it->second;
  v = {.id = c.id,
       .name = c.who.name,
       .label = c.who.label,
       .uid = c.who.uid,
       .pid = c.who.pid,
       .priority = c.rule.priority,
       .share = c.rule.share,
       .slo_ms = c.rule.slo_ms,
       .request = static_cast<double>(c.rule.compute.request),
       .limit = static_cast<double>(c.rule.compute.limit),
       .slowdown_max = c.promise.account.slowdown_max(),
       .slowdown_p99_max = c.promise.tail.slowdown_max(),
       .allowed = c.standing.allowed,
       .queued = c.head.any() ? 1U : 0U,
       .inflight_us = c.remaining_us(now_.clock),
       .gpu_us = c.gpu_time.had_us,
       .launches = c.told.launches,
       .work_us = c.told.work_us,
       .active = c.active,
       .gates = c.holds_on_device(),
       .profiled = c.known.measured->profiled,
       .stopped_us = c.stop.stood_us + (c.work.stands ? to_us(now_.clock - c.stop.since) : 0),
       .stops = c.stop.count,
       .stoppable = !now_.config.mps && c.stop.able == ipc::kStopYes,
       .resident_bytes = c.place.memory.parked ? 0 : static_cast<double>(c.place.memory.bytes),
       .parked = c.place.memory.parked};
  return true;
}

GpuView Sight::gpu() const {
  GpuView v;
  v.index = now_.config.device;
  v.sm_total = v.sm_free = now_.config.sm_total;
  v.switch_us = now_.config.switch_us;
  v.mps = now_.config.mps;
  SmSet taken;
  const int highest = roster_.highest_active();
  for (const Client* c : roster_.active()) {
    // A client that is stopped while no client above is busy goes on now: its work counts.
    const bool stands = c->work.stands && roster_.busy(c->rule.priority, now_.clock);
    if (c->rule.priority > highest && !stands) {
      v.inflight_us += c->remaining_us(now_.clock);
      v.on_sets_us += bounds_.on_sets_us(*c);
    }
    // The client itself tells how many SMs its groups have, so limit what is subtracted.
    v.sm_free -= std::min(v.sm_free, c->place.groups.sms_of(c->work.outstanding.sm_set() - taken));
    taken |= c->work.outstanding.sm_set();
  }
  v.stops = !now_.config.mps && now_.stoppable > 0;
  saw_.inflight_us = static_cast<float>(v.inflight_us);
  return v;
}

double Sight::gap_us(int priority) const {
  const double us = roster_.gap_left_us(priority, now_.clock);
  saw_.gap_us = static_cast<float>(us);
  return us;
}

double Sight::gap_length_us(int priority) const {
  return roster_.least_above(priority, now_.clock, &Client::gap_length_us);
}

BudgetVerdict Sight::budget_fits(LaunchId id, SmCount sm) {
  const uint32_t slot = heads_.slot_of(id);
  if (slot == kNoHead || !promises_.any()) return {};
  const Head& w = heads_[slot];
  Work work;
  work.kernel = w.kernel;
  work.kind = w.kind;
  const bool own_size = sm.get() == 0 && w.movable();
  work.sm_set = own_size ? w.client->set_of(w.kernel) : places_.peek(*w.client, w, sm);
  w.client->predict(work);
  const double us = w.at_gate() ? w.gate.unit_us : work.predicted_us;
  return promises_.afford(*w.client, w.kernel, us, work.sm_set);
}

SmCount Sight::free_sms(LaunchId id, SmCount sm) const {
  const uint32_t slot = heads_.slot_of(id);
  return slot != kNoHead ? places_.free(*heads_[slot].client, heads_[slot], sm) : SmCount();
}

LaunchId Sight::queue_best_fit(QueueId queue, double us) const {
  return queues_.best_fit(
      queue, us, [this](LaunchId id) { return follows_none_on_sets(id) && may_begin(id); });
}

}  // namespace heddle::core
