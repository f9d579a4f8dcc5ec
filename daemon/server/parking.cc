#include "daemon/server/parking.h"

#include <algorithm>

#include "daemon/server/clock.h"

namespace heddle::server {
namespace {

constexpr uint64_t kLookMs = 20;
constexpr core::TimeNs kSecondNs = 1'000'000'000;
// Against thrash: who came back stays for so many times what that took, and for this at least.
constexpr double kStays = 3;
constexpr double kStayLeastS = 1;
// Who could not be parked is not tried again for so long.
constexpr core::TimeNs kFailedNs = 60 * kSecondNs;
// Whose return failed, as the GPU was full: tried again after this.
constexpr core::TimeNs kRetryNs = kSecondNs;
// Who asked for room so short a time ago is not idle, but waits for it.
constexpr core::TimeNs kAsksNs = kSecondNs;

Causer causer_of(const Client& client) {
  return {client.identity().uid, client.identity().privileged};
}

}  // namespace

Parking::Parking(uv_loop_t* loop, Engine& engine, MemoryAccounts& accounts, Log& log)
    : loop_(loop), engine_(engine), accounts_(accounts), log_(log), again_(loop, [this] {
        look();
      }) {}

bool Parking::may_park(const Client& client) const {
  const Identity& who = client.identity();
  if (!who.parks || !(who.terms.park || who.park_asked) || who.pid <= 0 || !client.managed()) {
    return false;
  }
  const auto stay = stays_.find(who.id);
  return stay == stays_.end() || stay->second.failed_until < monotonic_now();
}

// It is on the GPU, has no work, and has been there for long enough.
bool Parking::is_idle(const Client& client, const Stay& stay) const {
  const core::TimeNs now = monotonic_now();
  return !tenants_.contains(client.identity().id) && now >= stay.not_before &&
         now >= stay.asked_at + kAsksNs && !engine_.devices.active(client) &&
         &client != engine_.reports.unobserved();
}

// Of those that share a limit with it.
Client* Parking::idlest_beside(const Client& client) {
  Client* idlest = nullptr;
  for (Client* other : engine_.roster.managed()) {
    const core::ClientId id = other->identity().id;
    if (other == &client || !may_park(*other) || !is_idle(*other, stays_[id]) ||
        !accounts_.share_limit(client.identity().id, id)) {
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
  if (Client* idlest = idlest_beside(client)) park(*idlest);
  return true;
}

void Parking::park(Client& client) {
  const core::ClientId id = client.identity().id;
  Tenant tenant;
  tenant.pid = client.identity().pid;
  tenant.left_at = monotonic_now();
  for (uint32_t device = 0; device < ipc::kDevices; ++device) {
    tenant.bytes += memory_used(client, device);
  }
  tenant.wanted_before = client.memory_wanted();  // before its calls begin to wait
  client.set_away(true);
  Tenant& kept = tenants_.insert_or_assign(id, tenant).first->second;
  if (keep(id, kept, std::max<uint64_t>(tenant.bytes, 1))) return;
  client.set_away(false);
  failed(id);
}

// Begins a keeper. False: there is none.
bool Parking::keep(core::ClientId id, Tenant& tenant, uint64_t bytes) {
  // The keeper is known by its place: it may speak when another one has followed it.
  auto place = std::make_shared<const Keeper*>();
  auto made = Keeper::begin(loop_, tenant.pid, bytes,
                            [this, id, place](const std::string& word, const std::string& rest) {
                              said(id, *place, word, rest);
                            });
  again_.start(kLookMs);
  if (!made) {
    log_.error("no_keeper", {{"client", id}, {"error", made.error().message}});
    return false;
  }
  tenant.keeper = made->get();
  *place = tenant.keeper;
  keepers_.push_back(std::move(*made));
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

// A keeper that ended without a last word was killed: another one brings the memory back.
void Parking::ended(core::ClientId id, const Keeper* by) {
  const auto it = tenants_.find(id);
  if (it != tenants_.end() && it->second.keeper == by) {
    Tenant& tenant = it->second;
    tenant.keeper = nullptr;
    tenant.state = State::kParked;
    tenant.unpark = true;
    tenant.retry_at = monotonic_now() + kRetryNs;
  }
  std::erase_if(keepers_, [by](const auto& one) { return one.get() == by; });
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
                           !client->managed() || engine_.devices.active(*client) ||
                           client->last_active > tenant.left_at;
    if (!is_wanted) continue;
    if (tenant.wanted_at == 0) tenant.wanted_at = now;
    wanted.push_back(id);
  }
  std::sort(wanted.begin(), wanted.end(), [this](core::ClientId a, core::ClientId b) {
    return tenants_.at(a).wanted_at < tenants_.at(b).wanted_at;
  });
  for (auto it = wanted.begin(); it != wanted.end(); ++it) {
    const auto before = [&](core::ClientId other) { return accounts_.share_limit(other, *it); };
    Tenant& tenant = tenants_.at(*it);
    if (now >= tenant.retry_at && std::none_of(wanted.begin(), it, before)) bring_back(*it, tenant);
  }
  if (!tenants_.empty()) again_.start(kLookMs);
}

void Parking::bring_back(core::ClientId id, Tenant& tenant) {
  accounts_.set_away(id, false);
  const auto nobody = [](core::ClientId) { return false; };
  const auto leaves = [this](core::ClientId other) { return this->leaves(other); };
  // At a second try the GPU itself was full, whatever the limits say.
  const bool fits = accounts_.fits_back(id, nobody);
  if (!fits ? !accounts_.fits_back(id, leaves) : tenant.retry_at != 0 && tenant.keeper != nullptr) {
    if (Client* idlest = idlest_beside(*engine_.roster.find(id))) park(*idlest);
  }
  if (!fits) return;
  tenant.state = State::kReturning;
  if (tenant.keeper != nullptr) return tenant.keeper->bring_back();
  if (keep(id, tenant, 0)) return;
  tenant.state = State::kParked;
  tenant.retry_at = monotonic_now() + kRetryNs;
}

void Parking::beat(core::TimeNs now) {
  constexpr uint64_t kToldApart = uint64_t{1} << 20;
  for (Client* client : engine_.roster.managed()) {
    const core::ClientId id = client->identity().id;
    Stay& stay = stays_[id];
    if (const auto order = client->take_park_order()) {
      const auto tenant = tenants_.find(id);
      if (tenant != tenants_.end()) tenant->second.unpark = !*order;
      if (*order && may_park(*client) && is_idle(*client, stay)) park(*client);
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
