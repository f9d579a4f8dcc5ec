#include "daemon/server/requests.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "daemon/server/explain.h"
#include "daemon/server/metrics.h"
#include "daemon/server/rules.h"
#include "daemon/server/shadows.h"
#include "ipc/limits.h"

namespace heddle::server {
namespace {

using nlohmann::json;

// Room in a reply for the message around the document.
constexpr size_t kDocumentMax = ipc::kReplyBytes - 1024;

constexpr size_t kTextMax = 256;  // of what `heddle ps` shows of a path or a command

// Text that clients chose may be any bytes; JSON has only UTF-8.
std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Reply done(const json& document) { return {true, "", dump(document)}; }

Reply failed(const std::string& error, const char* code = "failed") {
  return {false, error, dump({{"code", code}})};
}

constexpr size_t kGroupsMost = 64;
constexpr size_t kBoundsMost = 64;  // in a status; `heddle ps` has all

// How long others may hold up one of its gaps, and how often it was longer.
json bound_json(const core::ClientStatus& status) {
  const core::Violation& worst = status.worst;
  json by;  // null: none was longer
  if (worst.by != 0) {
    by = {{"client", worst.by},
          {"kernel", status.worst_kernel},
          {"lasted_us", worst.lasted_us},
          {"bound_us", worst.bound_us},
          {"before_us", worst.before_us},
          {"predicted_us", worst.predicted_us},
          {"measured_us", worst.measured_us}};
  }
  return {{"exceeded_us_max", worst.over_us()}, {"exceeded_by", by}};
}

// The histogram's buckets, without the empty ones at its end (core/waits.h has their bounds).
json waits_json(const core::Waits& waits) {
  const core::Waits::Counts& counts = waits.counts();
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](uint64_t n) { return n != 0; });
  return {{"counts", std::vector<uint64_t>(counts.begin(), last.base())},
          {"sum_us", waits.sum_us()},
          {"p50_us", core::quantile_us(counts, 0.5)},
          {"p99_us", core::quantile_us(counts, 0.99)}};
}

// What its rule promised, and how it was kept; null: nothing.
json promise_json(const core::PromiseStatus& promise) {
  if (promise.slowdown_max == 0) return nullptr;
  json channel;
  if (promise.channel) channel = core::kChannelNames[core::index_of(*promise.channel)];
  return {{"slowdown_max", promise.slowdown_max},
          {"slowdown", promise.slowdown > 0 ? json(promise.slowdown) : json()},
          {"balance_us", promise.balance_us},
          {"blocks", promise.blocks},
          {"broken", promise.broken},
          {"broken_by", channel}};
}

json counters_json(const Client& client) {
  const ClientCounts counts = counts_of(client);
  json all = metrics_json(kClientMetrics, counts);
  all["self"] = metrics_json(kSelfMetrics, counts);
  return all;
}

json terms_json(const Terms& terms) {
  json window = nullptr;  // no limit
  if (terms.window_us != core::kWindowLeased) window = terms.window_us;
  json slo = nullptr;
  if (terms.slo_ms > 0) slo = terms.slo_ms;
  return {{"share", terms.share},
          {"slo_ms", slo},
          {"slowdown_max", terms.slowdown_max > 0 ? json(terms.slowdown_max) : json()},
          {"window_max_us", window},
          {"fail", terms.fail_closed ? "closed" : "open"},
          {"sms", terms.sms},
          {"memory", terms.memory}};
}

const char* mode_text(GpuMode mode) {
  return mode == GpuMode::kMps ? "mps" : mode == GpuMode::kTimeslice ? "timeslice" : "unknown";
}

// What a process is, and for whom it works, is its user's and the administrator's to know; a
// container sees no command line but its own. Arguments may hold secrets.
struct Reader {
  explicit Reader(const Asker& asker)
      : uid(asker.peer.uid), local(is_local(asker.peer)), all(is_privileged(asker.peer)) {}
  bool owns(const Identity& who) const { return all || (uid == who.uid && uid != 0); }

  uid_t uid;
  bool local, all;
};

// Which limit holds its device memory, by whose hand, and how near it is.
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
              {"partition", who.partition},
              {"sm_count", who.sms},
              {"memory_asked", who.memory_asked},
              {"memory_by", memory_mechanism(who)},
              {"clock_ahead_s", static_cast<double>(who.clock_ahead) / 1e9},
              {"mode", mode_text(mode_of(who, facts.config->gpu_mode, facts.mps->state()))},
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

