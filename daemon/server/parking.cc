#include "daemon/server/parking.h"

#include <algorithm>

#include "daemon/server/clock.h"

namespace heddle::server {
namespace {

constexpr uint64_t kLookMs = 20;
constexpr core::TimeNs kSecondNs = 1'000'000'000;
// Who has had no work for so long is idle.
constexpr core::TimeNs kIdleNs = kSecondNs / 2;
// Against thrash: who came back stays for so many times what that took, and for this at least.
constexpr double kStays = 3;
constexpr double kStayLeastS = 1;
// Who could not be parked is not tried again for so long.
constexpr core::TimeNs kFailedNs = 60 * kSecondNs;
// Whose return failed, as the GPU was full: tried again after this.
constexpr core::TimeNs kRetryNs = kSecondNs;
// Who asked for room so short a time ago is not idle, but waits for it.
constexpr core::TimeNs kAsksNs = kSecondNs;
// Who has waited so long for room has others leave that are at work, and holds up nobody behind it.
constexpr core::TimeNs kLongNs = 10 * kSecondNs;
// Keepers that end without a word before the calls of their client are let go to the driver.
constexpr int kLostMost = 3;
// Of all programs at once: each is a process that the driver keeps for seconds.
constexpr size_t kKeepersMost = 64;

Causer causer_of(const Client& client) {
  return {client.identity().uid, client.identity().privileged};
}

uint64_t bytes_of(const Client& client) {
  uint64_t all = 0;
  for (uint32_t device = 0; device < ipc::kDevices; ++device) all += memory_used(client, device);
  return all;
}

GpuNumbers::Numbers on_gpu(const Client& client, uint32_t device) {
  const uint8_t gpu = client.identity().gpus[device];
  return gpu != kNoGpu ? GpuNumbers::Numbers{1} << gpu : 0;
}

// The GPUs on which it holds memory.
GpuNumbers::Numbers gpus_of(const Client& client) {
  GpuNumbers::Numbers all = 0;
  for (uint32_t device = 0; device < ipc::kDevices; ++device) {
    if (memory_used(client, device) > 0) all |= on_gpu(client, device);
  }
  return all;
}

}  // namespace

Parking::Parking(uv_loop_t* loop, Engine& engine, MemoryAccounts& accounts, Log& log)
    : loop_(loop), engine_(engine), accounts_(accounts), log_(log), again_(loop, [this] {
        look();
      }) {}

// The driver parks nobody under MPS. A fail-closed client's calls do not look whether it is away.
bool Parking::may_park(const Client& client) const {
  const Identity& who = client.identity();
  if (!who.parks || !(who.terms.park || who.park_asked) || who.pid <= 0 || !client.managed() ||
      !client.connected || who.terms.fail_closed || engine_.devices.mps()) {
    return false;
  }
  const auto stay = stays_.find(who.id);
  return stay == stays_.end() || stay->second.failed_until < monotonic_now();
}

// It is on the GPU, has been for long enough, and has no work if it is to be `idle`.
bool Parking::may_leave(const Client& client, bool idle) const {
  const core::ClientId id = client.identity().id;
  const auto stay = stays_.find(id);
  if (!may_park(client) || tenants_.contains(id) || stay == stays_.end()) return false;
  const core::TimeNs now = monotonic_now();
  const core::TimeNs busy_at = std::max(client.last_active, stay->second.since);
  return now >= stay->second.not_before && now >= stay->second.asked_at + kAsksNs &&
         (!idle || (now >= busy_at + kIdleNs && !engine_.devices.active(client) &&
                    &client != engine_.reports.unobserved()));
}

// Of those that share a limit with it, and hold some of it on these GPUs.
Client* Parking::idlest_beside(const Client& client, GpuNumbers::Numbers gpus, bool idle) {
  Client* idlest = nullptr;
  for (Client* other : engine_.roster.managed()) {
    if (other == &client || (gpus_of(*other) & gpus) == 0 || !may_leave(*other, idle) ||
        !accounts_.share_limit(client.identity().id, other->identity().id)) {
      continue;
    }
    if (idlest == nullptr || other->last_active < idlest->last_active) idlest = other;
  }
  return idlest;
}

bool Parking::make_room(const Client& client, uint32_t device, uint64_t bytes) {
  const core::ClientId id = client.identity().id;
  const auto leaves = [this](core::ClientId other) { return this->leaves(other); };
  const auto can_leave = [this](core::ClientId other) {
    const Client* const its = engine_.roster.find(other);
    return its != nullptr && may_park(*its);
  };
  if (!accounts_.fits_without(id, device, bytes, can_leave)) return false;
  stays_[id].asked_at = monotonic_now();
  if (accounts_.fits_without(id, device, bytes, leaves)) return true;
  if (Client* idlest = idlest_beside(client, on_gpu(client, device), true)) park(*idlest);
  return true;
}

void Parking::park(Client& client) {
  const core::ClientId id = client.identity().id;
  Tenant tenant;
  tenant.pid = client.identity().pid;
  tenant.left_at = monotonic_now();
  tenant.bytes = bytes_of(client);
  tenant.wanted_before = client.memory_wanted();  // before its calls begin to wait
  client.set_away(true);
  Tenant& kept = tenants_.insert_or_assign(id, tenant).first->second;
  if (keep(id, kept, std::max<uint64_t>(tenant.bytes, 1))) return;
  client.set_away(false);
  failed(id);
}

// Begins a keeper. False: there is none.
bool Parking::keep(core::ClientId id, Tenant& tenant, uint64_t bytes) {
  const auto same = [&tenant](const Kept& one) { return one.pid == tenant.pid; };
  if (keepers_.size() >= kKeepersMost || std::any_of(keepers_.begin(), keepers_.end(), same)) {
    return false;  // an earlier one has yet to end
  }
  // The keeper is known by its place: it may speak when another one has followed it.
  auto place = std::make_shared<const Keeper*>();
  auto made = Keeper::begin(loop_, tenant.pid, bytes,
                            [this, id, place](const std::string& word, const std::string& rest) {
                              said(id, *place, word, rest);
                            });
  if (!again_.started()) again_.start(kLookMs);
  if (!made) {
    log_.error("no_keeper", {{"client", id}, {"error", made.error().message}});
    return false;
  }
  tenant.keeper = made->get();
  *place = tenant.keeper;
  keepers_.push_back({std::move(*made), tenant.pid});
  return true;
}

bool Parking::leaves(core::ClientId id) const {
  const auto it = tenants_.find(id);
  return it != tenants_.end() && it->second.state != State::kReturning && it->second.wanted_at == 0;
}

void Parking::said(core::ClientId id, const Keeper* by, const std::string& word,
                   const std::string& rest) {
  if (word == "ended") return ended(id, by);
  const auto it = tenants_.find(id);
  Client* const client = engine_.roster.find(id);
  if (it == tenants_.end() || client == nullptr || it->second.keeper != by) return;
  Tenant& tenant = it->second;
  if (word == "parked") {
    tenant.state = State::kParked;
    accounts_.set_away(id, true);
    log_.info(causer_of(*client), "client_parked",
              {{"client", id}, {"bytes", tenant.bytes}, {"seconds", rest}});
  } else if (word == "back") {
    log_.info(causer_of(*client), "client_back",
              {{"client", id}, {"bytes", tenant.bytes}, {"seconds", rest}});
    accounts_.set_away(id, false);
    client->set_away(false);
    tenants_.erase(it);
    const double seconds = std::max(kStayLeastS, kStays * strtod(rest.c_str(), nullptr));
    stays_[id].not_before = monotonic_now() + static_cast<core::TimeNs>(seconds * 1e9);
  } else {
    log_.warning(causer_of(*client),
                 tenant.state == State::kLeaving ? "not_parked" : "stays_parked",
                 {{"client", id}, {"error", rest}});
    if (tenant.state == State::kLeaving) {
      client->set_away(false);
      return failed(id);
    }
    tenant.state = State::kParked;  // the GPU is full: another one must leave first
    tenant.retry_at = monotonic_now() + kRetryNs;
  }
}

// A keeper that ended without a last word was killed: another one brings the memory back. If none
// can, the client's calls are let go to the driver.
void Parking::ended(core::ClientId id, const Keeper* by) {
  std::erase_if(keepers_, [by](const Kept& one) { return one.keeper.get() == by; });
  const auto it = tenants_.find(id);
  if (it == tenants_.end() || it->second.keeper != by) return;
  Tenant& tenant = it->second;
  tenant.keeper = nullptr;
  tenant.state = State::kParked;
  tenant.unpark = true;
  tenant.retry_at = monotonic_now() + kRetryNs;
  if (++tenant.lost < kLostMost) return;
  log_.error("keepers_end", {{"client", id}, {"pid", tenant.pid}, {"hint", "heddle unpark PID"}});
  accounts_.set_away(id, false);
  if (Client* client = engine_.roster.find(id)) client->set_away(false);
  failed(id);
}

void Parking::failed(core::ClientId id) {
  tenants_.erase(id);
  stays_[id].failed_until = monotonic_now() + kFailedNs;
}

void Parking::leave(core::ClientId id) {
  const auto it = tenants_.find(id);
  if (it != tenants_.end() && it->second.keeper != nullptr) it->second.keeper->bring_back();
  tenants_.erase(id);
  stays_.erase(id);
}

// Brings back whose calls wait, in the order in which they began to. Who waits for room counts as
// there, so that what becomes free is not taken by others.
void Parking::look() {
  const core::TimeNs now = monotonic_now();
  std::vector<core::ClientId> wanted;
  for (auto& [id, tenant] : tenants_) {
    const Client* const client = engine_.roster.find(id);
    if (client == nullptr || tenant.state != State::kParked) continue;
    // The last two: a call that passed the shim just before.
    const bool is_wanted = client->memory_wanted() != tenant.wanted_before || tenant.unpark ||
                           !client->managed() || !client->connected ||
                           engine_.devices.active(*client) || client->last_active > tenant.left_at;
    if (!is_wanted) continue;
    if (tenant.wanted_at == 0) tenant.wanted_at = now;
    wanted.push_back(id);
  }
  std::sort(wanted.begin(), wanted.end(), [this](core::ClientId a, core::ClientId b) {
    return tenants_.at(a).wanted_at < tenants_.at(b).wanted_at;
  });
  for (auto it = wanted.begin(); it != wanted.end(); ++it) {
    const auto before = [&](core::ClientId other) {
      return now < tenants_.at(other).wanted_at + kLongNs && accounts_.share_limit(other, *it);
    };
    Tenant& tenant = tenants_.at(*it);
    if (now >= tenant.retry_at && std::none_of(wanted.begin(), it, before)) bring_back(*it, tenant);
  }
  if (!tenants_.empty()) again_.start(kLookMs);
}

void Parking::bring_back(core::ClientId id, Tenant& tenant) {
  const core::TimeNs now = monotonic_now();
  const bool is_long = now >= tenant.wanted_at + kLongNs;
  accounts_.set_away(id, is_long);
  const auto nobody = [](core::ClientId) { return false; };
  const auto leaves = [this](core::ClientId other) { return this->leaves(other); };
  const bool fits = accounts_.fits_back(id, nobody);
  // At a second try the GPU itself was full, whatever the limits say.
  const bool gpu_full = fits && tenant.retry_at != 0 && tenant.keeper != nullptr;
  const bool limit_full = !fits && !accounts_.fits_back(id, leaves);
  if (gpu_full || limit_full) {
    const Client& client = *engine_.roster.find(id);
    if (Client* other = idlest_beside(client, gpus_of(client), !is_long)) park(*other);
  }
  if (!fits) return;
  accounts_.set_away(id, false);
  tenant.state = State::kReturning;
  if (tenant.keeper != nullptr) return tenant.keeper->bring_back();
  if (keep(id, tenant, 0)) return;
  tenant.state = State::kParked;
  tenant.retry_at = now + kRetryNs;
}

void Parking::beat(core::TimeNs now) {
  constexpr uint64_t kToldApart = uint64_t{1} << 20;
  for (Client* client : engine_.roster.managed()) {
    const core::ClientId id = client->identity().id;
    Stay& stay = stays_[id];
    if (stay.since == 0) stay.since = now;
    if (const auto order = client->take_park_order()) {
      const auto tenant = tenants_.find(id);
      if (tenant != tenants_.end()) tenant->second.unpark = !*order;
      if (*order && may_leave(*client, true)) park(*client);
    }
    const bool parked = tenants_.contains(id);
    engine_.devices.for_each_of(*client, [&](core::Scheduler&, uint8_t gpu) {
      const uint32_t device = accounts_.device_on(id, gpu);
      const uint64_t bytes = device < ipc::kDevices ? memory_used(*client, device) : 0;
      const uint64_t told = stay.told_bytes[gpu];
      const uint64_t apart = bytes > told ? bytes - told : told - bytes;
      if (apart < kToldApart && parked == stay.told_parked) return;
      stay.told_bytes[gpu] = bytes;
      engine_.presence.tell_memory(*client, gpu, {bytes, parked}, now);
    });
    stay.told_parked = parked;
  }
}

const char* Parking::residence(core::ClientId id) const {
  const auto it = tenants_.find(id);
  if (it == tenants_.end()) return "resident";
  switch (it->second.state) {
    case State::kLeaving:
      return "leaving";
    case State::kReturning:
      return "returning";
    case State::kParked:
      break;
  }
  return it->second.wanted_at != 0 ? "waits for room" : "parked";
}

}  // namespace heddle::server
