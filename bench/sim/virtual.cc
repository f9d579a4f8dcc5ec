#include "bench/sim/virtual.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace heddle::sim {
namespace {

using core::Admission;
using core::Event;
using core::EventKind;
using core::Evidence;

// Of launches that did not ask, a kernel's first ones and then every so many carry a marker, so
// that its duration is learned.
constexpr uint64_t kMarkedFirst = 4, kMarkedEvery = 16;

// The core may want a tick now; a step forward keeps time moving.
constexpr TimeNs kTickLeastNs = 1'000;

double to_us(TimeNs ns) { return static_cast<double>(ns) / 1e3; }
TimeNs to_ns(double us) { return static_cast<TimeNs>(us * 1e3); }

// FNV-1a: equal on every host, which std::hash is not.
uint64_t hash(const std::string& text, uint64_t h = 0xcbf29ce484222325u) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

template <size_t N>
void copy_text(char (&out)[N], const std::string& text) {
  const size_t bytes = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), bytes);
  out[bytes] = '\0';
}

}  // namespace

VirtualMachine::VirtualMachine(const core::Config& core, const GpuConfig& gpu,
                               const HostCosts& costs)
    : config_(core), costs_(costs), scheduler_(core), gpu_(gpu) {}

bool VirtualMachine::set_policy(core::Policy* policy) {
  bool ok = false;
  take(scheduler_.set_policy(policy, now_, ok));
  return ok;
}

size_t VirtualMachine::add_client(const ClientSpec& spec) {
  ClientState& c = clients_.emplace_back();
  c.spec = spec;
  c.id = clients_.size();
  c.gpu = gpu_.add_client();
  Event e(EventKind::kAttached, now_, c.id);
  e.attached = {};
  e.attached.task = hash(spec.label, hash(spec.name));
  e.attached.pid = static_cast<uint32_t>(1000 + c.id);
  e.attached.share = static_cast<float>(spec.share);
  e.attached.priority = static_cast<uint8_t>(spec.priority);
  copy_text(e.attached.name, spec.name);
  copy_text(e.attached.label, spec.label);
  feed(e);
  return clients_.size() - 1;
}

void VirtualMachine::remove_client(size_t client) {
  ClientState& c = clients_[client];
  c.live = false;
  for (const size_t t : c.threads) ++threads_[t].wakeup;
  std::erase_if(in_flight_,
                [&](const auto& f) { return threads_[f.second.thread].client == client; });
  gpu_.remove_client(now_, c.gpu);
  feed(Event(EventKind::kDetached, now_, c.id));
}

size_t VirtualMachine::add_thread(size_t client) {
  ClientState& c = clients_[client];
  Thread& t = threads_.emplace_back();
  t.client = client;
  t.index = static_cast<uint16_t>(c.threads.size());
  t.stream = gpu_.open_stream(c.gpu);
  c.threads.push_back(threads_.size() - 1);
  return threads_.size() - 1;
}

void VirtualMachine::launch(size_t client, TimeNs when, const LaunchSpec& spec, bool sync) {
  ClientState& c = clients_[client];
  if (c.script == 0) c.script = add_thread(client);
  Thread& t = threads_[c.script];
  t.calls.push_back({std::max(when, now_), spec, sync});
  if (t.doing == Doing::kNothing && t.wakes_at == kNever) wake_at(c.script, t.calls.front().at);
}

void VirtualMachine::loop(size_t client, TimeNs when, const LoopSpec& spec) {
  const size_t thread = add_thread(client);
  threads_[thread].loop = spec;
  threads_[thread].looping = true;
  wake_at(thread, std::max(when, now_));
}

// ---- time -------------------------------------------------------------------------------------

void VirtualMachine::at(TimeNs when, std::function<void()> ring) {
  alarms_.push({std::max(when, now_), ++order_, std::move(ring)});
}

void VirtualMachine::wake_at(size_t thread, TimeNs when) {
  const uint64_t wakeup = ++threads_[thread].wakeup;
  threads_[thread].wakes_at = when;
  at(when, [this, thread, wakeup] {
    Thread& t = threads_[thread];
    if (t.wakeup != wakeup) return;
    t.wakes_at = kNever;
    if (clients_[t.client].live) proceed(thread);
  });
}