json ps_json(const Engine& engine, const ServerFacts& facts, const Reader& reader) {
  const MemoryViews views = facts.memory->views();
  std::map<core::ClientId, json> clients;
  for (const auto& [id, client] : engine.clients()) {
    clients[id] = client_json(*client, facts, client.get() == engine.unobserved(), reader);
  }
  for (size_t index = 0; index < engine.devices().size(); ++index) {
    const core::Scheduler* scheduler = engine.devices()[index].scheduler.get();
    if (scheduler == nullptr) continue;
    for (const core::ClientStatus& status : scheduler->clients()) {
      const auto it = clients.find(status.view.id);
      if (it == clients.end()) continue;
      ClientOnDevice row{status, status.view.queued};
      std::string group;
      const core::ClientId id = status.view.id;
      add_memory(row, group, *engine.clients().at(id),
                 facts.memory->device_on(id, static_cast<uint8_t>(index)), views);
      json device = metrics_json(kClientDeviceMetrics, row);
      device.update(
          {{"device", index},
           {"memory_limited_as", reader.owns(engine.clients().at(id)->identity()) ? group : ""},
           {"active", status.view.active},
           {"window", window_json(status.view.window_us)},
           {"profiled", status.profiled},
           {"waits", waits_json(status.waits)},
           {"promise", promise_json(status.promise)},
           {"measure_runs", scheduler->config().measure_runs}});
      device.update(bound_json(status));
      it->second["devices"].push_back(std::move(device));
    }
  }
  // Whoever asks who is attached needs all of them, however many are described.
  json pids = json::array();
  for (const auto& [id, client] : engine.clients()) {
    if (client->identity().pid != 0) pids.push_back(client->identity().pid);
  }
  json list = json::array();
  size_t bytes = dump(pids).size();
  for (auto& [id, client] : clients) {
    bytes += dump(client).size() + 1;
    if (bytes > kDocumentMax) break;
    list.push_back(std::move(client));
  }
  const bool truncated = list.size() < clients.size();
  return {{"clients", std::move(list)},
          {"pids", std::move(pids)},
          {"total", clients.size()},
          {"truncated", truncated}};
}

// Of each client whom others may hold up.
json bounds_json(const core::Scheduler& scheduler) {
  json bounds = json::array();
  for (const core::ClientStatus& status : scheduler.clients()) {
    if (status.added_us_max == 0 || bounds.size() == kBoundsMost) continue;
    const json counted = metrics_json(kClientDeviceMetrics, {status, 0});
    json bound{{"client", status.view.id}};
    for (const char* key : {"added_us_max", "gaps_filled", "gaps_exceeded"}) {
      bound[key] = counted.at(key);
    }
    bound.update(bound_json(status));
    bound["promise"] = promise_json(status.promise);
    bounds.push_back(std::move(bound));
  }
  return bounds;
}

json device_json(const Engine::Device& device, const GpuNumbers& gpus, const PolicyStore& store) {
  const core::Scheduler& scheduler = *device.scheduler;
  const core::Config& config = scheduler.config();
  json all = metrics_json(kDeviceGauges, {config.sm_total, config.switch_us, scheduler.waiting()});
  all.update({{"index", config.device},
              {"uuid", gpus.text(config.device)},
              {"policy", device.policy ? store.describe(*device.policy) : json::object()},
              {"bounds", bounds_json(scheduler)},
              {"stalls", stall_json(scheduler)},
              {"stats", metrics_json(kDeviceMetrics, scheduler.stats())}});
  return all;
}

PolicyCounts policy_counts(const Engine& engine) {
  return {engine.policy_decisions(), engine.policy_faults(), engine.counters().reloads,
          engine.counters().reload_errors};
}

json policy_json(core::TimeNs now, const ServerFacts& facts, const Engine& engine,
                 const PolicyStore& store) {
  const Generation& g = engine.generation();
  json policy = store.status();
  policy["name"] = g.name;
  policy["path"] = g.path;
  policy["hash"] = g.hash;
  policy["error"] = engine.policy_error();
  policy.update(metrics_json(kPolicyMetrics, policy_counts(engine)));
  policy["good"] = engine.policy_is_good();
  policy["generation"] = g.number;
  policy["loaded_by"] = {{"how", g.by.how}, {"uid", g.by.uid}, {"pid", g.by.pid}};
  policy["trial"] = trial_json(now, facts, engine);
  policy["faulted"] = nullptr;  // what was quarantined, until another is loaded
  if (const auto& faulted = engine.quarantined()) {
    policy["faulted"] = {{"name", faulted->generation.name},
                         {"path", faulted->generation.path},
                         {"hash", faulted->generation.hash},
                         {"fault", faulted->fault}};
  }
  return policy;
}

json config_json(core::TimeNs now, const ServerFacts& facts) {
  json unresolved = json::array();
  for (const Rule& rule : *facts.rules) {
    if (!rule.unresolved()) continue;
    const bool user = !rule.user.empty() && !rule.uid;
    unresolved.push_back(
        {{"rule", rule.name}, {user ? "user" : "group", user ? rule.user : rule.group}});
  }
  return {{"file", facts.config->file},
          {"rules", facts.rules->size()},
          {"read_s_ago", static_cast<double>(now - facts.config_read_at) / 1e9},
          {"error", facts.config_error},
          {"needs_restart", facts.config_restarts},
          {"unresolved", std::move(unresolved)}};
}

