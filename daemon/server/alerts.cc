#include "daemon/server/alerts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/server/memory.h"
#include "daemon/server/ps.h"

namespace heddle::server {
namespace {

constexpr core::TimeNs kTellStallNs = 10'000'000'000;

}  // namespace

void Alerts::check(const std::string& policy, core::TimeNs now) {
  const auto& clients = roster_.managed();
  const auto promised = [](const Client* c) { return c->identity().terms.slowdown_max.any(); };
  for (const auto& scheduler : devices_.schedulers()) {
    if (scheduler) check_stall(*scheduler, policy);
  }
  for (const auto& scheduler : devices_.schedulers()) {
    if (!scheduler || std::none_of(clients.begin(), clients.end(), promised)) continue;
    for (const bool tail : {false, true}) check_promises(*scheduler, tail, policy, now);
  }
  const auto computes = [](const Client* c) { return c->identity().terms.compute.any(); };
  for (const auto& scheduler : devices_.schedulers()) {
    if (!scheduler || std::none_of(clients.begin(), clients.end(), computes)) continue;
    check_compute(*scheduler, policy, now);
  }
  check_refused(now);
  check_forced(now);
}

void Alerts::check_compute(const core::Scheduler& scheduler, const std::string& policy,
                           core::TimeNs now) {
  core::TimeNs& told = told_compute_[scheduler.config().device];
  if (now - told < Untold::kTellNs) return;
  told = now;
  std::set<core::ClientId> are_short;
  const std::set<core::ClientId>& were = short_[scheduler.config().device];
  for (const core::ClientStatus& status : scheduler.view().clients(now)) {
    const Client* client = roster_.find(status.view.id);
    const bool less = status.short_of_request();
    if (less) are_short.insert(status.view.id);
    const bool again = less && were.contains(status.view.id);
    if (client == nullptr || !(again || status.over_limit())) continue;
    const Identity& who = client->identity();
    log_.warning({who.uid, who.privileged}, less ? "compute_short" : "compute_over",
                 {{"client", who.id},
                  {"pid", who.pid},
                  {"label", who.label},
                  {"device", scheduler.config().device},
                  {"policy", policy},
                  {less ? "request" : "limit", less ? status.view.request : status.view.limit},
                  {"got", status.got[1]}});
  }
  short_[scheduler.config().device] = std::move(are_short);
}

void Alerts::check_stall(const core::Scheduler& scheduler, const std::string& policy) {
  const uint8_t gpu = scheduler.config().device;
  const core::Stall& last = scheduler.view().last_stall();
  if (last.at - told_stall_[gpu] < kTellStallNs || last.at < 0) return;
  told_stall_[gpu] = last.at;
  log_.warning("stall", {{"device", gpu},
                         {"by", stall_text(last.by)},
                         {"policy", policy},
                         {"client", last.staller},
                         {"waited", last.waited},
                         {"waited_ms", static_cast<int64_t>(last.waited_us / 1e3)},
                         {"stalled_ms", static_cast<int64_t>(last.stalled_us / 1e3)}});
}

void Alerts::check_promises(const core::Scheduler& scheduler, bool tail, const std::string& policy,
                            core::TimeNs now) {
  Untold& untold = broken_promises_[scheduler.config().device][tail ? 1 : 0];
  if (now < untold.next()) return;
  std::map<core::ClientId, core::PromiseStatus> promises;
  Untold::Counts broken;
  for (const core::ClientStatus& client : scheduler.view().clients()) {
    const core::PromiseStatus& promise = tail ? client.promise_p99 : client.promise;
    promises[client.view.id] = promise;
    broken[client.view.id] = promise.broken;
  }
  for (const core::ClientId id : untold.grown(std::move(broken), now)) {
    const Client* client = roster_.find(id);
    if (client == nullptr) continue;
    const Identity& who = client->identity();
    const core::PromiseStatus& promise = promises[id];
    log_.warning({who.uid, who.privileged}, "promise_broken",
                 {{"client", id},
                  {"pid", who.pid},
                  {"label", who.label},
                  {"device", scheduler.config().device},
                  {"policy", policy},
                  {"of", tail ? "p99" : "mean"},
                  {"promised", promise.slowdown_max},
                  {"now", promise.slowdown},
                  {"blocks", promise.blocks},
                  {"broken", promise.broken},
                  {"by", channel_text(promise)}});
  }
}

// The shims refuse allocations, and count the refusals in their shared memory.
void Alerts::check_refused(core::TimeNs now) {
  if (now < refused_.next()) return;
  Untold::Counts counts;
  for (const Client* client : roster_.managed()) {
    for (uint32_t device = 0; device < ipc::kDevices; ++device) {
      counts[client->identity().id] += memory_refused(*client, device);
    }
  }
  const Untold::Counts refused = counts;
  for (const core::ClientId id : refused_.grown(std::move(counts), now)) {
    const Identity& who = roster_.find(id)->identity();
    log_.warning({who.uid, who.privileged}, "memory_refused",
                 {{"client", id},
                  {"pid", who.pid},
                  {"label", who.label},
                  {"allocations", refused.at(id)},
                  {"limit", who.terms.memory.empty() ? who.memory_asked : who.terms.memory},
                  {"hint", "heddle ps says what it has of its limit"}});
  }
}

void Alerts::check_forced(core::TimeNs now) {
  if (now < forced_.next()) return;
  Untold::Counts counts;
  for (const Client* client : roster_.managed()) {
    counts[client->identity().id] = client->gates_forced();
  }
  for (const core::ClientId id : forced_.grown(std::move(counts), now)) {
    const Client& client = *roster_.find(id);
    const Identity& who = client.identity();
    log_.warning({who.uid, who.privileged}, "gates_forced",
                 {{"client", id},
                  {"pid", who.pid},
                  {"uid", who.uid},
                  {"label", who.label},
                  {"launches", client.gates_forced()},
                  {"hint", "the program opened its own gates; its launches did not wait"}});
  }
}

}  // namespace heddle::server
