#include "daemon/server/ps.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "daemon/server/metrics.h"
#include "daemon/server/rules.h"
#include "daemon/server/shadows.h"

namespace heddle::server {
namespace {

using nlohmann::json;

// The histogram's buckets, without the empty ones at its end (core/waits.h has their bounds).
json waits_json(const core::Waits& waits) {
  const core::Waits::Counts& counts = waits.counts();
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](uint64_t n) { return n != 0; });
  return {{"counts", std::vector<uint64_t>(counts.begin(), last.base())},
          {"sum_us", waits.sum_us()},
          {"p50_us", core::quantile_us(counts, 0.5)},
          {"p99_us", core::quantile_us(counts, 0.99)}};
}

json counters_json(const Client& client) {
  const ClientCounts counts = counts_of(client);
  json all = metrics_json(kClientMetrics, counts);
  all["self"] = metrics_json(kSelfMetrics, counts);
  return all;
}

const char* mode_text(GpuMode mode) {
  return mode == GpuMode::kMps ? "mps" : mode == GpuMode::kTimeslice ? "timeslice" : "unknown";
}

// What enforces the client's memory limit.
const char* memory_mechanism(const Identity& who) {
  const bool meant = !who.terms.memory.empty() || !who.memory_asked.empty();
  const bool shim = meant && who.counts_memory;
  if (who.mps_memory_limit) return shim ? "shim and mps" : "mps";
  return shim ? "shim" : "none";
}

json client_json(const Client& client, const ServerFacts& facts, bool unobserved,
                 const Reader& reader) {
  const Identity& who = client.identity();
  const bool owned = reader.owns(who);
  const auto owners = [owned](const std::string& text) {
    return owned ? text.substr(0, kTextMax) : "";
  };
  json all = terms_json(who.terms);
  all.update({{"id", who.id},
              {"pid", who.pid},
              {"uid", who.uid},
              {"exe", owners(who.exe)},
              {"cgroup", owners(who.cgroup)},
              {"unseen", who.unseen},
              {"label", owners(who.label)},
              {"command", reader.local ? owners(who.command) : ""},
              {"hidden", !owned},
              {"priority", who.priority},
              {"priority_text", priority_text(who.priority)},
              {"rule", who.rule},
              {"sm_set", who.sm_set.bits()},
              {"sm_count", who.sms.get()},
              {"memory_asked", who.memory_asked},
              {"memory_by", memory_mechanism(who)},
              {"memory_at", facts.parking->residence(who.id)},
              {"park_asked", who.park_asked},
              {"clock_ahead_s", static_cast<double>(who.clock_ahead) / 1e9},
              {"held", client.threads_wait_because().empty() ? "device" : "thread"},
              {"threads_wait_because", client.threads_wait_because()},
              {"mode", mode_text(mode_of(who, facts.config->gpu_mode, facts.mps->state()))},
              {"mode_told", who.mode_told},
              {"managed", client.managed() && !client.refused},
              {"reason", client.refused ? "refused by the policy" : client.unmanaged_reason()},
              {"connected", client.connected},
              {"unobserved", unobserved},
              {"sparse", client.sparse()},
              {"driver_version", who.driver_version},
              {"counters", counters_json(client)},
              {"devices", json::array()}});
  return all;
}

using MemoryViews = std::map<std::pair<core::ClientId, uint32_t>, MemoryAccounts::View>;

void add_memory(ClientOnDevice& row, std::string& group, const Client& client, uint32_t device,
                const MemoryViews& views) {
  if (device >= ipc::kDevices) return;
  row.memory_bytes = memory_used(client, device);
  row.memory_refused = memory_refused(client, device);
  const auto view = views.find({client.identity().id, device});
  if (view == views.end()) return;
  row.memory_limit_bytes = view->second.limit;
  row.memory_group_bytes = view->second.limit > 0 ? view->second.others + row.memory_bytes : 0;
  group = view->second.group;
}

