// Learning about kernels, and a task's measurement stage (FIKIT section 3.2).
//
// A run lasts from a client's first launch after a synchronizing call to the next such call that
// leaves none of its work on the device. For an unmodified program that is the nearest thing to
// FIKIT's run. Runs and samples count if no other client had work on the device meanwhile. After
// measure_runs runs that took measure_us the task is profiled: its kernels are timed only now and
// then, and the measured distributions stay. Predictions go on being corrected.
#include "daemon/core/learning.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::core {
namespace {

// A kernel is timed until it has kExclusiveSamples, and as many told apart by context if they
// differ; or kSamplesMax of any kind, so that a task that is never alone, or always on SM sets, is
// not timed for ever.
constexpr uint32_t kExclusiveSamples = 32;
constexpr uint32_t kSamplesMax = 128;
// A new kernel's first launches are timed, and then one in five: timing makes a launch a third
// slower (bench/RESULTS.md, "What heddle costs": a new task).
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

// A prediction is sent to the client when it changes by more than this part.
constexpr double kHintChange = 0.05;

}  // namespace

void Learning::attach(Client& c, uint32_t profile_runs) {
  c.known.typical_us = now_.config.default_kernel_us;
  c.known.measured = table_.tasks.hold(c.who.uid, c.who.task);
  if (c.known.measured == nullptr) c.known.measured = &c.known.unstaged;
  if (profile_runs > 0 && !c.known.measured->profiled) {
    c.known.measured->runs = profile_runs;
    c.known.measured->took_us = 0;
    c.known.measured->profiled = true;
  }
}

void Learning::forget_kernel(const Client& c, Kernel& k) {
  if (k.stats != nullptr && k.stats != &c.known.unplaced) table_.kernels.release(*k.stats);
  k.stats = nullptr;
}

void Learning::detach(Client& c) {
  departed_at_ = std::max(departed_at_, c.active ? now_.clock : worked_until(c));
  for (Kernel& k : c.known.kernels) forget_kernel(c, k);
  if (c.known.measured != &c.known.unstaged) table_.tasks.release(*c.known.measured);
}

void Learning::meet(Client& c, const KernelBody& body, Promises& promises) {
  if (body.index >= c.known.kernels.size()) c.known.kernels.resize(body.index + 1);
  Kernel& k = c.known.kernels[body.index];
  forget_kernel(c, k);
  k = {};
  k.facts = body;
  k.waves = k.waves_on(!c.place.sm_set.empty() ? c.place.groups.sms_of(c.place.sm_set)
                                               : now_.config.sm_total);
  k.stats = table_.kernels.hold(c.who.uid, StatsTable::key(c.who.task, body.id));
  if (k.stats != nullptr) {
    promises.learn_use(*k.stats, body.metrics);
  } else {
    k.stats = &c.known.unplaced;
    c.known.full = true;
  }
}

void Learning::meet_nodes(Client& c, const NodesBody& body) {
  if (c.kernel(body.graph) == nullptr) return;
  Kernel& graph = c.known.kernels[body.graph];
  if (!graph.is_graph() || graph.stats == &c.known.unplaced) return;
  graph.nodes = std::make_unique<NodesBody>(body);
  graph.uses = 0;
  c.known.profile_grown |= c.known.measured->profiled;  // a saved profile may lack the nodes
}

void Learning::renew(Client& c, Kernel& graph, Promises& promises) {
  if (graph.nodes == nullptr || graph.uses == promises.uses()) return;
  const NodesBody& body = *graph.nodes;
  std::vector<GraphPart> parts{{nullptr, 0, body.others}};
  for (uint32_t i = 0; i < std::min(body.count, NodesBody::kMost); ++i) {
    const NodesBody::Node& node = body.nodes[i];
    GraphPart& part = parts.emplace_back(GraphPart{nullptr, 0, node.count});
    if (c.kernel(node.kernel) == nullptr) continue;
    Kernel& k = c.known.kernels[node.kernel];
    if (k.is_graph() || k.stats == &c.known.unplaced) continue;
    k.in_graph = true;
    part.metrics = &k.stats->metrics;
    part.us = k.stats->duration.known() ? k.stats->duration.us()
                                        : part.metrics->get("us_profiled").value_or(0);
  }
  if (promises.learn_nodes(graph, parts)) graph.policy = 0;
}

