#include "daemon/server/explain.h"

namespace heddle::server {
namespace {

using nlohmann::json;

json seen(float us) {
  if (us < 0) return "not asked";
  return us == static_cast<float>(core::kUnlimitedUs) ? json("unlimited")
                                                      : json(static_cast<double>(us));
}

// The scheduler counts its policies; the history's number is known of the one that runs.
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

// A policy's reason may name what it is for.
void hide_names(core::Explanation& why) {
  for (auto* const waits : {&why.now, &why.past}) {
    for (core::WaitTold& wait : *waits) {
      wait.kernel = wait.why = wait.reason = wait.held.reason = "";
    }
  }
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