void VirtualMachine::run_until(TimeNs until) {
  for (;;) {
    const TimeNs tick = std::max(scheduler_.next_deadline(), ticked_at_ + kTickLeastNs);
    const TimeNs next = std::max(now_, std::min({gpu_.next_event(), next_alarm(), tick}));
    if (next > until) break;
    now_ = next;
    notices_.clear();
    gpu_.advance(now_, notices_);
    const std::vector<Notice> notices = std::exchange(notices_, {});
    for (const Notice& notice : notices) on_notice(notice);
    if (next_alarm() <= now_) {
      const std::function<void()> ring = alarms_.top().ring;
      alarms_.pop();
      ring();
    } else if (tick <= now_) {
      ticked_at_ = now_;
      feed(Event(EventKind::kTick, now_, 0));
    }
  }
  now_ = std::max(now_, until);
  notices_.clear();
  gpu_.advance(now_, notices_);
  for (const Notice& notice : std::exchange(notices_, {})) on_notice(notice);
}

// ---- core -------------------------------------------------------------------------------------

void VirtualMachine::feed(const Event& event) { take(scheduler_.step(event)); }

void VirtualMachine::take(std::span<const core::Decision> decisions) {
  // Nothing below calls the core, so the decisions stay valid.
  for (const core::Decision& d : decisions) {
    ClientState& c = clients_[d.client - 1];
    switch (d.kind) {
      case core::DecisionKind::kGrant:
        on_grant(d);
        break;
      case core::DecisionKind::kWindow:
        c.window_us = d.window_us;
        c.epoch = d.epoch;
        c.launch_priority = d.launch_priority;
        c.credit_us = 0;
        break;
      case core::DecisionKind::kHint:
        for (auto& [name, k] : c.kernels) {
          if (k.index == d.kernel) k.predicted_us = static_cast<double>(d.predicted_us);
        }
        break;
    }
  }
}

void VirtualMachine::on_grant(const core::Decision& d) {
  const size_t thread = clients_[d.client - 1].threads[d.thread];
  Thread& t = threads_[thread];
  if (t.doing != Doing::kAsking || t.ask_seq != d.ask_seq) return;  // it left by itself
  at(now_ + costs_.round_trip_ns, [this, thread, d] {
    Thread& asker = threads_[thread];
    ClientState& c = clients_[asker.client];
    if (!c.live || asker.doing != Doing::kAsking || asker.ask_seq != d.ask_seq) return;
    asker.doing = Doing::kNothing;
    c.max_wait_us = std::max(c.max_wait_us, to_us(now_ - asker.asked_at));
    c.credit_us = d.credit_us;
    records_[asker.last_record].granted_by = d.decider;
    submit(thread, asker.pending, Admission::kAsk, d.launch_priority);
    wake_at(thread, now_ + costs_.launch_ns);
  });
}

// ---- threads ----------------------------------------------------------------------------------

void VirtualMachine::proceed(size_t thread) {
  Thread& t = threads_[thread];
  if (t.synchronize_next) {
    t.synchronize_next = false;
    synchronize(thread);
    return;
  }
  if (t.looping) {
    proceed_loop(thread);
    return;
  }
  if (t.calls.empty()) return;
  if (t.calls.front().at > now_) {
    wake_at(thread, t.calls.front().at);
    return;
  }
  const Call call = t.calls.front();
  t.calls.pop_front();
  call_launch(thread, call.launch, call.synchronize);
}

void VirtualMachine::proceed_loop(size_t thread) {
  Thread& t = threads_[thread];
  if (t.in_iteration == t.loop.launches) {  // its synchronizing call has returned
    t.in_iteration = 0;
    ++t.iterations;
    clients_[t.client].iteration_us.push_back(static_cast<float>(to_us(now_ - t.iteration_start)));
    if (t.loop.count != 0 && t.iterations == t.loop.count) {
      t.looping = false;
      return;
    }
    wake_at(thread, now_ + to_ns(t.loop.gap_us));
    return;
  }
  if (t.in_iteration == 0) t.iteration_start = now_;
  ++t.in_iteration;
  call_launch(thread, t.loop.launch, t.in_iteration == t.loop.launches);
}

