#include "tests/unit/core_campaign.h"

#include <algorithm>
#include <cstdio>

namespace heddle::core {
namespace {

constexpr SmGroups kGroups{GroupCount(17), {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4}};

Config config_of(uint8_t device, bool mps) {
  Config config;
  config.device = device;
  config.mps = mps;
  config.switch_us = mps ? 10 : 70;
  config.measure_runs = 12;  // so that stages end within a campaign
  config.measure_us = 5'000;
  config.starvation_us = 60'000;
  return config;
}

}  // namespace

// ---- the campaign -----------------------------------------------------------------------------

Campaign::Campaign(uint64_t seed, MakePolicy policy, MakePolicy candidate)
    : random_(seed * 0x9e3779b97f4a7c15u + 1),
      policy_(std::move(policy)),
      candidate_(std::move(candidate)) {
  for (uint8_t device = 0; device < 2; ++device) {
    cores_[device] = std::make_unique<Scheduler>(config_of(device, !one_in(4)));
    change_policy(device);
  }
  clients_.resize(4 + random(5));
  for (Client& client : clients_) arrive(client);
}

Campaign::~Campaign() = default;

// SplitMix64: the same numbers with every library.
uint32_t Campaign::random(uint32_t below) {
  uint64_t x = random_ += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 32) % below;
}