// The limits that hold somebody now. Their names may tell labels and cgroups.
json memory_json(const Engine& engine, const MemoryAccounts& memory, bool named) {
  json all = json::array();
  for (const MemoryAccounts::Group& group : memory.groups()) {
    if (all.size() == kGroupsMost) break;
    all.push_back({{"limited_as", named ? group.name : ""},
                   {"gpu", group.gpu},
                   {"uuid", engine.gpus().text(group.gpu)},
                   {"limit_bytes", group.limit},
                   {"used_bytes", group.used},
                   {"granted_bytes", group.granted},
                   {"clients", group.members}});
  }
  return all;
}

json status_json(core::TimeNs now, const ServerFacts& facts, const Engine& engine,
                 const PolicyStore& store, const ProfileStore& profiles, bool named) {
  json devices = json::array();
  for (const Engine::Device& device : engine.devices()) {
    if (device.scheduler) devices.push_back(device_json(device, engine.gpus(), store));
  }
  return {{"pid", getpid()},
          {"version", HEDDLE_VERSION},
          {"protocol", ipc::kProtocolVersion},
          {"uptime_s", static_cast<double>(now - facts.started_at) / 1e9},
          {"socket", facts.socket},
          {"mode", engine.mps() ? "mps" : "timeslice"},
          {"mps", mps_json(*facts.mps)},
          {"spin_us", facts.config->spin_us},
          {"bypass", engine.bypass()},
          {"config", config_json(now, facts)},
          {"policy", policy_json(now, facts, engine, store)},
          {"profiles", profiles.status()},
          {"devices", std::move(devices)},
          {"clients", engine.clients().size()},
          {"refusals", refusals_json(now, facts.refused, named)},
          {"memory", memory_json(engine, *facts.memory, named)},
          {"counters",
           metrics_json(kDaemonMetrics, {engine.counters(), facts.connections, facts.refused.count,
                                         facts.log->lost(), facts.naps})}};
}

// What a program that starts now must know of a managed MPS: its pipe directory, "" if there is
// none; and whose programs have it (-1: nobody's but the asker's), for whose end it would wait in
// cuInit.
json mps_for_program(const MpsWatch& mps, uid_t uid) {
  int64_t served = -1;
  for (const MpsServer& server : mps.state().servers) {
    const auto is_own = [&](const MpsProcess& client) { return client.uid == server.uid; };
    // Unless it was told to serve all users.
    if (server.uid != uid && !server.clients.empty() &&
        std::all_of(server.clients.begin(), server.clients.end(), is_own)) {
      served = server.uid;
    }
  }
  return {{"pipe_directory", mps.wanted() ? mps.settings().pipe_directory : ""},
          {"served_uid", mps.wanted() ? served : -1}};
}

Reply refusal() {
  return failed(
      "refused: only root and the daemon's own user may change anything, and nobody from inside of "
      "a container; ask an administrator, or use sudo",
      "refused");
}

}  // namespace

bool is_policy_order(Request::Kind kind) {
  return kind == Request::Kind::kPolicyShadow || kind == Request::Kind::kPolicyPromote ||
         kind == Request::Kind::kPolicyList || kind == Request::Kind::kPolicyLoad ||
         kind == Request::Kind::kPolicySet || kind == Request::Kind::kPolicyRollback;
}

Reply after_policy_change(const Result<void>& result, core::TimeNs now, const ServerFacts& facts,
                          const Engine& engine, const PolicyStore& store) {
  if (!result) return failed(result.error().message);
  return done({{"policy", policy_json(now, facts, engine, store)}});
}

// What does not fit is left out: a directory may hold any number of files.
Reply policy_list(json policies, const Engine& engine) {
  size_t bytes = kTextMax;
  json list = json::array();
  for (json& policy : policies) {
    bytes += dump(policy).size() + 1;
    if (bytes > kDocumentMax) break;
    list.push_back(std::move(policy));
  }
  const bool truncated = list.size() < policies.size();
  return done({{"policies", std::move(list)},
               {"running", engine.generation().name},
               {"truncated", truncated}});
}