void VirtualMachine::call_launch(size_t thread, const LaunchSpec& spec, bool sync) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  LaunchRecord& record = records_.emplace_back();
  record.client = t.client;
  record.kernel = spec.kernel;
  record.called = now_;
  t.last_record = records_.size() - 1;
  t.synchronize_next = sync;
  KernelState& k = kernel(c, spec);
  const double predicted = predict(k);
  Admission admission = Admission::kAsk;
  if (c.window_us == core::kWindowLeased) {
    admission = Admission::kLease;
  } else if (c.window_us != core::kWindowGated && c.outstanding_us < c.window_us) {
    admission = Admission::kWindow;
  } else if (c.credit_us >= predicted) {
    admission = Admission::kCredit;
    c.credit_us -= predicted;
  }
  if (admission == Admission::kAsk) {
    record.asked = true;
    ask(thread, spec, k.index);
    return;
  }
  submit(thread, spec, admission, c.launch_priority);
  wake_at(thread, now_ + costs_.launch_ns);
}

void VirtualMachine::ask(size_t thread, const LaunchSpec& spec, uint32_t kernel) {
  Thread& t = threads_[thread];
  t.doing = Doing::kAsking;
  t.pending = spec;
  t.asked_at = now_;
  const uint32_t seq = ++t.ask_seq;
  Event e = launch_event(EventKind::kAsked, t, kernel);
  e.launch.ask_seq = seq;
  e.launch.admission = Admission::kAsk;
  feed(e);
  at(now_ + to_ns(config_.starvation_us), [this, thread, seq] { self(thread, seq); });
}

void VirtualMachine::self(size_t thread, uint32_t ask_seq) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  if (!c.live || t.doing != Doing::kAsking || t.ask_seq != ask_seq) return;
  t.doing = Doing::kNothing;
  c.max_wait_us = std::max(c.max_wait_us, to_us(now_ - t.asked_at));
  records_[t.last_record].self = true;
  submit(thread, t.pending, Admission::kSelfStarved, 0);
  wake_at(thread, now_ + costs_.launch_ns);
}

void VirtualMachine::submit(size_t thread, const LaunchSpec& spec, Admission admission,
                            int priority) {
  Thread& t = threads_[thread];
  ClientState& c = clients_[t.client];
  KernelState& k = kernel(c, spec);
  ++k.launches;
  const bool asked = admission == Admission::kAsk;
  Event e = launch_event(EventKind::kPosted, t, k.index);
  e.launch.admission = admission;
  e.launch.ask_seq = admission == Admission::kSelfStarved ? t.ask_seq : 0;
  const bool sampled = k.launches <= kMarkedFirst || k.launches % kMarkedEvery == 0;
  const double predicted = predict(k);
  ++t.seq;
  c.outstanding_us += predicted;
  const bool marked = sampled || admission != Admission::kLease;
  in_flight_[++tags_] = {thread, t.seq, t.last_record, predicted, marked};
  Op op;
  op.kind = OpKind::kKernel;
  op.priority = priority;
  op.kernel = shape(spec);
  op.tag = tags_;
  gpu_.submit(now_, t.stream, op);
  if (!asked) feed(e);  // a grant is accounted already
}

void VirtualMachine::synchronize(size_t thread) {
  Thread& t = threads_[thread];
  t.doing = Doing::kSynchronizing;
  Event e(EventKind::kWaiting, now_, clients_[t.client].id);
  e.done = {0, 0, t.index, Evidence::kNone};
  feed(e);
  if (t.done == t.seq) synchronized(thread, 0);
}

void VirtualMachine::synchronized(size_t thread, float duration_us) {
  Thread& t = threads_[thread];
  t.doing = Doing::kNothing;
  Event e(EventKind::kCompleted, now_, clients_[t.client].id);
  e.done = {t.seq, duration_us, t.index, Evidence::kSynchronized};
  feed(e);
  wake_at(thread, now_);
}

