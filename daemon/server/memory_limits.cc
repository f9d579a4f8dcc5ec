// Limits on device memory, between the accounts (memory.h) and the clients: what their windows say,
// and whom to ask for what it does not use.
#include "daemon/server/memory.h"
#include "daemon/server/server.h"
#include "ipc/socket.h"

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

// Before it hears that it is attached: it reads what it was granted then.
void Server::join_memory(Client& client, const AttachMessage& message) {
  const core::ClientId id = client.identity().id;
  memory_.join(id, client.identity().gpus, message.memory_total, message.memory_held);
  set_memory_limits(client);
}

void Server::set_memory_limits(Client& client) {
  const core::ClientId id = client.identity().id;
  const std::vector<Membership> limits = memberships_of(client.identity());
  if (!limits.empty() && !client.identity().counts_memory) {
    log_.warning({client.identity().uid, client.identity().privileged}, "memory_not_limited",
                 {{"client", id},
                  {"limit", limits.front().group},
                  {"hint", "its shim is older than limits; start the program again"}});
  }
  memory_.set_limits(id, limits);
  for (uint32_t device = 0; device < ipc::kDevices; ++device) {
    show_memory(client, device, memory_.view(id, device));
  }
  want_back(id);  // under a lower limit what it does not use is no longer its own
}

void Server::show_memory(Client& client, uint32_t device, const MemoryAccounts::View& view) {
  ipc::DeviceWindow& window = client.control().windows[device];
  store_changed(window.memory_granted, view.granted);
  store_changed(window.memory_others, view.others);
  store_changed(window.memory_limit, view.limit);
}

// How much others hold changes with each of their allocations.
void Server::show_memory() {
  for (const auto& [key, view] : memory_.views()) {
    if (Client* client = engine_.roster.find(key.first)) show_memory(*client, key.second, view);
  }
}

void Server::on_memory_need(Client& client, const MemoryNeed& need) {
  const core::ClientId id = client.identity().id;
  ipc::DeviceWindow& window = client.control().windows[need.device];
  if (need.release) {
    memory_.release(id, need.device, need.bytes);
    return show_memory(client, need.device, memory_.view(id, need.device));
  }
  const ipc::MemoryVerdict verdict = memory_.need(id, need.device, need.bytes);
  if (verdict == ipc::kMemoryRetry) ask_others(id, need.device);
  show_memory(client, need.device, memory_.view(id, need.device));
  window.memory_verdict.store(verdict, std::memory_order_relaxed);
  window.memory_answered.store(need.number, std::memory_order_release);
}

// It asks again in a moment; what was taken for it, the others' shims see before.
void Server::ask_others(core::ClientId id, uint32_t device) {
  for (const auto& [other, its] : memory_.with_slack(id, device)) {
    if (!memory_.ask_back(other, its, monotonic_now())) {
      want_back(other);
    } else if (Client* client = engine_.roster.find(other)) {
      show_memory(*client, its, memory_.view(other, its));
    }
  }
}

// Any packet tells it (shim/link/helper.cc). One that does not fit is sent with the next question.
void Server::want_back(core::ClientId id) {
  const auto process = processes_.find(id);
  if (process == processes_.end() || process->second->connection < 0) return;
  const std::byte word{};
  (void)ipc::send_packet(process->second->connection, std::span(&word, 1));
}

}  // namespace heddle::server
