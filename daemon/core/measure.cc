// What is learned of kernels, and a task's measurement stage (FIKIT section 3.2).
//
// A run is what a client does from its first launch after a synchronizing call to the next such
// call that leaves nothing of it on the device: for an unmodified program the nearest thing to
// FIKIT's. Runs and samples count if nobody else had work on the device meanwhile. After
// measure_runs runs that took measure_us the task is profiled: its kernels are timed now and then
// only, and what was measured of them stays. Predictions go on being corrected. Below: what the
// scheduler says of its clients, to whoever asks.
#include <algorithm>
#include <cmath>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {
namespace {

// A prediction is told to the client when it moves by this much.
constexpr double kHintChange = 0.05;

// A kernel is timed until so many samples were exclusive, and told apart if they differ, or taken
// at all: a task that is never alone, or always on SM sets, is not to be timed for ever.
constexpr uint32_t kExclusiveSamples = 32;
constexpr uint32_t kSamplesMax = 128;
// Its first launches are timed, and then one in so many: that costs a launch a third of its time
// (bench/RESULTS.md, "What heddle costs": a new task).
constexpr uint32_t kTimedFirst = 2;
constexpr uint8_t kTimedEvery = 5;

// A synchronizing call with nothing to wait for takes a few microseconds (on an H200).
constexpr TimeNs kWaitedNs = 10'000;
// One queue's end moves an inferred duration by this factor at most.
constexpr double kInferredFactor = 2;

// Decision::measure.
uint8_t timed_every(const KernelStats& s) {
  const bool measured = s.profiled || s.durations.count() >= kExclusiveSamples;
  const bool apart = !s.duration.differs() || s.duration.told_apart() >= kExclusiveSamples;
  if ((measured && apart) || s.timed >= kSamplesMax) return 0;
  return s.timed < kTimedFirst ? 1 : kTimedEvery;
}

}  // namespace

void Scheduler::State::on_profile(const Client& c, const ProfileBody& body) {
  KernelStats* place = table.kernels.peek(c.uid, StatsTable::key(c.task, body.kernel_id));
  if (place == nullptr) return;
  KernelStats& s = *place;
  learn_use(s, body.metrics);
  if (s.launches > 0) return;  // what this daemon saw itself is newer
  if (body.before != 0) return s.duration.restore(Context(body.before), body.duration);
  if (s.profiled) return;
  s.profiled = true;
  s.durations.restore(body.duration);
  s.gaps_launching.restore(body.gap_launching);
  s.gaps_synchronized.restore(body.gap_synchronized);
  if (body.duration.count > 0) s.duration.restore(body.duration);
  if (body.gap_launching.count > 0) s.gap_launching.restore(body.gap_launching);
  if (body.gap_synchronized.count > 0) s.gap_synchronized.restore(body.gap_synchronized);
}

// When work of the client ended, as far as that is over: be it an end that passed since the client
// was last looked at.
TimeNs Scheduler::State::worked_until(const Client& c) const {
  const TimeNs told = c.gap_open ? c.gap_start : c.active ? c.busy_until : 0;
  return std::max(told, std::min(c.row_until, clock));
}

// True if nobody else up to that priority had work on the device since then. A sample is exclusive
// if that is so since its launch: when the kernel ran is not known any better, for evidence may
// come much later.
bool Scheduler::State::alone_since(const Client& c, TimeNs since, int lowest) const {
  if (departed_at >= since) return false;
  return std::none_of(clients_by_id.begin(), clients_by_id.end(), [&](const auto& entry) {
    const Client& other = *entry.second;
    return &other != &c && other.priority <= lowest &&
           (other.busy(clock) || worked_until(other) > since);
  });
}

// The observed gap corrects the estimate, whether or not anybody filled it.
void Scheduler::State::add_gap(const Client& c, TimeNs at) {
  const Kernel* last = c.kernel(c.last_kernel);
  if (last == nullptr) return;
  const bool synchronized = c.gap_synchronized;
  const double gap_us = to_us(std::max<TimeNs>(0, at - c.gap_start));
  if (gap_us >= config.idle_us_max) return;
  KernelStats& s = *last->stats;
  s.gap(synchronized).add(gap_us);
  if (s.profiled || !alone_since(c, c.gap_start)) return;
  (synchronized ? s.gaps_synchronized : s.gaps_launching).add(gap_us);
}

