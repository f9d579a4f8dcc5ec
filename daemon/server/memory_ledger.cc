#include "daemon/server/memory_ledger.h"

#include "daemon/server/clock.h"

namespace heddle::server {
namespace {

// Words that allocations read are stored only when they change.
template <class Word, class Value>
void store_changed(Word& word, Value value) {
  if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_relaxed);
}

}  // namespace

uint64_t memory_used(const Client& client, uint32_t device) {
  return client.memory().threads[device].memory_used.load(std::memory_order_relaxed);
}

uint64_t memory_refused(const Client& client, uint32_t device) {
  return client.memory().threads[device].memory_refused.load(std::memory_order_relaxed);
}

MemoryLedger::MemoryLedger(uint64_t context, const Roster& roster, Log& log,
                           std::function<void(core::ClientId)> want_back, MakeRoom make_room)
    : roster_(roster),
      log_(log),
      want_back_(std::move(want_back)),
      make_room_(std::move(make_room)),
      accounts_(context, [this](core::ClientId id, uint32_t device) {
        const Client* client = roster_.find(id);
        return client != nullptr ? memory_used(*client, device) : 0;
      }) {}

void MemoryLedger::join(Client& client, const AttachMessage& message) {
  const core::ClientId id = client.identity().id;
  accounts_.join(id, client.identity().gpus, message.memory_total, message.memory_held);
  set_limits(client);
}

void MemoryLedger::set_limits(Client& client) {
  const core::ClientId id = client.identity().id;
  const std::vector<Membership> limits = memberships_of(client.identity());
  if (!limits.empty() && !client.identity().counts_memory) {
    log_.warning({client.identity().uid, client.identity().privileged}, "memory_not_limited",
                 {{"client", id},
                  {"limit", limits.front().group},
                  {"hint", "its shim is older than limits; start the program again"}});
  }
  accounts_.set_limits(id, limits);
  for (uint32_t device = 0; device < ipc::kDevices; ++device) {
    show(client, device, accounts_.view(id, device));
  }
  want_back_(id);  // a lower limit has no room for memory that it does not use
}

void MemoryLedger::show(Client& client, uint32_t device, const MemoryAccounts::View& view) {
  ipc::DeviceTerms& terms = client.control().devices[device];
  store_changed(terms.memory_granted, view.granted);
  store_changed(terms.memory_others, view.others);
  store_changed(terms.memory_limit, view.limit);
}

void MemoryLedger::show() {
  for (const auto& [key, view] : accounts_.views()) {
    if (Client* client = roster_.find(key.first)) show(*client, key.second, view);
  }
}

void MemoryLedger::need(Client& client, const MemoryNeed& need) {
  const core::ClientId id = client.identity().id;
  ipc::DeviceTerms& terms = client.control().devices[need.device];
  if (need.release) {
    accounts_.release(id, need.device, need.bytes);
    return show(client, need.device, accounts_.view(id, need.device));
  }
  ipc::MemoryVerdict verdict = accounts_.need(id, need.device, need.bytes);
  if (verdict == ipc::kMemoryRetry) ask_others(id, need.device);
  if (verdict == ipc::kMemoryRefused && make_room_(client, need.device, need.bytes)) {
    verdict = ipc::kMemoryWait;
  }
  show(client, need.device, accounts_.view(id, need.device));
  terms.memory_verdict.store(verdict, std::memory_order_relaxed);
  terms.memory_answered.store(need.number, std::memory_order_release);
}

// The client asks again in a moment. By then the other clients' shims have seen what was taken.
void MemoryLedger::ask_others(core::ClientId id, uint32_t device) {
  for (const auto& [other, its] : accounts_.with_slack(id, device)) {
    if (!accounts_.ask_back(other, its, monotonic_now())) {
      want_back_(other);
    } else if (Client* client = roster_.find(other)) {
      show(*client, its, accounts_.view(other, its));
    }
  }
}

}  // namespace heddle::server