DecisionLog Campaign::run(uint32_t steps) {
  for (uint32_t i = 0; i < steps; ++i) {
    const bool pause = one_in(60);
    now_ += 1'000 + random(pause ? 20'000'000 : one_in(6) ? 900'000 : 60'000);
    const size_t device = random(3) == 0 ? 1 : 0;
    if (one_in(8)) {  // as the server does, a little late
      const TimeNs due = cores_[device]->next_deadline();
      if (due < now_) step(device, Event(EventKind::kTick, due + random(2'000), 0));
    }
    Client& client = clients_[random(static_cast<uint32_t>(clients_.size()))];
    if (one_in(300)) {
      leave(client);
      arrive(client);
    } else if (one_in(90)) {
      administer(device);
    } else {
      act(client, device);
    }
    if (i % 128 == 0) log_.tell(*cores_[device], now_);
  }
  for (const auto& core : cores_) log_.tell(*core, now_);
  return std::move(log_);
}

void Campaign::take(size_t device, std::span<const Decision> decisions) {
  for (const Decision& d : decisions) {
    log_.decision(d);
    for (Client& client : clients_) {
      if (client.id != d.client) continue;
      Seat& seat = client.seats[device];
      if (d.kind == DecisionKind::kAllowance) {
        seat.allowed = d.allowed;
      } else if (d.kind == DecisionKind::kGrant) {
        seat.asking = false;
        begin(client, seat, seat.thread, seat.kernel);
      }
    }
  }
}

void Campaign::step(size_t device, const Event& event) {
  take(device, cores_[device]->step(event));
}

Event Campaign::event(EventKind kind, const Client& client, size_t device) const {
  Event e(kind, now_, client.id);
  e.device = static_cast<uint8_t>(device);
  return e;
}

// ---- clients come and go ----

void Campaign::arrive(Client& client) {
  client = {};
  client.id = next_id_++;
  client.task = 1 + random(6);
  client.gap_us = 20 + random(2'000);
  client.kernel_us.resize(2 + random(5));
  for (double& us : client.kernel_us) us = 5 + random(one_in(3) ? 2'000 : 200);
  attach(client, 0);
  attach(client, 1);
}

void Campaign::attach(Client& client, size_t device) {
  Seat& seat = client.seats[device];
  seat.attached = true;
  seat.streams.resize(1 + random(3));
  Event e = event(EventKind::kAttached, client, device);
  e.attached = {};
  e.attached.task = client.task;
  e.attached.uid = random(2);
  e.attached.pid = static_cast<uint32_t>(client.id);
  e.attached.profile_runs = one_in(5) ? 100 : 0;
  e.attached.share = one_in(3) ? 2 : 1;
  e.attached.slo_ms = one_in(3) ? 5 : 0;
  e.attached.fail_closed = one_in(4);
  e.attached.gates = !one_in(3);
  constexpr uint8_t kPriorities[] = {0, 0, 2, 5, 9, 9, 9};
  e.attached.priority = kPriorities[random(7)];
  if (e.attached.priority < 5 && one_in(3)) e.attached.slowdown_max = {1.1F, 1.2F};
  e.attached.groups = one_in(6) ? SmGroups{} : kGroups;
  if (e.attached.groups.count.get() > 0 && one_in(5)) e.attached.sm_set = SmSet(0xff0);
  if (one_in(6)) {
    e.attached.made_sets = {
        SetSizes(1 + random(7)),
        {static_cast<uint8_t>(random(20)), static_cast<uint8_t>(1 + random(4))}};
  }
  std::snprintf(e.attached.name, sizeof e.attached.name, "program%u",
                static_cast<unsigned>(client.task));
  std::snprintf(e.attached.label, sizeof e.attached.label, "%s", one_in(2) ? "serving" : "");
  step(device, e);
  for (uint32_t k = 0; k < client.kernel_us.size(); ++k) announce(client, device, k);
}

void Campaign::announce(Client& client, size_t device, uint32_t kernel) {
  Event e = event(EventKind::kKernel, client, device);
  e.kernel = {};
  e.kernel.index = kernel;
  e.kernel.id = client.task * 100 + kernel;
  const bool graph = kernel % 4 == 3;
  e.kernel.grid_blocks = 1 + random(graph ? 40 : 600);
  e.kernel.block_threads = graph ? 0 : 128;
  e.kernel.registers = 64;
  e.kernel.max_blocks_per_sm = 1 + random(4);
  std::snprintf(e.kernel.name, sizeof e.kernel.name, "kernel%u", kernel);
  if (one_in(2)) {  // a profiler saw it
    e.kernel.metrics.set(ipc::metric_of("ipc"), 0.5 + random(30) / 10.0);
    e.kernel.metrics.set(ipc::metric_of("dram_pct"), random(90));
    e.kernel.metrics.set(ipc::metric_of("l2_pct"), random(90));
    e.kernel.metrics.set(ipc::metric_of("us_profiled"), client.kernel_us[kernel]);
  }
  if (one_in(3)) {  // and a sweep measured its curve
    const char* const on[] = {"us_on_1", "us_on_2", "us_on_4", "us_on_8", "us_on_12", "us_on_all"};
    double us = client.kernel_us[kernel] * (1 + random(9));
    for (const char* key : on) {
      e.kernel.metrics.set(ipc::metric_of(key), us);
      us = std::max(client.kernel_us[kernel], us * 0.6);
    }
  }
  step(device, e);
  if (one_in(4)) profile(client, device, kernel);
}

void Campaign::profile(Client& client, size_t device, uint32_t kernel) {
  Event e = event(EventKind::kProfile, client, device);
  e.profile = {};
  e.profile.kernel_id = client.task * 100 + kernel;
  const auto us = static_cast<float>(client.kernel_us[kernel]);
  e.profile.duration = {us, us, us * 1.2F, 50};
  e.profile.gap_synchronized = {300, 250, 500, 50};
  e.profile.before = one_in(4) ? 0x1111222233334444u : 0;
  step(device, e);
}

void Campaign::leave(Client& client) {
  for (const size_t device : {0, 1}) {
    if (one_in(2)) log_.tell(uint64_t{cores_[device]->take_profile(client.id).kernels.size()});
    step(device, event(EventKind::kDetached, client, device));
  }
}

// ---- what a client does ----

void Campaign::act(Client& client, size_t device) {
  Seat& seat = client.seats[device];
  const auto thread = static_cast<uint16_t>(random(static_cast<uint32_t>(seat.streams.size())));
  const uint32_t what = random(100);
  if (seat.waiting && what < 70) {
    synchronize(client, device);
  } else if (what < 55) {
    launch(client, device, thread);
  } else if (what < 70) {
    synchronize(client, device);
  } else if (what < 88) {
    mark(client, device);
  } else if (what < 91) {
    withdraw(client, device);
  } else if (what < 94) {
    go_unseen(client, device);
  } else if (what < 95) {
    new_terms(client, device);
  } else if (what < 97) {
    announce(client, device, random(static_cast<uint32_t>(client.kernel_us.size())));
  } else if (what < 98) {
    Event e = event(EventKind::kStreamEnd, client, device);
    e.done = {};
    e.done.stream = thread;
    step(device, e);
  } else {
    step(device, Event(EventKind::kTick, now_, 0));
  }
}

Event Campaign::launch_event(EventKind kind, const Client& client, size_t device, uint16_t thread,
                             uint32_t kernel) {
  const Seat& seat = client.seats[device];
  Event e = event(kind, client, device);
  e.launch = {};
  e.launch.kernel = one_in(40) ? kUnknownKernel : kernel;
  e.launch.stream = thread;
  e.launch.thread = thread;
  e.launch.stream_seq = seat.streams[thread].seq + 1;
  e.launch.kind = one_in(30)        ? LaunchKind::kCopy
                  : kernel % 4 == 3 ? LaunchKind::kGraph
                                    : LaunchKind::kKernel;
  e.launch.unmovable = one_in(25);
  return e;
}

void Campaign::begin(Client& client, Seat& seat, uint16_t stream, uint32_t kernel) {
  Stream& s = seat.streams[stream];
  const double us = client.kernel_us[kernel] * (0.9 + random(200) / 1000.0);
  const TimeNs from = s.running.empty() ? now_ : std::max(now_, s.running.back().end);
  s.running.push_back({++s.seq, from + static_cast<TimeNs>(us * 1e3), us});
  if (s.running.size() > 64) s.running.pop_front();
}

void Campaign::post(Client& client, size_t device, uint16_t thread, Admission admission) {
  Seat& seat = client.seats[device];
  const uint32_t kernel = random(static_cast<uint32_t>(client.kernel_us.size()));
  Event e = launch_event(EventKind::kPosted, client, device, thread, kernel);
  e.launch.admission = admission;
  if (admission == Admission::kGated) e.launch.ask_seq = seat.ticket;
  e.launch.may_follow = one_in(20) ? 16 : 0;
  begin(client, seat, thread, kernel);
  step(device, e);
}

void Campaign::launch(Client& client, size_t device, uint16_t thread) {
  Seat& seat = client.seats[device];
  if (one_in(50)) {
    constexpr Admission kSelf[] = {Admission::kSelfCapturing, Admission::kSelfExempt,
                                   Admission::kSelfStale, Admission::kBypass};
    return post(client, device, thread, kSelf[random(4)]);
  }
  if (seat.allowed == Allowance::kLeased) return post(client, device, thread, Admission::kLease);
  if (seat.allowed == Allowance::kOpen && !one_in(4)) {
    ++seat.ticket;
    return post(client, device, thread, Admission::kGated);
  }
  if (seat.asking) return;  // it waits behind that
  seat.thread = thread;
  seat.at_gate = !one_in(3);
  seat.kernel = random(static_cast<uint32_t>(client.kernel_us.size()));
  ++seat.ticket;
  seat.asking = true;
  Event e = ticket_event(EventKind::kAsked, client, device);
  e.launch.unmovable = one_in(25);
  step(device, e);
}

Event Campaign::ticket_event(EventKind kind, const Client& client, size_t device) {
  const Seat& seat = client.seats[device];
  Event e = launch_event(kind, client, device, seat.thread, seat.kernel);
  e.launch.kind = seat.kernel % 4 == 3 ? LaunchKind::kGraph : LaunchKind::kKernel;
  e.launch.ask_seq = seat.ticket;
  e.launch.admission = seat.at_gate ? Admission::kGated : Admission::kAsk;
  return e;
}

// The oldest ticket goes without the core's word.
void Campaign::withdraw(Client& client, size_t device) {
  Seat& seat = client.seats[device];
  if (seat.ticket == 0) return;
  step(device, ticket_event(EventKind::kWithdrawn, client, device));
  if (!seat.asking) return;
  seat.asking = false;
  const Event gone = ticket_event(EventKind::kPosted, client, device);
  begin(client, seat, seat.thread, seat.kernel);
  step(device, gone);
}

// A marker tells of the latest launch of a stream that is over, or a launch failed.
void Campaign::mark(Client& client, size_t device) {
  std::vector<Stream>& streams = client.seats[device].streams;
  const auto stream = static_cast<uint16_t>(random(static_cast<uint32_t>(streams.size())));
  auto& running = streams[stream].running;
  Running last;
  while (!running.empty() && running.front().end <= now_) {
    last = running.front();
    running.pop_front();
  }
  if (last.seq == 0) return;
  Event e = event(EventKind::kCompleted, client, device);
  const bool timed = !one_in(3);
  e.done = {last.seq, timed ? static_cast<float>(last.us) : 0.0F, stream,
            one_in(30) ? Evidence::kFailed : Evidence::kMarker};
  step(device, e);
}

void Campaign::synchronize(Client& client, size_t device) {
  Seat& seat = client.seats[device];
  TimeNs end = 0;
  for (Stream& s : seat.streams) end = std::max(end, s.running.empty() ? 0 : s.running.back().end);
  if (!seat.waiting) {
    Event e = event(EventKind::kWaiting, client, device);
    e.done = {};
    e.done.stream = kEveryStream;
    seat.waiting = true;
    return step(device, e);
  }
  now_ = std::max(now_, std::min(end, now_ + 3'000'000));
  if (end > now_) return;
  seat.waiting = false;
  Event e = event(EventKind::kCompleted, client, device);
  const Stream& first = seat.streams[0];
  const float us =
      !first.running.empty() && one_in(2) ? static_cast<float>(first.running.back().us) : 0.0F;
  e.done = {first.seq, us, kEveryStream, Evidence::kSynchronized};
  for (Stream& s : seat.streams) s.running.clear();
  step(device, e);
}

void Campaign::go_unseen(Client& client, size_t device) {
  Seat& seat = client.seats[device];
  const bool row = one_in(2);
  Event e = event(row               ? EventKind::kRow
                  : seat.unobserved ? EventKind::kObserved
                                    : EventKind::kUnobserved,
                  client, device);
  if (!row) seat.unobserved = !seat.unobserved;
  e.untold = {random(20), random(static_cast<uint32_t>(client.kernel_us.size())),
              static_cast<float>(random(100))};
  step(device, e);
}

void Campaign::new_terms(Client& client, size_t device) {
  Event e = event(EventKind::kTerms, client, device);
  e.terms = {};
  e.terms.share = 1 + static_cast<float>(random(3));
  e.terms.priority = static_cast<uint8_t>(random(11));  // one too many: it is rejected
  if (one_in(3)) e.terms.slowdown_max = {1.2F, 1.3F};
  step(device, e);
}

// ---- what the administrator and the server do ----

void Campaign::change_policy(size_t device) {
  Scheduler& core = *cores_[device];
  bool ok = false;
  shadow_[device] = false;
  take(device, core.set_policy(policy_(), now_, ok));
  log_.tell(uint64_t{ok});
}

void Campaign::administer(size_t device) {
  Scheduler& core = *cores_[device];
  switch (random(8)) {
    case 0:
      return change_policy(device);
    case 1: {
      bool ok = false;
      take(device, core.set_policy(nullptr, now_, ok));
      return change_policy(device);
    }
    case 2:
      return take(device, core.set_bypass(one_in(3), now_));
    case 3: {
      const bool mps = !one_in(3);
      return take(device, core.set_mode(mps, mps ? 10 : 70, now_));
    }
    case 4:
      return take(device, core.set_alone(one_in(3), now_));
    case 5:
      return core.set_sm_total(SmCount(one_in(4) ? 128 : 132));
    case 6: {
      Use use;
      use[Channel::kDram] = static_cast<float>(random(100)) / 100;
      const uint64_t task = 1 + random(6), kernel = random(7);
      return core.set_use(random(2), task, task * 100 + kernel, use);
    }
    default:
      if (core.shadow().has_value() && one_in(2)) {
        core.end_shadow("it is over");
      } else if (Policy* candidate = candidate_()) {
        log_.tell(uint64_t{core.begin_shadow(*candidate, {}, now_)});
      }
  }
}

}  // namespace heddle::core
