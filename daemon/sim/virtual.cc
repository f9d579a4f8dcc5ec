#include "daemon/sim/virtual.h"

#include <algorithm>
#include <cstring>

namespace heddle::sim {
namespace {

using core::Event;
using core::EventKind;
using core::Evidence;

// The core may want a tick now; a step forward keeps time moving.
constexpr TimeNs kTickLeastNs = 1'000;

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

// As the driver does: groups of 8 SMs, and what is left over, which is no less.
core::SmGroups split(core::SmCount sms) {
  core::SmGroups groups{};
  uint32_t count = 0, left = sms.get();
  for (; count + 1 < core::kSmGroups && left >= 2 * facts::kGroupSms; left -= facts::kGroupSms) {
    groups.widths[count++] = facts::kGroupSms;
  }
  groups.widths[count++] = static_cast<uint8_t>(std::min<uint32_t>(left, UINT8_MAX));
  groups.count = core::GroupCount(count);
  return groups;
}

}  // namespace

VirtualMachine::VirtualMachine(const core::Config& core, const GpuConfig& gpu,
                               const HostCosts& costs, bool managed)
    : config_(core),
      groups_(split(core::SmCount(gpu.sm_count))),
      costs_(costs),
      managed_(managed),
      scheduler_(core),
      gpu_(gpu) {}

bool VirtualMachine::set_policy(core::Policy* policy) {
  bool ok = false;
  hears_stopping_ = policy != nullptr && policy->hears_stopping();
  take(scheduler_.set_policy(policy, now_, ok));
  return ok;
}

size_t VirtualMachine::add_client(const ClientSpec& spec) {
  ClientState& c = clients_.emplace_back();
  c.spec = spec;
  c.id = clients_.size();
  c.gpu = gpu_.add_client(spec.sm_limit);
  if (!managed_) c.allowed = core::Allowance::kLeased;
  Event e(EventKind::kAttached, now_, c.id);
  e.attached = {};
  e.attached.task = hash(spec.label, hash(spec.name));
  e.attached.pid = static_cast<uint32_t>(1000 + c.id);
  e.attached.share = static_cast<float>(spec.share);
  e.attached.slo_ms = static_cast<float>(spec.slo_ms);
  e.attached.slowdown_max = spec.slowdown_max;
  e.attached.channel_max = spec.channel_max;
  e.attached.compute = spec.compute;
  e.attached.priority = static_cast<uint8_t>(spec.priority);
  e.attached.gates = spec.gates;
  e.attached.groups = groups_;
  e.attached.sm_set = spec.place.set;
  copy_text(e.attached.name, spec.name);
  copy_text(e.attached.label, spec.label);
  feed(e);
  if (spec.stops && !config_.mps) tell_stops(c, 0);
  return clients_.size() - 1;
}

void VirtualMachine::remove_client(size_t client) {
  ClientState& c = clients_[client];
  c.live = false;
  for (const size_t t : c.threads) ++threads_[t].wakeup;
  for (uint32_t slot = 0; slot < in_flight_.size(); ++slot) {
    if (in_flight_[slot].thread == 0 || threads_[in_flight_[slot].thread].client != client)
      continue;
    in_flight_[slot].thread = 0;
    in_flight_free_.push_back(slot);
  }
  c.in_flight = 0;
  c.gpu_us = gpu_.gpu_ns(c.gpu) / 1e3;
  gpu_.remove_client(now_, c.gpu);
  feed(Event(EventKind::kDetached, now_, c.id));
}

size_t VirtualMachine::add_thread(size_t client) {
  ClientState& c = clients_[client];
  Thread& t = threads_.emplace_back();
  t.client = client;
  t.index = static_cast<uint16_t>(c.threads.size());
  t.stream = gpu_.open_stream(c.gpu, c.spec.stream_priority);
  c.threads.push_back(threads_.size() - 1);
  return threads_.size() - 1;
}

void VirtualMachine::launch(size_t client, TimeNs when, const LaunchSpec& spec, bool sync) {
  ClientState& c = clients_[client];
  if (c.script == 0) c.script = add_thread(client);
  Thread& t = threads_[c.script];
  t.calls.push_back({std::max(when, now_), launch_of(client, spec), sync});
  if (t.doing == Doing::kNothing && t.wakes_at == kNever) wake_at(c.script, t.calls.front().at);
}

void VirtualMachine::loop(size_t client, TimeNs when, const LoopSpec& spec) {
  const size_t thread = add_thread(client);
  threads_[thread].loop = spec;
  threads_[thread].loop_launch = launch_of(client, spec.launch);
  threads_[thread].looping = true;
  wake_at(thread, std::max(when, now_));
}

uint32_t VirtualMachine::add_kernel(size_t client, const LaunchSpec& spec) {
  std::vector<Kernel>& kernels = clients_[client].kernels;
  Kernel& k = kernels.emplace_back();
  k.spec = spec;
  k.waves = std::max(1u, gpu_.waves(shape(spec, 0, 1)));
  return static_cast<uint32_t>(kernels.size() - 1);
}

void VirtualMachine::run(size_t client, TimeNs when, Program& program) {
  const size_t thread = add_thread(client);
  threads_[thread].program = &program;
  go_on(thread, std::max(when, now_));
}

// ---- time -------------------------------------------------------------------------------------

void VirtualMachine::set_alarm(TimeNs when, Alarm alarm) {
  alarm.at = std::max(when, now_);
  alarm.order = ++order_;
  alarms_.push(alarm);
}

void VirtualMachine::ring(const Alarm& alarm) {
  if (alarm.kind == Alarm::Kind::kGates) return tend_gates(alarm.thread);
  if (alarm.kind == Alarm::Kind::kDriver) {
    return driver_returned(alarm.thread, static_cast<TimeNs>(alarm.number));
  }
  Thread& t = threads_[alarm.thread];
  switch (alarm.kind) {
    case Alarm::Kind::kWake:
      if (t.wakeup != alarm.number) return;
      t.wakes_at = kNever;
      if (clients_[t.client].live) proceed(alarm.thread);
      break;
    case Alarm::Kind::kTicket:
      if (clients_[t.client].live) go_from_ticket(alarm.thread);
      break;
    case Alarm::Kind::kGates:
    case Alarm::Kind::kDriver:
      break;
    case Alarm::Kind::kMarker: {
      if (!clients_[t.client].live) return;
      Event e(EventKind::kCompleted, now_, clients_[t.client].id);
      e.done = {alarm.number, alarm.duration_us, t.index, Evidence::kMarker};
      feed(e);
      break;
    }
  }
}

void VirtualMachine::wake_at(size_t thread, TimeNs when) {
  Thread& t = threads_[thread];
  t.wakes_at = when;
  Alarm alarm;
  alarm.thread = thread;
  alarm.number = ++t.wakeup;
  set_alarm(when, alarm);
}

TimeNs VirtualMachine::next_tick() const {
  return managed_ ? std::max(scheduler_.next_deadline(), ticked_at_ + kTickLeastNs) : kNever;
}

void VirtualMachine::run_until(TimeNs until) {
  for (;;) {
    const TimeNs tick = next_tick();
    const TimeNs next = std::max(now_, std::min({gpu_.next_event(), next_alarm(), tick}));
    if (next > until) break;
    now_ = next;
    gpu_.advance(now_, notices_);
    handling_.swap(notices_);
    for (const Notice& notice : handling_) on_notice(notice);
    handling_.clear();
    if (next_alarm() <= now_) {
      const Alarm alarm = alarms_.top();
      alarms_.pop();
      ring(alarm);
    } else if (tick <= now_) {
      ticked_at_ = now_;
      feed(Event(EventKind::kTick, now_, 0));
    }
  }
  now_ = std::max(now_, until);
  gpu_.advance(now_, notices_);
  handling_.swap(notices_);
  for (const Notice& notice : handling_) on_notice(notice);
  handling_.clear();
}

// ---- core -------------------------------------------------------------------------------------

void VirtualMachine::feed(const Event& event) {
  if (!managed_) return;
  if (witness_ != nullptr) witness_->event(event);
  take(scheduler_.step(event));
}

void VirtualMachine::take(std::span<const core::Decision> decisions) {
  // Nothing below calls the core, so the decisions stay valid.
  for (const core::Decision& d : decisions) {
    if (witness_ != nullptr) witness_->decision(d);
    ClientState& c = clients_[d.client - 1];
    switch (d.kind) {
      case core::DecisionKind::kGrant:
        grant_at_gate(c, d);
        break;
      case core::DecisionKind::kAllowance:
        c.allowed = d.allowed;
        c.launch_priority = d.launch_priority;
        c.cut_set = d.sm_set;
        c.ring = d.ring;
        c.gates_inside = d.gates_inside;
        c.kernels_ask = d.kernels_ask;
        set_gates(c);
        break;
      case core::DecisionKind::kStop:
        order_stop(c, {d.off, d.slice_us});
        break;
      case core::DecisionKind::kPark:  // virtual time knows no memory
        break;
      case core::DecisionKind::kHint:
        on_hint(c, c.kernels[d.kernel], d);
        break;
    }
  }
}

void VirtualMachine::on_hint(ClientState& c, Kernel& k, const core::Decision& d) {
  k.predicted_us = static_cast<double>(d.predicted_us);
  k.size = d.size;
  k.raised = d.raised;
  k.launch_priority = d.launch_priority;
  c.sized |= d.size.get() != 0 || d.raised;
}

// ---- kernels ----------------------------------------------------------------------------------

KernelShape VirtualMachine::shape(const LaunchSpec& spec, double us, uint32_t waves) const {
  KernelShape s;
  s.blocks = spec.blocks;
  s.threads = spec.threads;
  s.registers = spec.registers;
  s.shared_bytes = spec.shared_bytes;
  s.saturation = spec.saturation;
  s.block_ns = to_ns(us) / waves;
  return s;
}

VirtualMachine::Launch VirtualMachine::launch_of(size_t client, const LaunchSpec& spec) {
  const std::string name =
      spec.kernel + "<" + std::to_string(spec.blocks) + "," + std::to_string(spec.threads) + ">";
  ClientState& c = clients_[client];
  const auto [entry, added] =
      c.kernel_index.try_emplace(name, static_cast<uint32_t>(c.kernels.size()));
  if (added) add_kernel(client, spec);
  return {entry->second, spec.us};
}

void VirtualMachine::announce(ClientState& c, uint32_t kernel) {
  Kernel& k = c.kernels[kernel];
  if (k.announced) return;
  k.announced = true;
  const std::string name = k.spec.kernel + "<" + std::to_string(k.spec.blocks) + "," +
                           std::to_string(k.spec.threads) + ">";
  Event e(EventKind::kKernel, now_, c.id);
  e.kernel = {};
  e.kernel.index = kernel;
  e.kernel.id = hash(name);
  e.kernel.grid_blocks = k.spec.nodes != 0 ? k.spec.nodes : k.spec.blocks;
  e.kernel.block_threads = k.spec.nodes != 0 ? 0 : k.spec.threads;
  e.kernel.max_blocks_per_sm = gpu_.blocks_per_sm(shape(k.spec, 0, 1));
  e.kernel.metrics = k.spec.metrics;
  copy_text(e.kernel.name, k.spec.kernel);
  feed(e);
}

double VirtualMachine::predict(const Kernel& k) const {
  return k.predicted_us > 0 ? k.predicted_us : config_.default_kernel_us;
}

Event VirtualMachine::launch_event(EventKind kind, const Thread& t, uint32_t kernel) const {
  const ClientState& c = clients_[t.client];
  Event e(kind, now_, c.id);
  e.launch = {};
  e.launch.stream_seq = t.seq + 1;
  e.launch.kernel = kernel;
  e.launch.kind =
      c.kernels[kernel].spec.nodes != 0 ? core::LaunchKind::kGraph : core::LaunchKind::kKernel;
  e.launch.stream = t.index;
  e.launch.thread = t.index;
  return e;
}

// ---- what happened ----------------------------------------------------------------------------

bool VirtualMachine::running(size_t client) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& f) {
    return f.thread != 0 && threads_[f.thread].client == client && f.started > 0;
  });
}

bool VirtualMachine::waiting(size_t client) const { return clients_[client].gates.asked() != 0; }

TimeNs VirtualMachine::next_launch(size_t client) const {
  TimeNs next = kNever;
  for (const size_t t : clients_[client].threads) next = std::min(next, threads_[t].wakes_at);
  return next;
}

double VirtualMachine::asked_us(size_t client) const {
  const auto& waiting = clients_[client].gates.waiting();
  return waiting.empty() ? 0 : waiting.front().us;
}

ClientStats VirtualMachine::stats(size_t client) const {
  const ClientState& c = clients_[client];
  ClientStats s;
  s.launches = c.launches;
  s.gpu_us = c.live ? gpu_.gpu_ns(c.gpu) / 1e3 : c.gpu_us;
  s.asks = c.asks;
  s.max_wait_us = c.max_wait_us;
  for (const core::ClientStatus& status : scheduler_.view().clients()) {
    if (!c.spec.stops || status.view.id != c.id) continue;
    s.stops = status.view.stops;
    s.stopped_us = status.view.stopped_us;
  }
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
