#include "daemon/server/requests.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/base/version.h"
#include "daemon/server/metrics.h"
#include "daemon/server/ps.h"
#include "daemon/server/rules.h"
#include "ipc/limits.h"

namespace heddle::server {
namespace {

using nlohmann::json;

Reply done(const json& document) { return {true, "", dump(document)}; }

Reply failed(const std::string& error, const char* code = "failed") {
  return {false, error, dump({{"code", code}})};
}

constexpr size_t kGroupsMost = 64;
constexpr size_t kBoundsMost = 64;  // in a status; `heddle ps` has all

// The bounds of clients whose gaps others may delay, or that have a promise.
json bounds_json(const core::Scheduler& scheduler, bool named) {
  json bounds = json::array();
  for (const core::ClientStatus& status : scheduler.view().clients()) {
    const bool promised = status.promise.slowdown_max > 0 || status.promise_p99.slowdown_max > 0;
    if ((status.added_us_max == 0 && !promised) || bounds.size() == kBoundsMost) continue;
    const json counted = metrics_json(kClientDeviceMetrics, ClientOnDevice(status));
    json bound{{"client", status.view.id}};
    for (const char* key : {"added_us_max", "gaps_filled", "gaps_exceeded"}) {
      bound[key] = counted.at(key);
    }
    bound.update(bound_json(status, named));
    bound.update(promises_json(status));
    bounds.push_back(std::move(bound));
  }
  return bounds;
}

// Whether kernels on the GPU can be stopped; null: unknown.
json can_stop(const Engine& engine, uint8_t gpu) {
  const StopAnswers& answers = engine.stop_answers;
  const GpuId& id = engine.devices.gpus().id(gpu);
  const bool known = answers.setting() != StopsSetting::kAsked || answers.of(id) != nullptr;
  return known || answers.allows(id) ? json(answers.allows(id)) : json();
}

json stops_json(const StopAnswers& answers) {
  return {{"setting", kStopsWords[static_cast<size_t>(answers.setting())].first},
          {"file", answers.file()},
          {"error", answers.error()},
          {"not_asked", answers.not_asked()},
          {"answers", stops_json(answers.all())}};
}

json device_json(const core::Scheduler& scheduler, const Engine& engine, const PolicyStore& store,
                 bool named) {
  const core::Config& config = scheduler.config();
  const core::Policy* const policy = engine.policy.on(config.device);
  json all =
      metrics_json(kDeviceGauges, {config.sm_total.get(), config.switch_us, scheduler.waiting()});
  all.update({{"index", config.device},
              {"uuid", engine.devices.gpus().text(config.device)},
              {"can_stop", can_stop(engine, config.device)},
              {"policy", policy != nullptr ? store.describe(*policy) : json::object()},
              {"bounds", bounds_json(scheduler, named)},
              {"stalls", stall_json(scheduler)},
              {"stats", metrics_json(kDeviceMetrics, scheduler.stats())}});
  return all;
}

json policy_json(core::TimeNs now, const ServerFacts& facts, const Engine& engine,
                 const PolicyStore& store) {
  const Generation& g = engine.policy.generation();
  json policy = store.status();
  policy["name"] = g.name;
  policy["path"] = g.path;
  policy["hash"] = g.hash;
  policy["error"] = engine.policy.error();
  policy.update(metrics_json(kPolicyMetrics, engine.policy.counts()));
  policy["good"] = engine.policy.is_good();
  policy["generation"] = g.number;
  policy["as_generation"] = g.as;
  policy["loaded_by"] = {{"how", g.by.how}, {"uid", g.by.uid}, {"pid", g.by.pid}};
  policy["trial"] = facts.policy_changes->trial_json(now);
  policy["faulted"] = nullptr;  // the quarantined policy, until another is loaded
  if (const auto& faulted = engine.policy.quarantined()) {
    policy["faulted"] = {{"name", faulted->generation.name},
                         {"path", faulted->generation.path},
                         {"hash", faulted->generation.hash},
                         {"fault", faulted->fault}};
  }
  return policy;
}

json config_json(core::TimeNs now, const ServerFacts& facts, const Generation& policy) {
  json unresolved = json::array(), unkept = json::array();
  for (const Rule& rule : facts.config_changes->rules()) {
    for (std::string& text : unkept_texts(rule, policy)) unkept.push_back(std::move(text));
    if (!rule.unresolved()) continue;
    const bool user = !rule.user.empty() && !rule.uid;
    unresolved.push_back(
        {{"rule", rule.name}, {user ? "user" : "group", user ? rule.user : rule.group}});
  }
  return {{"file", facts.config->file},
          {"conf_d", facts.config_changes->conf_d()},
          {"rules", facts.config_changes->rules().size()},
          {"read_s_ago", static_cast<double>(now - facts.config_changes->read_at()) / 1e9},
          {"error", facts.config_changes->error()},
          {"needs_restart", facts.config_changes->restarts()},
          {"unresolved", std::move(unresolved)},
          {"unkept", std::move(unkept)}};
}

// The refused client and the reason are hidden unless `named`: they tell about other users'
// programs.
json refusals_json(core::TimeNs now, const Connections::Refusals& refused, bool named) {
  return {{"count", refused.count},
          {"last", named ? refused.last : ""},
          {"last_s_ago", static_cast<double>(now - refused.at) / 1e9}};
}

// The limits that have members now. Their names are hidden unless `named`: they may contain labels
// and cgroups.
json memory_json(const Engine& engine, const MemoryAccounts& memory, bool named) {
  json all = json::array();
  for (const MemoryAccounts::Group& group : memory.groups()) {
    if (all.size() == kGroupsMost) break;
    all.push_back({{"limited_as", named ? group.name : ""},
                   {"gpu", group.gpu},
                   {"uuid", engine.devices.gpus().text(group.gpu)},
                   {"limit_bytes", group.limit},
                   {"used_bytes", group.used},
                   {"granted_bytes", group.granted},
                   {"clients", group.members}});
  }
  return all;
}

json profiles_json(const profiles::ProfileStore::Status& status) {
  return {{"directory", status.directory},
          {"gpu", status.gpu},
          {"driver", status.driver},
          {"tasks", status.tasks},
          {"errors", status.errors}};
}

json status_json(core::TimeNs now, const ServerFacts& facts, const Engine& engine,
                 const PolicyStore& store, const ProfileStore& profiles, bool named) {
  json devices = json::array();
  for (const auto& scheduler : engine.devices.schedulers()) {
    if (scheduler) devices.push_back(device_json(*scheduler, engine, store, named));
  }
  return {{"pid", getpid()},
          {"version", version_text()},
          {"protocol", ipc::kProtocolVersion},
          {"uptime_s", static_cast<double>(now - facts.started_at) / 1e9},
          {"socket", facts.socket},
          {"mode", engine.devices.mps() ? "mps" : "timeslice"},
          {"mps", mps_json(*facts.mps)},
          {"stops", stops_json(engine.stop_answers)},
          {"spin_us", facts.config->spin_us},
          {"bypass", engine.devices.bypass()},
          {"state_error", facts.config->state_error.empty() ? facts.policy_changes->unwritten()
                                                            : facts.config->state_error},
          {"config", config_json(now, facts, engine.policy.generation())},
          {"policy", policy_json(now, facts, engine, store)},
          {"profiles", profiles_json(profiles.status())},
          {"devices", std::move(devices)},
          {"clients", engine.roster.all().size()},
          {"refusals", refusals_json(now, facts.connections->refusals(), named)},
          {"memory", memory_json(engine, *facts.memory, named)},
          {"counters",
           metrics_json(kDaemonMetrics,
                        {engine.counters(), engine.mistakes.count(), facts.connections->accepted(),
                         facts.connections->refusals().count, facts.log->lost(), facts.naps})}};
}

// Facts about a managed MPS for a program that starts now: its pipe directory ("": there is none),
// and the user whose programs it would wait for in cuInit (-1: none).
json mps_for_program(const MpsWatch& mps, uid_t uid) {
  int64_t served = -1;
  for (const MpsServer& server : mps.state().servers) {
    const auto is_own = [&](const MpsProcess& client) { return client.uid == server.uid; };
    // A server with clients of several users serves all users, so the program need not wait.
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

// Policies that do not fit into a reply are left out: a directory may hold any number of files.
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
               {"running", engine.policy.generation().name},
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
      return done(ps_json(engine, facts, Reader(asker), request.client, kDocumentMax));
    case Kind::kStatus:
      return done(status_json(now, facts, engine, store, profiles, is_privileged(asker.peer)));
    case Kind::kBypass:
      if (request.bypass != engine.devices.bypass())
        facts.log->warning("bypass", {{"on", request.bypass}});
      engine.set_bypass(request.bypass, now);
      return done({{"bypass", engine.devices.bypass()}});
    case Kind::kRecord:  // the server adds the memory
      return done({{"version", version_text()},
                   {"profiles", profiles_json(profiles.status())},
                   {"mode", engine.devices.mps() ? "mps" : "timeslice"},
                   {"ps", ps_json(engine, facts, Reader(asker), 0, kDocumentMax / 2)}});
    case Kind::kProfile:  // the server makes these
    case Kind::kPolicyList:
    case Kind::kPolicyLoad:
    case Kind::kPolicySet:
    case Kind::kPolicyRollback:
    case Kind::kPolicyShow:
    case Kind::kPolicyShadow:
      return done(json::object());
    case Kind::kPolicyShadowTold:  // the server adds the memory
      if (!engine.policy.candidate().generation())
        return failed("policy shadow: no candidate ran; name a file");
      return done(json::object());
    case Kind::kPolicyPromote:
      if (engine.policy.candidate().running()) return done(json::object());
      return failed("policy promote: no candidate runs beside the policy; heddle policy shadow");
    case Kind::kPolicyShadowStop:
      if (!engine.policy.candidate().running()) return failed("policy shadow: no candidate runs");
      engine.policy.candidate().end("stopped by uid " + std::to_string(asker.peer.uid));
      return done({{"stopped", true}});
    case Kind::kPolicyHistory:
      return done(
          {{"generations", store.history()}, {"running", engine.policy.generation().number}});
    case Kind::kPolicyKeep:
      if (!facts.policy_changes->keep()) {
        return failed("policy keep: what runs was not loaded for a while; it stays anyway");
      }
      facts.log->info("policy_kept", {{"generation", engine.policy.generation().number},
                                      {"uid", asker.peer.uid},
                                      {"pid", asker.peer.pid}});
      return done({{"policy", policy_json(now, facts, engine, store)}});
    case Kind::kExplain: {
      const Client* const client = engine.roster.find(request.client);
      const bool named = client != nullptr && Reader(asker).owns(client->identity());
      json why = explain_json(engine, request.client, named);
      if (why.is_null()) return failed("explain: no such client; see heddle ps");
      return done(why);
    }
    case Kind::kMps:  // the server carries orders out
      return done(mps_json(*facts.mps));
    case Kind::kEffective: {
      // The asking process will exec the program: all its facts but the executable are the
      // program's.
      Origin origin = origin_of(asker.socket, asker.peer);
      origin.exe = request.command;
      const Grade grade = server::grade(facts.config_changes->rules(), geteuid(),
                                        {origin, request.label, request.priority, ""});
      json effective = terms_json(grade.terms);
      effective["priority"] = grade.priority;
      effective["priority_text"] = priority_text(grade.priority);
      effective["rule"] = grade.rule;
      effective["clients"] = engine.roster.all().size();
      effective["mps"] = mps_for_program(*facts.mps, asker.peer.uid);
      return done(effective);
    }
  }
  return failed("request: unknown");
}

}  // namespace heddle::server
