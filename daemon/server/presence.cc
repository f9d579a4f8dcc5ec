#include "daemon/server/presence.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace heddle::server {
namespace {

// The most kernels of all clients of a user. A kernel takes about 600 bytes here and in the core.
// This has room for 40 ranks with 3 000 kernels each.
constexpr size_t kKernelsOfUser = 16 * size_t{ipc::kKernels};

// A less important client counts as waiting for this long after its last wait. It waits again for
// its next ticket soon, and the `contended` word of the clients above should not flicker.
constexpr core::TimeNs kContendedNs = 5'000'000;

}  // namespace

void Presence::introduce(Client& client, uint8_t gpu, core::TimeNs now) {
  const Identity& identity = client.identity();
  if (devices_.open(gpu, identity, now)) {
    policy_.open(gpu, now);
    devices_.join_others(gpu, now);
  }
  client.put_on_gpu(gpu);
  std::optional<core::TaskProfile> profile;
  if (profiles_.is_of(identity.gpu_name)) {
    profile = profiles_.find(identity.uid, client.task());
    if (!profile) profile = profiles_.find(identity.uid, client.unlabelled_task());
  }
  for (const core::Event& event : client.introduction(gpu, now, profile ? &*profile : nullptr)) {
    stepper_.step(devices_.on(gpu), event);
  }
}

// Copies and waits do not count as work on the GPU.
void Presence::begin(Client& client, const core::Event& event) {
  if (!client.on_gpu(event.device)) introduce(client, event.device, event.at);
  const bool launch =
      event.kind == core::EventKind::kPosted && (event.launch.kind == core::LaunchKind::kKernel ||
                                                 event.launch.kind == core::LaunchKind::kGraph);
  if (!launch && event.kind != core::EventKind::kAsked && event.kind != core::EventKind::kRow) {
    return;
  }
  client.note_post(event.device);
  client.set_contended(contention_.concerns(client));
}

void Presence::register_kernel(Client& client, const KernelMessage& message, core::TimeNs now) {
  if (!client.managed() || !has_room(client, message.kernel.index)) return;
  const size_t places = client.kernel_places();
  if (!client.add_kernel(message)) return;
  places_[client.identity().uid] += client.kernel_places() - places;
  core::Event event(core::EventKind::kKernel, now, client.identity().id);
  event.kernel = message.kernel;
  tell(client, event);
  if (message.has_nodes()) {
    event.kind = core::EventKind::kNodes;
    event.nodes = message.nodes;
    tell(client, event);
  }
  devices_.for_each_of(client, [&](core::Scheduler& scheduler, uint8_t gpu) {
    if (scheduler.view().full(client.identity().id) && !std::exchange(told_full_, true)) {
      log_.warning("learns_no_more",
                   {{"device", gpu},
                    {"uid", client.identity().uid},
                    {"hint", "the programs of this user hold all of its places; end some"}});
    }
  });
}

bool Presence::has_room(const Client& client, uint32_t index) {
  const Identity& who = client.identity();
  const size_t places = client.kernel_places();
  if (who.privileged || index < places || index >= ipc::kKernels) return true;
  if (places_[who.uid] + index + 1 - places <= kKernelsOfUser) return true;
  if (!std::exchange(told_full_, true)) {
    log_.warning("learns_no_more",
                 {{"uid", who.uid}, {"hint", "the programs of this user have too many kernels"}});
  }
  return false;
}

void Presence::tell(const Client& client, core::Event event) {
  devices_.for_each_of(client, [&](core::Scheduler& scheduler, uint8_t gpu) {
    event.device = gpu;
    stepper_.step(scheduler, event);
  });
}

void Presence::tell_terms(const Client& client, core::TimeNs now) {
  if (!client.managed()) return;
  const Identity& who = client.identity();
  core::Event event(core::EventKind::kTerms, now, who.id);
  event.terms = {static_cast<float>(who.terms.share),
                 static_cast<float>(who.terms.slo_ms),
                 static_cast<uint8_t>(who.priority),
                 who.terms.slowdown_max,
                 who.terms.channel_max,
                 who.terms.compute};
  tell(client, event);
}

void Presence::leave(Client& client, core::TimeNs now) {
  collect_profile(client);
  tell(client, {core::EventKind::kDetached, now, client.identity().id});
  const auto held = places_.find(client.identity().uid);
  if (held == places_.end()) return;
  held->second -= client.kernel_places();
  client.forget_kernels();
  if (held->second == 0) places_.erase(held);
}