KernelStats* Learning::find(uint32_t uid, uint64_t task, uint64_t kernel_id) {
  return table_.kernels.peek(uid, StatsTable::key(task, kernel_id));
}

void Learning::tell(Client& c, uint32_t kernel) {
  const Kernel& k = c.known.kernels[kernel];
  telling_.hint(c, kernel, k.timed ? 1 : timed_every(*k.stats));
}

void Learning::profile(const Client& c, const ProfileBody& body, Promises& promises) {
  KernelStats* place = table_.kernels.peek(c.who.uid, StatsTable::key(c.who.task, body.kernel_id));
  if (place == nullptr) return;
  KernelStats& s = *place;
  promises.learn_use(s, body.metrics);
  if (s.launches > 0) return;  // this daemon's own samples are newer
  if (body.before != 0) return s.duration.restore(Context(body.before), body.duration);
  if (s.profiled || body.duration.count == 0) return;
  s.profiled = true;
  s.durations.restore(body.duration);
  s.gaps_launching.restore(body.gap_launching);
  s.gaps_synchronized.restore(body.gap_synchronized);
  if (body.duration.count > 0) s.duration.restore(body.duration);
  if (body.gap_launching.count > 0) s.gap_launching.restore(body.gap_launching);
  if (body.gap_synchronized.count > 0) s.gap_synchronized.restore(body.gap_synchronized);
}

// When the client's work last ended. Its predicted end may have passed since the client was last
// settled.
TimeNs Learning::worked_until(const Client& c) const {
  const TimeNs told = c.rhythm.gap_open ? c.rhythm.gap_start : c.active ? c.work.busy_until : 0;
  return std::max(told, std::min(c.work.row_until, now_.clock));
}

// True if no other client of priority `lowest` or higher had work on the device since then. A
// sample is exclusive if this holds since its launch: the core knows no better when the kernel ran,
// because evidence may come much later.
bool Learning::alone_since(const Client& c, TimeNs since, int lowest) const {
  if (departed_at_ >= since) return false;
  return std::none_of(roster_.all().begin(), roster_.all().end(), [&](const auto& entry) {
    const Client& other = *entry.second;
    return &other != &c && other.rule.priority <= lowest &&
           (other.busy(now_.clock) || worked_until(other) > since);
  });
}

// The observed gap corrects the estimate, whether or not other work filled it.
void Learning::gap_ended(const Client& c, TimeNs at) {
  const Kernel* last = c.kernel(c.rhythm.last_kernel);
  if (last == nullptr) return;
  const bool synchronized = c.rhythm.gap_synchronized;
  const double gap_us = to_us(std::max<TimeNs>(0, at - c.rhythm.gap_start));
  if (gap_us >= now_.config.idle_us_max) return;
  KernelStats& s = *last->stats;
  s.gap(synchronized).add(gap_us);
  if (s.profiled || !alone_since(c, c.rhythm.gap_start)) return;
  (synchronized ? s.gaps_synchronized : s.gaps_launching).add(gap_us);
}

void Learning::timed(Client& c, const Work& work, double us) {
  const Kernel* k = c.kernel(work.kernel);
  if (k == nullptr) return;
  KernelStats& s = *k->stats;
  // The launch ran on an SM set, where it takes longer; or on more SMs than its client has, like a
  // graph whose twin is not made yet. Its time is no sample, but good for a guess.
  if (!work.sm_set.empty() || (work.strayed && !c.place.sm_set.empty())) {
    s.duration.infer(us / c.stretch(*k, c.predict_us(work.kernel), work.sm_set));
    ++s.timed;
    return tell(c, work.kernel);
  }
  if (!s.duration.timed()) s.timed = 0;  // all times so far were on SM sets
  const bool exclusive = alone_since(c, work.posted_at);
  s.duration.add(us, exclusive, work.before);
  c.known.timed(us);
  ++s.timed;
  if (exclusive && s.profiled) {
    c.known.profile_grown |= s.duration.told_apart() == kExclusiveSamples;
  } else if (exclusive) {
    s.durations.add(us);
    if (c.known.measured->profiled && s.durations.count() >= kExclusiveSamples) {
      s.profiled = c.known.profile_grown = true;  // a kernel that is new to a profiled task
    }
  }
  tell(c, work.kernel);
}