void Scheduler::State::add_duration(Client& c, const Work& work, double us) {
  const Kernel* k = c.kernel(work.kernel);
  if (k == nullptr) return;
  KernelStats& s = *k->stats;
  if (!work.sm_set.empty()) {  // it took longer there than on all that its client has
    s.duration.infer(us / stretch(c, *k, predict(c, work.kernel), work.sm_set));
    ++s.timed;
    return send_hint(c, work.kernel);
  }
  if (!s.duration.timed()) s.timed = 0;  // so far on SM sets alone
  const bool exclusive = alone_since(c, work.posted_at);
  s.duration.add(us, exclusive, work.before);
  c.timed_us.add(us);
  c.typical_us = c.timed_us.value();
  ++s.timed;
  if (exclusive && s.profiled) {
    c.profile_grown |= s.duration.told_apart() == kExclusiveSamples;
  } else if (exclusive) {
    s.durations.add(us);
    if (c.measured->profiled && s.durations.count() >= kExclusiveSamples) {
      s.profiled = c.profile_grown = true;  // a kernel that its task had not launched before
    }
  }
  send_hint(c, work.kernel);
}

// A synchronizing call that waited returned when the queue ended, one that did not found it over.
// By as much as that is not what was predicted, the untimed launches in it were taken for too short
// or too long, each in proportion.
void Scheduler::State::infer_durations(Client& c, TimeNs at) {
  double untimed_us = 0;
  for (const UntimedLaunch& l : c.untimed) untimed_us += l.predicted_us;
  if (untimed_us <= 0 || c.waiting_since == 0 || c.awaits_others || c.unseen_until != 0) return;
  const bool waited = at - c.waiting_since >= kWaitedNs;
  if (!waited && c.predicted_end <= at) return;
  const double late_us = to_us(at - c.predicted_end);
  const double factor =
      std::clamp((untimed_us + late_us) / untimed_us, 1 / kInferredFactor, kInferredFactor);
  for (const UntimedLaunch& l : c.untimed) {
    c.kernels[l.kernel].stats->duration.infer(l.predicted_us * factor);
  }
  for (const UntimedLaunch& l : c.untimed) send_hint(c, l.kernel);
}

void Scheduler::State::end_run(Client& c, TimeNs at) {
  compare_run(c, at);
  TaskStats& task = *c.measured;
  if (task.profiled && c.untimed.empty()) return;
  if (!alone_since(c, c.run_start)) return;
  infer_durations(c, at);
  if (task.profiled) return;
  task.took_us += to_us(at - c.run_start);
  if (++task.runs < config.measure_runs || task.took_us < config.measure_us) return;
  task.profiled = c.profile_grown = true;
  for (uint32_t i = 0; i < c.kernels.size(); ++i) {
    if (c.kernel(i) == nullptr) continue;
    c.kernels[i].stats->profiled = c.kernels[i].stats->durations.count() > 0;
    init_kernel(c, i);  // it is known better now
    send_hint(c, i);
  }
}

void Scheduler::State::send_hint(Client& c, uint32_t kernel) {
  Kernel& k = c.kernels[kernel];
  const uint8_t measure = k.timed ? 1 : timed_every(*k.stats);
  const double us = k.stats->duration.longest_us();
  if (std::abs(us - k.hinted_us) <= kHintChange * k.hinted_us && measure == k.hinted_measure &&
      k.size == k.hinted_size && k.launch_priority == k.hinted_priority) {
    return;
  }
  k.hinted_size = k.size;
  k.hinted_priority = k.launch_priority;
  k.hinted_us = static_cast<float>(us);
  k.hinted_measure = measure;
  Decision d;
  d.kind = DecisionKind::kHint;
  d.device = config.device;
  d.at = clock;
  d.client = c.id;
  d.kernel = kernel;
  d.predicted_us = k.hinted_us;
  d.measure = measure;
  d.size = k.size;
  d.raised = k.launch_priority != kBuiltinPriority;
  if (d.raised) d.launch_priority = static_cast<int8_t>(k.launch_priority);
  decisions.push_back(d);
}