json mps_json(const MpsWatch& mps) {
  const MpsState& state = mps.state();
  const auto processes = [](const std::vector<MpsProcess>& list) {
    json all = json::array();
    for (const MpsProcess& p : list) {
      all.push_back({{"pid", p.pid}, {"uid", p.uid != kUnseenUid ? json(p.uid) : json()}});
    }
    return all;
  };
  json servers = json::array();
  for (const MpsServer& server : state.servers) {
    servers.push_back(
        {{"pid", server.pid}, {"uid", server.uid}, {"clients", processes(server.clients)}});
  }
  return {{"managed", mps.settings().manage},
          {"wanted", mps.wanted()},
          {"pipe_directory", mps.settings().pipe_directory},
          {"log_directory", mps.settings().log_directory},
          {"answers", state.answers},
          {"pid", state.control},
          {"shares_cgroup", state.shares_cgroup},
          {"servers", std::move(servers)},
          {"waiting", processes(state.waiting)},
          {"error", state.error}};
}

Reply answer(const Request& request, const Asker& asker, core::TimeNs now, ServerFacts& facts,
             Engine& engine, PolicyStore& store, const ProfileStore& profiles) {
  using Kind = Request::Kind;
  const bool changes =
      request.kind == Kind::kPolicyLoad || request.kind == Kind::kPolicySet ||
      request.kind == Kind::kBypass || request.kind == Kind::kRecord ||
      request.kind == Kind::kProfile || request.kind == Kind::kPolicyRollback ||
      request.kind == Kind::kPolicyShow || request.kind == Kind::kPolicyKeep ||
      request.kind == Kind::kPolicyShadow || request.kind == Kind::kPolicyShadowTold ||
      request.kind == Kind::kPolicyShadowStop || request.kind == Kind::kPolicyPromote ||
      (request.kind == Kind::kMps && request.mps != Request::MpsOrder::kStatus);
  if (changes && !is_privileged(asker.peer)) return refusal();
  switch (request.kind) {
    case Kind::kPs:
      return done(ps_json(engine, facts, Reader(asker)));
    case Kind::kStatus:
      return done(status_json(now, facts, engine, store, profiles, is_privileged(asker.peer)));
    case Kind::kBypass:
      if (request.bypass != engine.bypass()) facts.log->warning("bypass", {{"on", request.bypass}});
      engine.set_bypass(request.bypass, now);
      return done({{"bypass", engine.bypass()}});
    case Kind::kRecord:  // the server adds the memory
      return done({{"version", HEDDLE_VERSION},
                   {"profiles", profiles.status()},
                   {"mode", engine.mps() ? "mps" : "timeslice"},
                   {"ps", ps_json(engine, facts, Reader(asker))}});
    case Kind::kProfile:  // the server makes these
    case Kind::kPolicyList:
    case Kind::kPolicyLoad:
    case Kind::kPolicySet:
    case Kind::kPolicyRollback:
    case Kind::kPolicyShow:
    case Kind::kPolicyShadow:
      return done(json::object());
    case Kind::kPolicyShadowTold:  // the server adds the memory
      if (!engine.shadow()) return failed("policy shadow: no candidate ran; name a file");
      return done(json::object());
    case Kind::kPolicyPromote:
      if (engine.shadow_running()) return done(json::object());
      return failed("policy promote: no candidate runs beside the policy; heddle policy shadow");
    case Kind::kPolicyShadowStop:
      if (!engine.shadow_running()) return failed("policy shadow: no candidate runs");
      engine.end_shadow("stopped by uid " + std::to_string(asker.peer.uid));
      return done({{"stopped", true}});
    case Kind::kPolicyHistory:
      return done({{"generations", store.history()}, {"running", engine.generation().number}});
    case Kind::kPolicyKeep:
      if (!facts.trial || facts.trial->generation != engine.generation().number) {
        return failed("policy keep: what runs was not loaded for a while; it stays anyway");
      }
      facts.trial.reset();
      facts.log->info("policy_kept", {{"generation", engine.generation().number},
                                      {"uid", asker.peer.uid},
                                      {"pid", asker.peer.pid}});
      return done({{"policy", policy_json(now, facts, engine, store)}});
    case Kind::kExplain: {
      json why = explain_json(engine, request.client);
      if (why.is_null()) return failed("explain: no such client; see heddle ps");
      return done(why);
    }
    case Kind::kMps:  // the server carries orders out
      return done(mps_json(*facts.mps));
    case Kind::kEffective: {
      // The asking process becomes the program: all but its executable is the program's already.
      Origin origin = origin_of(asker.socket, asker.peer);
      origin.exe = request.command;
      const Grade grade =
          server::grade(*facts.rules, geteuid(), {origin, request.label, request.priority, ""});
      json effective = terms_json(grade.terms);
      effective["priority"] = grade.priority;
      effective["priority_text"] = priority_text(grade.priority);
      effective["rule"] = grade.rule;
      effective["clients"] = engine.clients().size();
      effective["mps"] = mps_for_program(*facts.mps, asker.peer.uid);
      return done(effective);
    }
  }
  return failed("request: unknown");
}

}  // namespace heddle::server