void Learning::stopped(Client& c, const Work& work, double us) {
  const Kernel* k = c.kernel(work.kernel);
  if (k == nullptr || k->stats->duration.timed() || us <= work.stood_us) return;
  k->stats->duration.infer(us - work.stood_us);
  tell(c, work.kernel);
}

// Infers durations of untimed kernels. A synchronizing call that waited returned when the queue
// ended; one that did not wait found it empty. The difference from the predicted end is put down to
// the untimed launches in the queue, each in proportion to its prediction.
void Learning::infer_durations(Client& c, TimeNs at) {
  double untimed_us = 0;
  for (const UntimedLaunch& l : c.work.untimed) untimed_us += l.predicted_us;
  if (untimed_us <= 0 || c.work.waiting_since == 0 || c.work.awaits_others ||
      c.work.unseen_until != 0)
    return;
  const bool waited = at - c.work.waiting_since >= kWaitedNs;
  if (!waited && c.work.predicted_end <= at) return;
  const double late_us = to_us(at - c.work.predicted_end);
  const double factor =
      std::clamp((untimed_us + late_us) / untimed_us, 1 / kInferredFactor, kInferredFactor);
  for (const UntimedLaunch& l : c.work.untimed) {
    c.known.kernels[l.kernel].stats->duration.infer(l.predicted_us * factor);
  }
  for (const UntimedLaunch& l : c.work.untimed) tell(c, l.kernel);
}

bool Learning::run_ended(Client& c, TimeNs at) {
  if (c.run.stopped) return c.promise.account.end_run(0, 0, true), false;
  compare_run(c, at);
  TaskStats& task = *c.known.measured;
  if (task.profiled && c.work.untimed.empty()) return false;
  if (!alone_since(c, c.run.start)) return false;
  infer_durations(c, at);
  if (task.profiled) return false;
  task.took_us += to_us(at - c.run.start);
  if (++task.runs < now_.config.measure_runs || task.took_us < now_.config.measure_us) return false;
  task.profiled = c.known.profile_grown = true;
  for (uint32_t i = 0; i < c.known.kernels.size(); ++i) {
    if (c.kernel(i) == nullptr) continue;
    c.known.kernels[i].stats->profiled = c.known.kernels[i].stats->durations.count() > 0;
  }
  return true;
}

// Compares a run that ended with its time alone, if no client as important or more was beside it.
// The client's own time since the run before belongs to the time that others can slow down. It
// counts up to the length of the run, for the client may only have waited for requests.
void Learning::compare_run(Client& c, TimeNs at) {
  if (!alone_since(c, c.run.start, c.rule.priority)) return c.promise.account.end_run(0, 0, true);
  const bool alone = alone_since(c, c.run.start, kPriorityLowest);
  const double us = to_us(at - c.run.start);
  const double apart_us = to_us(c.run.start - std::exchange(c.run.before, at));
  const uint64_t kind = RunComparison::kind_of(c.run.first, c.run.launches);
  const double alone_us = c.run.comparison.add(kind, us, c.run.launching_us(at), alone, now_.clock);
  c.promise.account.end_run(us, alone_us, !alone);
  if (alone_us == 0) return;
  if (!roster_.below(c.rule.priority).empty()) {
    ++runs_above_.count;
    runs_above_.took_us += us;
    runs_above_.alone_us += alone_us;
  }
  Runs& of = runs_of_[static_cast<size_t>(c.rule.priority)];
  RunTimes& sum = of.times;
  ++sum.count;
  const double before_us = std::min(apart_us, alone_us);
  sum.took_us += before_us + us;
  sum.alone_us += before_us + alone_us;
  sum.pauses_us += before_us;
  sum.pause_roots += std::sqrt(before_us);
  if (!c.promise.tail.promised()) return of.others.add(us, alone_us);
  ++of.promised.runs;
  of.promised.slow += c.promise.tail.end_run(us, alone_us) ? 1 : 0;
}

SlowRunCount Learning::slower_runs(int priority, double times) const {
  SlowRunCount all;
  for (int p = 0; p < std::clamp(priority, 0, kPriorityCount); ++p) {
    const Runs& of = runs_of_[static_cast<size_t>(p)];
    all.runs += std::isinf(times) ? of.promised.runs : of.times.count;
    all.slow += of.promised.slow + of.others.slower(times);
  }
  return all;
}

