// Scheduler::View: the state of clients for status commands.
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

RunTimes Scheduler::View::runs_above() const { return s_.learning.runs_above(); }

Explanation Scheduler::View::explain(ClientId id) const {
  const Client* c = s_.roster.find(id);
  if (c == nullptr) return {};
  return s_.told.of(*c, s_.seat.orders().queues().all(), s_.seat.number());
}

const Stall& Scheduler::View::last_stall() const { return s_.stalls.last(); }
const StallCounts& Scheduler::View::stalls() const { return s_.stalls.counts(); }

Outlook Scheduler::View::outlook(ClientId id, TimeNs now, uint32_t kernel) const {
  Outlook o;
  const Client* c = s_.roster.find(id);
  if (c == nullptr) return o;
  o.busy = c->busy(now);
  o.queue_end = c->work.busy_until;
  o.idle_since = c->rhythm.gap_open
                     ? c->rhythm.gap_start
                     : std::min(now, std::max(c->work.busy_until, c->work.unseen_until));
  o.gap_synchronized = c->rhythm.gap_synchronized;
  if (const GapEstimate* gap = c->gap_estimate()) {
    o.gap_known = gap->known();
    o.gap_us = gap->low_us();
  }
  const Kernel* k = c->kernel(kernel);
  o.duration_timed = k != nullptr && k->stats->duration.timed();
  o.duration_us = c->predict_us(kernel);
  return o;
}

std::vector<ClientStatus> Scheduler::View::clients(TimeNs now) const {
  std::vector<ClientStatus> all;
  all.reserve(s_.roster.ids().size());
  for (const ClientId id : s_.roster.ids()) {
    const Client& c = *s_.roster.all().at(id);
    ClientStatus status;
    s_.seat.orders().client(id, status.view);
    status.name = c.who.name;
    status.label = c.who.label;
    status.view.name = {};
    status.view.label = {};
    status.launches = c.told.launches;
    status.granted = c.told.granted;
    status.outstanding_us = c.remaining_us(s_.clock);
    status.gpu_us = c.gpu_time.had_us;
    status.got = c.got.parts(std::max(s_.clock, now) / kSecondNs, c.gpu_time.had_us);
    status.waits = c.told.waits;
    status.kernels = static_cast<uint32_t>(c.known.kernels.size());
    status.runs = c.known.measured->runs;
    status.profiled = c.known.measured->profiled;
    status.added_us_max = std::max(c.bound.added_us_max, s_.bounds.bound_us(c));
    status.gaps_filled = c.bound.gaps_filled;
    status.gaps_exceeded = c.bound.gaps_exceeded;
    status.worst = c.bound.worst;
    const auto by = s_.roster.all().find(c.bound.worst.by);
    const bool there = by != s_.roster.all().end();
    const Kernel* kernel = there ? by->second->kernel(c.bound.worst.kernel) : nullptr;
    if (kernel != nullptr) status.worst_kernel = kernel->facts.name;
    status.promise = c.promise.account.status();
    status.promise_p99 = c.promise.tail.status();
    status.ceilings = c.ceiling.told();
    all.push_back(std::move(status));
  }
  return all;
}

bool Scheduler::View::sized(ClientId id) const {
  const Client* c = s_.roster.find(id);
  return c != nullptr && (c->place.sized || !c->place.cut_set.empty());
}

bool Scheduler::View::active(ClientId id) const {
  const Client* c = s_.roster.find(id);
  return c != nullptr && c->active;
}

bool Scheduler::View::measured(ClientId id) const {
  const Client* c = s_.roster.find(id);
  return c != nullptr && c->known.measured->profiled;
}

TaskProfile Scheduler::View::profile(ClientId id) const {
  const Client* c = s_.roster.find(id);
  return c != nullptr ? s_.learning.profile_of(*c, false) : TaskProfile{};
}

bool Scheduler::View::full(ClientId id) const {
  const Client* c = s_.roster.find(id);
  return c != nullptr && c->known.full;
}

const LastWords& Scheduler::View::last_words() const { return s_.seat.last_words(); }

}  // namespace heddle::core