void VirtualMachine::on_notice(const Notice& notice) {
  const auto found = in_flight_.find(notice.tag);
  if (found == in_flight_.end()) return;
  LaunchRecord& record = records_[found->second.record];
  if (notice.kind == Notice::kStarted) {
    record.started = notice.at;
    return;
  }
  record.ended = notice.at;
  const InFlight f = found->second;
  in_flight_.erase(found);
  Thread& t = threads_[f.thread];
  ClientState& c = clients_[t.client];
  t.done = f.seq;
  c.outstanding_us = std::max(0.0, c.outstanding_us - f.predicted_us);
  const auto duration_us = static_cast<float>(to_us(record.ended - record.started));
  if (t.doing == Doing::kSynchronizing && t.done == t.seq) {
    synchronized(f.thread, duration_us);
  } else if (f.marked) {
    Event e(EventKind::kCompleted, 0, c.id);
    e.done = {f.seq, duration_us, t.index, Evidence::kMarker};
    at(now_ + costs_.marker_ns, [this, e, client = t.client]() mutable {
      e.at = now_;
      if (clients_[client].live) feed(e);
    });
  }
}

// ---- kernels ----------------------------------------------------------------------------------

KernelShape VirtualMachine::shape(const LaunchSpec& spec) const {
  KernelShape s;
  s.blocks = spec.blocks;
  s.threads = spec.threads;
  s.block_ns = to_ns(spec.us) / std::max(1u, gpu_.waves(s));
  return s;
}

VirtualMachine::KernelState& VirtualMachine::kernel(ClientState& c, const LaunchSpec& spec) {
  const std::string name =
      spec.kernel + "<" + std::to_string(spec.blocks) + "," + std::to_string(spec.threads) + ">";
  const auto [entry, added] = c.kernels.try_emplace(name);
  if (!added) return entry->second;
  entry->second.index = static_cast<uint32_t>(c.kernels.size() - 1);
  Event e(EventKind::kKernel, now_, c.id);
  e.kernel = {};
  e.kernel.index = entry->second.index;
  e.kernel.id = hash(name);
  e.kernel.grid_blocks = spec.blocks;
  e.kernel.block_threads = spec.threads;
  e.kernel.max_blocks_per_sm = gpu_.blocks_per_sm(shape(spec));
  copy_text(e.kernel.name, spec.kernel);
  feed(e);
  return entry->second;
}

double VirtualMachine::predict(const KernelState& k) const {
  return k.predicted_us > 0 ? k.predicted_us : config_.default_kernel_us;
}

Event VirtualMachine::launch_event(EventKind kind, const Thread& t, uint32_t kernel) const {
  const ClientState& c = clients_[t.client];
  Event e(kind, now_, c.id);
  e.launch = {};
  e.launch.stream_seq = t.seq + 1;
  e.launch.kernel = kernel;
  e.launch.epoch = c.epoch;
  e.launch.stream = t.index;
  e.launch.thread = t.index;
  return e;
}

// ---- what happened ----------------------------------------------------------------------------

bool VirtualMachine::running(size_t client) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& f) {
    return threads_[f.second.thread].client == client && records_[f.second.record].started > 0;
  });
}

bool VirtualMachine::waiting(size_t client) const {
  const auto& threads = clients_[client].threads;
  return std::any_of(threads.begin(), threads.end(),
                     [&](size_t t) { return threads_[t].doing == Doing::kAsking; });
}

ClientStats VirtualMachine::stats(size_t client) const {
  const ClientState& c = clients_[client];
  ClientStats s;
  for (const LaunchRecord& r : records_) {
    if (r.client != client || r.ended == 0) continue;
    ++s.launches;
    s.gpu_us += to_us(r.ended - r.started);
  }
  s.max_wait_us = c.max_wait_us;
  s.iterations = c.iteration_us.size();
  if (c.iteration_us.empty()) return s;
  std::vector<float> sorted = c.iteration_us;
  std::sort(sorted.begin(), sorted.end());
  for (const float us : sorted) s.mean_us += static_cast<double>(us);
  s.mean_us /= static_cast<double>(sorted.size());
  s.p99_us = static_cast<double>(sorted[(sorted.size() - 1) * 99 / 100]);
  s.max_us = static_cast<double>(sorted.back());
  return s;
}

}  // namespace heddle::sim