RunTimes Learning::runs(int priority) const {
  RunTimes all;
  for (int p = 0; p < std::clamp(priority, 0, kPriorityCount); ++p) {
    const RunTimes& sum = runs_of_[static_cast<size_t>(p)].times;
    all.count += sum.count;
    all.took_us += sum.took_us;
    all.alone_us += sum.alone_us;
    all.pauses_us += sum.pauses_us;
    all.pause_roots += sum.pause_roots;
  }
  return all;
}

TaskProfile Learning::profile_of(const Client& c, bool profiled_only) const {
  TaskProfile profile{c.who.task, c.known.measured->runs, {}};
  for (const Kernel& k : c.known.kernels) {
    if (k.stats == nullptr || (profiled_only && !k.stats->profiled && !k.in_graph)) {
      continue;
    }
    if (k.stats == &c.known.unplaced) continue;  // an entry that many kernels share
    KernelProfile& out = profile.kernels.emplace_back();
    out.facts = k.facts;
    out.facts.metrics = k.stats->metrics;
    // Kernels inside graphs are not timed, and this one has too few samples elsewhere: it is in the
    // profile for its metrics alone.
    if (profiled_only && !k.stats->profiled) continue;
    out.duration = k.stats->durations.summary();
    out.gap_launching = k.stats->gaps_launching.summary();
    out.gap_synchronized = k.stats->gaps_synchronized.summary();
    out.after = k.stats->duration.after();
    if (out.duration.count == 0 && !k.in_graph) profile.kernels.pop_back();
  }
  return profile;
}

Decision Telling::make(DecisionKind kind, const Client& c) const {
  Decision d;
  d.kind = kind;
  d.device = now_.config.device;
  d.at = now_.clock;
  d.client = c.id;
  return d;
}

void Telling::grant(const Decision& d) {
  decisions_.push_back(d);
  recent_[recent_count_++ % recent_.size()] = d;
}

void Telling::allowance(Client& c, bool bypass) {
  c.standing.opening.graph &= !c.standing.gated();
  Decision d = make(DecisionKind::kAllowance, c);
  const bool by_policy = c.standing.choice.any(now_.clock);
  d.decider = bypass ? Decider::kBypass : by_policy ? Decider::kPolicy : Decider::kBuiltin;
  d.allowed = c.standing.allowed;
  d.gates_soon = c.standing.gates_soon;
  d.gates_inside = c.standing.gates_inside;
  d.kernels_ask = c.standing.kernels_ask;
  d.managed = c.standing.choice.refused ? 0 : 1;
  d.launch_priority = c.launch_priority(now_.config);
  d.sm_set = c.place.cut_set;
  d.ring = c.place.ring;
  d.sizes = c.place.family.sizes;
  decisions_.push_back(d);
}

void Telling::hint(Client& c, uint32_t kernel, uint8_t measure) {
  Kernel& k = c.known.kernels[kernel];
  const double us = k.stats->duration.longest_us();
  if (std::abs(us - k.hinted_us) <= kHintChange * k.hinted_us && measure == k.hinted_measure &&
      k.size == k.hinted_size && k.launch_priority == k.hinted_priority) {
    return;
  }
  k.hinted_size = k.size;
  k.hinted_priority = k.launch_priority;
  k.hinted_us = static_cast<float>(us);
  k.hinted_measure = measure;
  Decision d = make(DecisionKind::kHint, c);
  d.kernel = kernel;
  d.predicted_us = k.hinted_us;
  d.measure = measure;
  d.size = k.size;
  d.raised = k.launch_priority != kBuiltinPriority;
  if (d.raised) d.launch_priority = static_cast<int8_t>(k.launch_priority);
  decisions_.push_back(d);
}

std::vector<Decision> Telling::last_grants() const {
  std::vector<Decision> all;
  for (uint64_t i = recent_count_ - std::min<uint64_t>(recent_count_, recent_.size());
       i < recent_count_; ++i) {
    all.push_back(recent_[i % recent_.size()]);
  }
  return all;
}

}  // namespace heddle::core
