// Events: what clients did, and what it says about who is busy, idle or expected back.
#include "daemon/core/scheduler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "daemon/core/shadow_state.h"

namespace heddle::core {
namespace {

constexpr uint32_t kKernelIndexMax = 1 << 16;
constexpr uint64_t kCheckEvery = 1024;  // events

template <size_t N>
std::string text(const char (&chars)[N]) {
  return std::string(chars, strnlen(chars, N));
}

}  // namespace

Scheduler::State::State(const Config& c) : config(c) {}
Scheduler::State::~State() = default;

Client* Scheduler::State::find(ClientId id) {
  Client*& place = found[id % found.size()];
  if (place == nullptr || place->id != id) {
    const auto it = clients_by_id.find(id);
    if (it == clients_by_id.end()) return nullptr;
    place = it->second.get();
  }
  return place;
}

double Scheduler::State::predict(const Client& c, uint32_t kernel) const {
  const Kernel* k = c.kernel(kernel);
  return k != nullptr && k->stats->duration.known() ? k->stats->duration.us(c.context)
                                                    : c.typical_us;
}

void Scheduler::State::on_attached(const Event& e) {
  if (e.attached.priority >= kPriorityCount || e.client == 0 || find(e.client) != nullptr) {
    ++stats.rejected;
    return;
  }
  auto owned = std::make_unique<Client>();
  Client& c = *owned;
  c.id = e.client;
  c.task = e.attached.task;
  c.typical_us = config.default_kernel_us;
  c.name = text(e.attached.name);
  c.label = text(e.attached.label);
  c.pid = e.attached.pid;
  c.uid = e.attached.uid;
  c.measured = table.tasks.hold(c.uid, c.task);
  if (c.measured == nullptr) c.measured = &c.unstaged;
  if (e.attached.profile_runs > 0 && !c.measured->profiled) {
    c.measured->runs = e.attached.profile_runs;
    c.measured->took_us = 0;
    c.measured->profiled = true;
  }
  const AttachedBody& b = e.attached;
  set_terms(c, {b.share, b.slo_ms, b.window_max_us, b.priority, b.slowdown_max});
  c.fail_closed = e.attached.fail_closed;
  c.groups = e.attached.groups;
  c.groups.count = std::min(c.groups.count, GroupCount(kSmGroups));
  c.sm_set = e.attached.sm_set;
  clients_by_id.emplace(c.id, std::move(owned));
  client_ids.insert(std::lower_bound(client_ids.begin(), client_ids.end(), c.id), c.id);
  give_family(c);
  if (policy != nullptr) apply(c, policy->client_init(*this, c.id));
  windows_dirty = dispatch_wanted = true;
}

void Scheduler::State::on_detached(Client& c) {
  for (const uint32_t slot : c.asks) {
    if (slot != kNoSlot) release(slot);
  }
  if (policy != nullptr) faulted(policy->client_exit(*this, c.id));
  set_resident(c, false);
  promises -= c.account.promised() ? 1 : 0;
  departed_at = std::max(departed_at, c.active ? clock : worked_until(c));
  for (Kernel& k : c.kernels) forget_kernel(c, k);
  if (c.measured != &c.unstaged) table.tasks.release(*c.measured);
  std::erase(active, &c);
  std::erase(client_ids, c.id);
  found[c.id % found.size()] = nullptr;
  clients_by_id.erase(c.id);
  windows_dirty = dispatch_wanted = true;
}

void Scheduler::State::forget_kernel(const Client& c, Kernel& k) {
  if (k.stats != nullptr && k.stats != &c.unplaced) table.kernels.release(*k.stats);
  k.stats = nullptr;
}

void Scheduler::State::on_kernel(Client& c, const KernelBody& body) {
  if (body.index >= kKernelIndexMax) {
    ++stats.rejected;
    return;
  }
  if (body.index >= c.kernels.size()) c.kernels.resize(body.index + 1);
  Kernel& k = c.kernels[body.index];
  forget_kernel(c, k);
  k = {};
  k.facts = body;
  k.waves = k.waves_on(!c.sm_set.empty() ? c.groups.sms_of(c.sm_set) : config.sm_total);
  k.stats = table.kernels.hold(c.uid, StatsTable::key(c.task, body.id));
  if (k.stats != nullptr) {
    learn_use(*k.stats, body.metrics);
  } else {
    k.stats = &c.unplaced;
    c.full = true;
  }
  init_kernel(c, body.index);
  send_hint(c, body.index);
}

// The client has work: its gap ends. One that is still busy leaves none. A gap that the client
// spent waiting for a grant is none of its own making, so it ends when it asks.
void Scheduler::State::touch(Client& c, TimeNs at) {
  if (clock >= c.settled_until) settle(c);
  if (c.gap_open) {
    add_gap(c, at);
    c.gap_open = false;
    end_gap(c, at);
  }
  if (!c.active) {
    c.active = true;
    insert_active(c);
    windows_dirty = true;
    if (policy != nullptr) apply(c, policy->client_active(*this, c.id));
  }
}

void Scheduler::State::add_work(Client& c, const Work& work) {
  Work dropped;
  if (c.outstanding.add(work, dropped)) finish(c, dropped, clock, 0, Seen::kNot);
  if (work.posted_at >= c.busy_until) c.untimed.clear();
  c.set_busy_until(std::max(c.busy_until, work.posted_at) + to_ns(work.predicted_us),
                   work.posted_at);
  c.last_kernel = work.kernel;
  c.longest_us = std::max(c.longest_us, work.predicted_us);
  c.longest_hold_us = std::max(c.longest_hold_us, work.hold_us);
  count_run(c, work);
  charge_promises(c, work);
  c.gap_synchronized = false;
  ++c.launches;
  const Kernel* k = c.kernel(work.kernel);
  if (k == nullptr || c.unobserved()) c.context.forget();  // others may come in between
  if (k != nullptr) {
    c.context.launched(k->facts.id);
    ++k->stats->launches;
    if (!k->stats->duration.timed() && work.sm_set.empty() &&
        c.untimed.size() < Outstanding::kWorkMax) {
      c.untimed.push_back({work.kernel, work.predicted_us});
    }
  }
  started(c, work);
}

void Scheduler::State::on_posted(Client& c, const Event& e) {
  const LaunchBody& b = e.launch;
  ++stats.posted;
  const bool launch = b.kind == LaunchKind::kKernel || b.kind == LaunchKind::kGraph;
  // While capturing nothing runs yet; and copies leave the SMs idle, so they end no gap.
  if (b.admission == Admission::kSelfCapturing || !launch) return;
  if (b.ask_seq != 0 && reconcile(c, b)) return;
  touch(c, e.at);
  // Between two records the window moved on: the launch is late, and in flight all the same.
  if (b.epoch != c.epoch &&
      (b.admission == Admission::kWindow || b.admission == Admission::kLease ||
       b.admission == Admission::kCredit)) {
    ++stats.late;
  }
  Work work;
  work.seq = b.stream_seq;
  work.posted_at = e.at;
  work.kernel = b.kernel;
  work.kind = b.kind;
  ask_about(c, b.kernel);
  work.sm_set = set_of(c, b.kernel);
  if (b.admission == Admission::kCredit) use_credit(c, b.thread, work);
  if (b.unmovable) work.sm_set = {};
  predict(c, work);
  if (b.admission == Admission::kSelfExempt) c.awaits_others = true;
  work.stream = b.stream;
  add_work(c, work);
  if (b.may_follow > 0) c.row_until = e.at + kRowNs;
}

// A launch that asked and then went by itself. True if the grant crossed it: then its work is
// accounted already.
bool Scheduler::State::reconcile(Client& c, const LaunchBody& b) {
  if (const uint32_t slot = find_ask(c, b); slot != kNoSlot) {
    ++stats.withdrawn;
    release(slot);
    return false;
  }
  return b.thread < c.by_thread.size() && c.by_thread[b.thread].ask_seq == b.ask_seq;
}

uint32_t Scheduler::State::find_ask(const Client& c, const LaunchBody& b) const {
  const uint32_t slot = b.thread < c.asks.size() ? c.asks[b.thread] : kNoSlot;
  return slot != kNoSlot && waiting[slot].ask_seq == b.ask_seq ? slot : kNoSlot;
}

void Scheduler::State::on_asked(Client& c, const Event& e) {
  const LaunchBody& b = e.launch;
  if (b.thread >= c.asks.size()) c.asks.resize(b.thread + 1u, kNoSlot);
  if (c.asks[b.thread] != kNoSlot) {  // a thread has one ask at a time
    ++stats.rejected;
    return;
  }
  ++stats.asked;
  touch(c, e.at);
  uint32_t slot;
  if (waiting_free.empty()) {
    slot = static_cast<uint32_t>(waiting.size());
    waiting.emplace_back();
  } else {
    slot = waiting_free.back();
    waiting_free.pop_back();
  }
  Waiting& w = waiting[slot];
  w.client = &c;
  w.asked_at = e.at;
  w.arrival = ++arrivals;
  w.stream_seq = b.stream_seq;
  w.kernel = b.kernel;
  w.ask_seq = b.ask_seq;
  w.queue = -1;
  w.stream = b.stream;
  w.thread = b.thread;
  w.kind = b.kind;
  w.unmovable = b.unmovable;
  c.asks[b.thread] = slot;
  if (c.queued++ == 0) c.asking_since = e.at;
  ++waiting_count;
  starve_at = std::min(starve_at, e.at + starve_ns());
  ask_about(c, b.kernel);
  w.by_credit_us = end_credit(c, b.thread);
  take_turn(w);
  enqueue(slot);
  dispatch_wanted = true;
}

void Scheduler::State::on_withdrawn(Client& c, const Event& e) {
  if (const uint32_t slot = find_ask(c, e.launch); slot != kNoSlot) {
    ++stats.withdrawn;
    release(slot);
  } else {  // granted in the meantime: its work is in flight already
    if (e.launch.admission != Admission::kAsk) ++stats.crossed;
    if (e.launch.unmovable) c.outstanding.stayed(e.launch.stream, e.launch.stream_seq);
  }
}

// Whatever was predicted: work is on the device until the call returns.
void Scheduler::State::on_waiting(Client& c, TimeNs at) {
  c.row_until = 0;
  const bool has_work = c.unsynchronized || at < c.unseen_until;
  if (!has_work || c.waiting_since != 0) return;
  c.waiting_since = at;
  c.predicted_end = c.busy_until;
  if (c.gap_open) end_gap(c, at);
  c.gap_open = false;
}

// Opens the client's gap once nothing of it is on the device any more, and retires it when it is
// away for longer than it ever is. Until settled_until that finds nothing to do unless the client
// does something or is granted something.
void Scheduler::State::settle(Client& c) {
  c.settled_until = c.busy_deadline();
  c.at_work = clock < c.settled_until;
  set_resident(c, c.at_work || clock < c.row_until);
  if (!c.at_work && c.active) settle_idle(c);
  if (c.active) settle_at = std::min(settle_at, c.settled_until);
}

[[gnu::noinline]] void Scheduler::State::settle_idle(Client& c) {
  Work work;  // evidence (c): the predicted end has passed
  while (c.outstanding.take_oldest(kNever, work)) {
    finish(c, work, clock, 0, Seen::kNot);
    dispatch_wanted = true;
  }
  c.settled_until = kNever;
  if (c.queued > 0) return;
  if (!c.gap_open) {
    c.gap_open = true;
    c.gap_start = std::min(clock, std::max(c.busy_until, c.unseen_until));
    c.waiting_since = c.unseen_until = 0;
    dispatch_wanted = true;
  }
  const double patience_us = c.patience_us(config.idle_us, config.idle_us_max);
  c.settled_until = std::max(c.gap_start + to_ns(patience_us), c.row_until);
  if (clock >= c.settled_until) {
    c.active = false;
    std::erase(active, &c);
    if (c.credit_us > 0) tell_window(c);
    windows_dirty = dispatch_wanted = true;
    if (policy != nullptr) apply(c, policy->client_idle(*this, c.id));
  }
}

// Before settle_at it is enough to look at the client that the event is of.
void Scheduler::State::settle_all(Client* own) {
  if (clock < settle_at) {
    if (own != nullptr) settle(*own);
    return;
  }
  settle_at = kNever;
  for (size_t i = active.size(); i-- > 0;) {
    Client& c = *active[i];
    if ((own != nullptr && &c == own) || clock >= c.settled_until) {
      settle(c);
    } else {
      settle_at = std::min(settle_at, c.settled_until);
    }
  }
}

void Scheduler::State::advance(TimeNs to) {
  if (to <= clock) return;
  busy_ns[static_cast<size_t>(highest_busy)] += to - clock;
  if (residents > 0) part_us += to_us(to - clock) / residents;
  if (promises > 0) refill_accounts(to_us(to - clock));
  clock = to;
}

void Scheduler::State::note_busy() {
  const auto busy =
      std::find_if(active.begin(), active.end(), [](const Client* c) { return c->at_work; });
  highest_busy = busy != active.end() ? (*busy)->priority : kPriorityCount;
}

// ---- public -----------------------------------------------------------------------------------

Scheduler::Scheduler(const Config& config) : state_(std::make_unique<State>(config)) {
  state_->decisions.reserve(256);
  state_->waiting.reserve(256);
}

Scheduler::~Scheduler() = default;

std::span<const Decision> Scheduler::step(const Event& e) {
  State& s = *state_;
  HEDDLE_CHECK_IN(s, !s.stepping);  // a hook drives the scheduler that called it
  if (std::exchange(s.stepping, true)) return {};
  s.decisions.clear();
  ++s.stats.events;
  s.advance(e.at);
  Client* c = s.find(e.client);
  const bool has_client =
      e.kind == EventKind::kAttached || e.kind == EventKind::kTick || c != nullptr;
  if (e.version != kEventVersion || !has_client) {
    ++s.stats.rejected;
  } else if (e.kind == EventKind::kAttached) {
    s.on_attached(e);
  } else {
    switch (e.kind) {
      case EventKind::kDetached:
        s.on_detached(*c);
        c = nullptr;
        break;
      case EventKind::kKernel:
        s.on_kernel(*c, e.kernel);
        break;
      case EventKind::kProfile:
        s.on_profile(*c, e.profile);
        break;
      case EventKind::kPosted:
        s.on_posted(*c, e);
        break;
      case EventKind::kAsked:
        s.on_asked(*c, e);
        break;
      case EventKind::kWithdrawn:
        s.on_withdrawn(*c, e);
        break;
      case EventKind::kWaiting:
        s.on_waiting(*c, e.at);
        break;
      case EventKind::kCompleted:
        s.on_completed(*c, e);
        break;
      case EventKind::kUnobserved:
        s.on_unobserved(*c, e);
        break;
      case EventKind::kObserved:
        s.on_observed(*c, e);
        break;
      case EventKind::kRow:
        s.on_row(*c, e);
        break;
      case EventKind::kTerms:
        s.on_terms(*c, e.terms);
        break;
      case EventKind::kStreamEnd:
        c->undated.forget(e.done.stream);
        break;
      case EventKind::kTick:
      case EventKind::kAttached:
        break;
    }
  }
  s.settle_all(c);
  s.tick();
  s.revoke_credits();
  if (s.windows_dirty || s.clock >= s.lent_until) s.refresh_windows();
  if (s.waiting_count > 0) {
    if (s.clock >= s.starve_at) s.starve();
    if (s.dispatch_wanted || s.clock >= s.retry_at) s.dispatch();
  }
  s.dispatch_wanted = false;
  s.note_busy();
  const bool thorough = e.kind == EventKind::kAttached || e.kind == EventKind::kDetached;
  if (thorough || s.stats.events % kCheckEvery == 0) s.check();
  s.stepping = false;
  return s.decisions;
}

void Scheduler::set_on_broken(OnBroken on_broken) { state_->on_broken = std::move(on_broken); }

TimeNs Scheduler::next_deadline() const {
  const State& s = *state_;
  TimeNs at = std::min(s.active.empty() ? kNever : s.settle_at, s.lent_until);
  for (size_t i = 0; s.credit_out && i < s.active.size(); ++i) {
    if (s.active[i]->credit_us > 0) at = std::min(at, s.credit_deadline(*s.active[i]));
  }
  if (s.waiting_count > 0) at = std::min(at, s.retry_at);
  if (s.ticks() && !s.active.empty()) at = std::min(at, s.tick_at);
  return at;
}

const LastWords& Scheduler::last_words() const { return state_->last_words; }
bool Scheduler::take_quarantined() { return std::exchange(state_->quarantined, false); }
const Stats& Scheduler::stats() const { return state_->stats; }
const Config& Scheduler::config() const { return state_->config; }
size_t Scheduler::waiting() const { return state_->waiting_count; }
bool Scheduler::bypassed() const { return state_->bypass; }
bool Scheduler::hears_launches() const {
  const Policy* policy = state_->policy;
  return policy != nullptr && (policy->hears_running() || policy->hears_stopping());
}
bool Scheduler::full(ClientId id) const {
  const Client* c = state_->find(id);
  return c != nullptr && c->full;
}

}  // namespace heddle::core
