#include "daemon/server/explain.h"

#include <algorithm>
#include <map>

#include "daemon/server/memory.h"

namespace heddle::server {
namespace {

using nlohmann::json;

constexpr core::TimeNs kTellStallNs = 10'000'000'000;

json seen(float us) {
  if (us < 0) return "not asked";
  return us == static_cast<float>(core::kUnlimitedUs) ? json("unlimited")
                                                      : json(static_cast<double>(us));
}

// The scheduler counts its policies; the history's number is known of the one that runs.
json generation_json(uint32_t of, uint32_t current, const Engine& engine) {
  return of == current ? json(engine.generation().number) : json();
}

json held_json(const core::HeldTold& told, uint32_t current, const Engine& engine) {
  if (told.us_ago < 0) return nullptr;
  return {{"us_ago", told.us_ago},
          {"by", told.held.by_policy ? "policy" : "built-in"},
          {"hook", "dispatch"},
          {"reason", told.reason},
          {"generation", generation_json(told.held.generation, current, engine)},
          {"gap_us", seen(told.held.saw.gap_us)},
          {"inflight_us", seen(told.held.saw.inflight_us)},
          {"waiting", told.held.waiting}};
}

json wait_json(const core::WaitTold& wait, uint32_t current, const Engine& engine) {
  return {{"kernel", wait.kernel},
          {"waited_us", wait.waited_us},
          {"placed", wait.placed},
          {"held", held_json(wait.held, current, engine)}};
}

}  // namespace

const char* decider_text(core::Decider decider) {
  switch (decider) {
    case core::Decider::kPolicy:
      return "policy";
    case core::Decider::kStarvation:
      return "starvation bound";
    case core::Decider::kBypass:
      return "bypass";
    case core::Decider::kBuiltin:
      break;
  }
  return "built-in";
}

json explain_json(const Engine& engine, core::ClientId id) {
  json devices = json::array();
  for (const Engine::Device& device : engine.devices()) {
    if (!device.scheduler) continue;
    const core::Explanation why = device.scheduler->explain(id);
    if (!why.known) continue;
    json now = json::array(), past = json::array();
    for (const core::WaitTold& wait : why.now) {
      now.push_back(wait_json(wait, why.generation, engine));
      now.back()["queue"] = wait.queue;
      now.back()["why"] = wait.why;
    }
    for (const core::WaitTold& wait : why.past) {
      past.push_back(wait_json(wait, why.generation, engine));
      past.back()["us_ago"] = wait.us_ago;
      past.back()["let_go_by"] = decider_text(wait.decider);
      past.back()["reason"] = wait.reason;
    }
    devices.push_back({{"device", device.scheduler->config().device},
                       {"policy", engine.generation().name},
                       {"generation", engine.generation().number},
                       {"granted", why.granted},
                       {"waited", why.waited},
                       {"now", std::move(now)},
                       {"past", std::move(past)}});
  }
  if (devices.empty()) return nullptr;
  return {{"client", id}, {"devices", std::move(devices)}};
}

std::string_view channel_text(const core::PromiseStatus& promise) {
  return promise.channel ? core::kChannelNames[core::index_of(*promise.channel)] : "";
}

const char* stall_text(core::Staller by) {
  constexpr const char* kBy[] = {"nobody", "policy", "client", "gpu"};
  return kBy[static_cast<size_t>(by)];
}

json stall_json(const core::Scheduler& scheduler) {
  const core::Stall& last = scheduler.last_stall();
  const core::StallCounts& counts = scheduler.stalls();
  json all{{"policy", counts.policy}, {"client", counts.client}, {"gpu", counts.gpu}};
  all["last"] = nullptr;
  if (last.at < 0) return all;
  all["last"] = {{"by", stall_text(last.by)},
                 {"client", last.staller},
                 {"waited", last.waited},
                 {"waited_us", last.waited_us},
                 {"stalled_us", last.stalled_us}};
  return all;
}

// Once in a while, not for each.
void Engine::check_stalls() {
  for (Device& device : devices_) {
    if (!device.scheduler) continue;
    const core::Stall& last = device.scheduler->last_stall();
    if (last.at - device.told_stall < kTellStallNs || last.at < 0) continue;
    device.told_stall = last.at;
    log_.warning("stall", {{"device", device.scheduler->config().device},
                           {"by", stall_text(last.by)},
                           {"policy", generation_.name},
                           {"client", last.staller},
                           {"waited", last.waited},
                           {"waited_ms", static_cast<int64_t>(last.waited_us / 1e3)},
                           {"stalled_ms", static_cast<int64_t>(last.stalled_us / 1e3)}});
  }
}

void Engine::check_promises(core::TimeNs now) {
  const auto promised = [](const Client* c) { return c->identity().terms.slowdown_max > 0; };
  if (std::none_of(polled_.begin(), polled_.end(), promised)) return;
  for (Device& device : devices_) {
    if (!device.scheduler || now < device.broken_promises.next()) continue;
    std::map<core::ClientId, core::PromiseStatus> promises;
    Untold::Counts broken;
    for (const core::ClientStatus& client : device.scheduler->clients()) {
      promises[client.view.id] = client.promise;
      broken[client.view.id] = client.promise.broken;
    }
    for (const core::ClientId id : device.broken_promises.grown(std::move(broken), now)) {
      const Client* client = find(id);
      if (client == nullptr) continue;
      const core::PromiseStatus& promise = promises[id];
      log_.warning({client->identity().uid, client->identity().privileged}, "promise_broken",
                   {{"client", id},
                    {"pid", client->identity().pid},
                    {"label", client->identity().label},
                    {"device", device.scheduler->config().device},
                    {"policy", generation_.name},
                    {"promised", promise.slowdown_max},
                    {"now", promise.slowdown},
                    {"blocks", promise.blocks},
                    {"broken", promise.broken},
                    {"by", channel_text(promise)}});
    }
  }
}

// The shim refuses, and counts.
void Engine::check_refused(core::TimeNs now) {
  if (now < refused_.next()) return;
  Untold::Counts counts;
  for (const Client* client : polled_) {
    for (uint32_t device = 0; device < ipc::kDevices; ++device) {
      counts[client->identity().id] += memory_refused(*client, device);
    }
  }
  const Untold::Counts refused = counts;
  for (const core::ClientId id : refused_.grown(std::move(counts), now)) {
    const Identity& who = find(id)->identity();
    log_.warning({who.uid, who.privileged}, "memory_refused",
                 {{"client", id},
                  {"pid", who.pid},
                  {"label", who.label},
                  {"allocations", refused.at(id)},
                  {"limit", who.terms.memory.empty() ? who.memory_asked : who.terms.memory},
                  {"hint", "heddle ps says what it has of its limit"}});
  }
}

}  // namespace heddle::server