void Presence::collect_profile(const Client& client) {
  const Identity& identity = client.identity();
  if (!profiles_.is_of(identity.gpu_name)) return;
  devices_.for_each_of(client, [&](core::Scheduler& scheduler, uint8_t) {
    core::TaskProfile task = scheduler.take_profile(identity.id);
    if (task.kernels.empty()) return;
    profiles_.add(std::move(task), identity.uid, identity.label, identity.command);
  });
}

void Presence::take(Client& client, const Claim& claim) {
  const bool known = client.knows_kernel(claim.fields.kernel);
  for (const core::Event& event : client.intake().take(claim, known)) {
    if (!client.posted_to(event.device)) [[unlikely]]
      begin(client, event);
    stepper_.step(devices_.on(event.device), event, &client);
  }
}

bool Presence::tell_gated(const std::vector<Client*>& clients, core::TimeNs now) {
  constexpr int kMost = 4 * static_cast<int>(ipc::kRingRecords);  // in a turn
  int told = 0;
  for (Client* client : clients) {
    if (client->left_gates()) [[unlikely]]
      tell(*client, {core::EventKind::kGatesLeft, now, client->identity().id});
    client->look_at_gates();
  }
  // News about one client may change which launches of others are the oldest.
  bool first = true;
  for (bool any = true; std::exchange(any, false); first = false) {
    for (Client* client : clients) {
      while (tell_next(*client, now, !first)) {
        any = true;
        if (++told == kMost) return false;
      }
    }
  }
  return true;
}

bool Presence::tell_next(Client& client, core::TimeNs now, bool if_touched) {
  const auto claim = client.next_at_gate(now, if_touched);
  stepper_.note_granted(client);
  if (claim) take(client, *claim);
  return claim.has_value();
}

void Presence::tell_gone(Client& client, core::TimeNs now) {
  if (!client.any_thread_waits() || !client.may_look()) return;
  client.look_at_gates();
  for (uint32_t told = 0; client.any_thread_waits() && told < ipc::kRingRecords; ++told) {
    if (!tell_next(client, now, false)) return;
  }
}

bool Presence::tell_stops(const std::vector<Client*>& clients, core::TimeNs now) {
  bool any = false;
  for (Client* client : clients) {
    devices_.for_each_of(*client, [&](core::Scheduler& scheduler, uint8_t gpu) {
      const bool allowed = stop_answers_.allows(devices_.gpus().id(gpu));
      const auto said = client->stops_on(gpu, allowed, now);
      if (!said) return;
      core::Event event(core::EventKind::kStops, now, client->identity().id);
      event.device = gpu;
      event.stop = *said;
      stepper_.step(scheduler, event, client);
      any = true;
    });
  }
  return any;
}

void Presence::tell_memory(const Client& client, uint8_t gpu, const core::MemoryBody& memory,
                           core::TimeNs now) {
  core::Event event(core::EventKind::kMemory, now, client.identity().id);
  event.device = gpu;
  event.memory = memory;
  stepper_.step(devices_.on(gpu), event);
}

void Contention::update(core::TimeNs now) {
  std::array<int8_t, ipc::kDevices> lowest;
  lowest.fill(-1);
  bool threads = false;
  for (const Client* client : roster_.managed()) {
    if (client->intake().asking() == 0) continue;
    threads |= client->any_thread_waits();
    for (GpuNumbers::Numbers rest = client->working(); rest != 0; rest &= rest - 1) {
      int8_t& on = lowest[static_cast<size_t>(std::countr_zero(rest))];
      on = std::max(on, static_cast<int8_t>(client->identity().priority));
    }
  }
  if (threads) any_until_ = now + kContendedNs;
  any_ = now < any_until_;
  bool changed = false;
  for (size_t gpu = 0; gpu < devices_.schedulers().size(); ++gpu) {
    Below& below = below_[gpu];
    // Do not change back too soon: each change writes a cache line that all launching threads read.
    if (lowest[gpu] >= below.priority) {
      below.until = now + kContendedNs;
    } else if (now < below.until) {
      continue;
    }
    changed |= lowest[gpu] != below.priority;
    below.priority = lowest[gpu];
  }
  if (!changed) return;
  for (Client* client : roster_.managed()) client->set_contended(concerns(*client));
}

bool Contention::concerns(const Client& client) const {
  for (GpuNumbers::Numbers rest = client.working(); rest != 0; rest &= rest - 1) {
    const Below& below = below_[static_cast<size_t>(std::countr_zero(rest))];
    if (client.identity().priority < below.priority) return true;
  }
  return false;
}

}  // namespace heddle::server