TaskProfile Scheduler::State::profile_of(const Client& c, bool profiled_only) const {
  TaskProfile profile{c.task, c.measured->runs, {}};
  for (const Kernel& k : c.kernels) {
    if (k.stats == nullptr || (profiled_only && !k.stats->profiled)) continue;
    if (k.stats == &c.unplaced) continue;  // what it says is of many kernels
    KernelProfile& out = profile.kernels.emplace_back();
    out.facts = k.facts;
    out.facts.metrics = k.stats->metrics;
    out.duration = k.stats->durations.summary();
    out.gap_launching = k.stats->gaps_launching.summary();
    out.gap_synchronized = k.stats->gaps_synchronized.summary();
    out.after = k.stats->duration.after();
    if (out.duration.count == 0) profile.kernels.pop_back();
  }
  return profile;
}

Outlook Scheduler::outlook(ClientId id, TimeNs now, uint32_t kernel) const {
  Outlook o;
  const Client* c = state_->find(id);
  if (c == nullptr) return o;
  o.busy = c->busy(now);
  o.queue_end = c->busy_until;
  o.idle_since =
      c->gap_open ? c->gap_start : std::min(now, std::max(c->busy_until, c->unseen_until));
  o.gap_synchronized = c->gap_synchronized;
  if (const GapEstimate* gap = c->gap_estimate()) {
    o.gap_known = gap->known();
    o.gap_us = gap->low_us();
  }
  const Kernel* k = c->kernel(kernel);
  o.duration_timed = k != nullptr && k->stats->duration.timed();
  o.duration_us = state_->predict(*c, kernel);
  return o;
}

std::vector<ClientStatus> Scheduler::clients() const {
  const State& s = *state_;
  std::vector<ClientStatus> all;
  all.reserve(s.client_ids.size());
  for (const ClientId id : s.client_ids) {
    const Client& c = *s.clients_by_id.at(id);
    ClientStatus status;
    s.client(id, status.view);
    status.name = c.name;
    status.label = c.label;
    status.view.name = {};
    status.view.label = {};
    status.launches = c.launches;
    status.granted = c.granted;
    status.outstanding_us = c.remaining_us(s.clock);
    status.gpu_us = c.gpu_us;
    status.waits = c.waits;
    status.kernels = static_cast<uint32_t>(c.kernels.size());
    status.runs = c.measured->runs;
    status.profiled = c.measured->profiled;
    status.added_us_max = std::max(c.added_us_max, s.bound_us(c));
    status.gaps_filled = c.gaps_filled;
    status.gaps_exceeded = c.gaps_exceeded;
    status.worst = c.worst;
    const auto by = s.clients_by_id.find(c.worst.by);
    const bool there = by != s.clients_by_id.end();
    const Kernel* kernel = there ? by->second->kernel(c.worst.kernel) : nullptr;
    if (kernel != nullptr) status.worst_kernel = kernel->facts.name;
    status.promise = c.account.status();
    all.push_back(std::move(status));
  }
  return all;
}

bool Scheduler::active(ClientId id) const {
  const Client* c = state_->find(id);
  return c != nullptr && c->active;
}

bool Scheduler::measured(ClientId id) const {
  const Client* c = state_->find(id);
  return c != nullptr && c->measured->profiled;
}

TaskProfile Scheduler::profile(ClientId id) const {
  const Client* c = state_->find(id);
  return c != nullptr ? state_->profile_of(*c, false) : TaskProfile{};
}

TaskProfile Scheduler::take_profile(ClientId id) {
  Client* c = state_->find(id);
  if (c == nullptr || !c->profile_grown) return {};
  c->profile_grown = false;
  return state_->profile_of(*c, true);
}

}  // namespace heddle::core