// Rounds, so that 0.3 is shown as it was written: it was stored as a float.
double part(double of_peak) { return std::round(of_peak * 1e6) / 1e6; }

json limit_json(float max) { return max > 0 ? json(part(static_cast<double>(max))) : json(); }

// The parts of the GPU's time that the client's rule gives it, and that it got over the last 1, 10
// and 60 seconds; null: the rule gives none.
json compute_json(const core::ClientStatus& status) {
  if (status.view.request == 0 && status.view.limit == 0) return nullptr;
  return {{"request", part(status.view.request)},
          {"limit", part(status.view.limit)},
          {"got", status.got},
          {"short", status.short_of_request()},
          {"over", status.over_limit()}};
}

// The channels that the client's rule limits, with their use beside others; null: unknown.
json ceilings_json(const core::Ceiling::Statuses& statuses) {
  json all = json::array();
  for (const core::CeilingStatus& status : statuses) {
    if (status.max == 0) continue;
    all.push_back({{"channel", core::kChannelNames[core::index_of(status.channel)]},
                   {"max", part(status.max)},
                   {"use", status.use ? json(part(*status.use)) : json()},
                   {"unknown", part(status.unknown)}});
  }
  return all;
}

json on_device_json(const Client& client, uint32_t index, const core::ClientStatus& status,
                    const ServerFacts& facts, bool owned, const MemoryViews& views) {
  ClientOnDevice row(status);
  std::string group;
  const core::ClientId id = status.view.id;
  const auto gpu = static_cast<uint8_t>(index);
  add_memory(row, group, client, facts.memory->device_on(id, gpu), views);
  json device = metrics_json(kClientDeviceMetrics, row);
  device.update({{"device", index},
                 {"memory_limited_as", owned ? group : ""},
                 {"active", status.view.active},
                 {"allowed", allowed_text(status.view.allowed)},
                 {"profiled", status.profiled},
                 {"waits", waits_json(status.waits)},
                 {"stops_not_because", stops_not_because(client.can_stop(gpu))},
                 {"compute", compute_json(status)},
                 {"ceilings", ceilings_json(status.ceilings)}});
  device.update(promises_json(status));
  return device;
}

using nlohmann::json;

json seen(float us) {
  if (us < 0) return "not asked";
  return us == static_cast<float>(core::kUnlimitedUs) ? json("unlimited")
                                                      : json(static_cast<double>(us));
}

// A scheduler numbers its policies by itself. The history's number is known only for the present
// one.
json generation_json(uint32_t of, uint32_t current, const Engine& engine) {
  return of == current ? json(engine.policy.generation().number) : json();
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
  return {{"kernel", wait.kernel}, {"waited_us", wait.waited_us},
          {"placed", wait.placed}, {"withheld", wait.withheld},
          {"early", wait.early},   {"held", held_json(wait.held, current, engine)}};
}

// Hides the names: a policy's reason may name clients or kernels, too.
void hide_names(core::Explanation& why) {
  for (auto* const waits : {&why.now, &why.past}) {
    for (core::WaitTold& wait : *waits) {
      wait.kernel = wait.why = wait.reason = wait.held.reason = "";
    }
  }
}

}  // namespace

std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

json terms_json(const Terms& terms) {
  json slo = nullptr;
  if (terms.slo_ms > 0) slo = terms.slo_ms;
  return {{"share", terms.share},
          {"slo_ms", slo},
          {"slowdown_max", limit_json(terms.slowdown_max.mean)},
          {"slowdown_p99_max", limit_json(terms.slowdown_max.p99)},
          {"issue_max", limit_json(terms.channel_max.issue)},
          {"l2_max", limit_json(terms.channel_max.l2)},
          {"dram_max", limit_json(terms.channel_max.dram)},
          {"fail", terms.fail_closed ? "closed" : "open"},
          {"sms", terms.sms},
          {"request", limit_json(terms.compute.request)},
          {"limit", limit_json(terms.compute.limit)},
          {"memory", terms.memory},
          {"park", terms.park}};
}

json promises_json(const core::ClientStatus& status) {
  const auto one = [](const core::PromiseStatus& promise) -> json {
    if (promise.slowdown_max == 0) return nullptr;
    const std::string_view channel = channel_text(promise);
    return {{"slowdown_max", part(promise.slowdown_max)},
            {"slowdown", promise.slowdown > 0 ? json(promise.slowdown) : json()},
            {"balance_us", promise.balance_us},
            {"blocks", promise.blocks},
            {"broken", promise.broken},
            {"broken_now", promise.broken_now},
            {"broken_by", channel.empty() ? json() : json(channel)}};
  };
  return {{"promise", one(status.promise)}, {"promise_p99", one(status.promise_p99)}};
}

json bound_json(const core::ClientStatus& status, bool named) {
  const core::Violation& worst = status.worst;
  json by;  // null: no bound was exceeded
  if (worst.by != 0) {
    by = {{"client", worst.by},
          {"kernel", named ? status.worst_kernel : ""},
          {"lasted_us", worst.lasted_us},
          {"bound_us", worst.bound_us},
          {"before_us", worst.before_us},
          {"predicted_us", worst.predicted_us},
          {"measured_us", worst.measured_us}};
  }
  return {{"exceeded_us_max", worst.over_us()}, {"exceeded_by", by}};
}

json ps_json(const Engine& engine, const ServerFacts& facts, const Reader& reader,
             core::ClientId after, size_t room) {
  // The list of attached processes is complete, however many clients are described.
  json pids = json::array();
  std::map<core::ClientId, const Client*> clients;
  for (const auto& [id, client] : engine.roster.all()) {
    if (client->identity().pid != 0) pids.push_back(client->identity().pid);
    if (id > after) clients[id] = client.get();
  }
  const MemoryViews views = facts.memory->views();
  std::multimap<core::ClientId, std::pair<uint8_t, core::ClientStatus>> statuses;
  for (const auto& scheduler : engine.devices.schedulers()) {
    if (!scheduler) continue;
    for (core::ClientStatus& status : scheduler->view().clients(monotonic_now())) {
      const core::ClientId id = status.view.id;
      statuses.emplace(id, std::pair(scheduler->config().device, std::move(status)));
    }
  }
  json list = json::array();
  size_t bytes = dump(pids).size();
  for (const auto& [id, client] : clients) {
    json one = client_json(*client, facts, client == engine.reports.unobserved(), reader);
    for (auto [it, end] = statuses.equal_range(id); it != end; ++it) {
      const auto& [index, status] = it->second;
      one["devices"].push_back(
          on_device_json(*client, index, status, facts, reader.owns(client->identity()), views));
      const Client* const by = engine.roster.find(status.worst.by);
      const bool named = by != nullptr ? reader.owns(by->identity()) : reader.all;
      one["devices"].back().update(bound_json(status, named));
      one["devices"].back()["measure_runs"] = engine.devices.on(index).config().measure_runs;
    }
    bytes += dump(one).size() + 1;
    if (bytes > room) break;
    list.push_back(std::move(one));
  }
  const bool truncated = list.size() < clients.size();
  return {{"clients", std::move(list)},
          {"pids", std::move(pids)},
          {"total", engine.roster.all().size()},
          {"truncated", truncated}};
}

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

json explain_json(const Engine& engine, core::ClientId id, bool named) {
  json devices = json::array();
  for (const auto& scheduler : engine.devices.schedulers()) {
    if (!scheduler) continue;
    core::Explanation why = scheduler->view().explain(id);
    if (!why.known) continue;
    if (!named) hide_names(why);
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
    devices.push_back({{"device", scheduler->config().device},
                       {"policy", engine.policy.generation().name},
                       {"generation", engine.policy.generation().number},
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
  const core::Stall& last = scheduler.view().last_stall();
  const core::StallCounts& counts = scheduler.view().stalls();
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

}  // namespace heddle::server
