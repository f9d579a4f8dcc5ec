// Policy generations: how one takes the place of another on every device, between two decisions.
#include <nlohmann/json.hpp>

#include "daemon/server/engine.h"

namespace heddle::server {

Result<void> Engine::policy_failed(Error error) {
  ++counters_.reload_errors;
  policy_error_ = error.message;
  log_.error("policy_not_loaded", {{"error", error.message}, {"still_running", generation_.name}});
  return tl::unexpected<Error>(std::move(error));
}

Result<void> Engine::adopt(const Generation& generation, core::TimeNs now) {
  // All instances before any swap: what cannot be made must not leave devices of two minds.
  std::array<std::unique_ptr<core::Policy>, ipc::kDevices> fresh;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].scheduler || !generation.make) continue;
    Result<std::unique_ptr<core::Policy>> made = generation.make();
    if (!made) return policy_failed(std::move(made.error()));
    fresh[i] = std::move(*made);
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].scheduler) continue;
    bool ok = true;
    apply(devices_[i].scheduler->set_policy(fresh[i].get(), now, ok));
    if (ok) continue;
    for (size_t done = 0; done < i; ++done) {  // back to what ran: it was accepted once
      if (!devices_[done].scheduler) continue;
      apply(devices_[done].scheduler->set_policy(devices_[done].policy.get(), now, ok));
    }
    return policy_failed({(generation.path.empty() ? generation.name : generation.path) +
                          ": init failed on device " + std::to_string(i) +
                          "; the running policy stays"});
  }
  for (size_t i = 0; i < devices_.size(); ++i) devices_[i].policy = std::move(fresh[i]);
  generation_ = generation;
  policy_error_.clear();
  ++counters_.reloads;
  store_.adopted(generation);
  log_.info("policy_live",
            {{"policy", generation.name}, {"path", generation.path}, {"hash", generation.hash}});
  return {};
}

Result<void> Engine::load_policy(const std::string& name, bool pardon, core::TimeNs now) {
  Result<Generation> loaded = store_.load(name, pardon);
  return loaded ? adopt(*loaded, now) : policy_failed(std::move(loaded.error()));
}

Result<void> Engine::set_params(const std::string& name, const PolicyStore::Params& params,
                                core::TimeNs now) {
  Result<Generation> changed = store_.with_params(name, params);
  // Refused parameters say nothing against the policy that runs.
  if (!changed) return tl::unexpected<Error>(std::move(changed.error()));
  return adopt(*changed, now);
}

void Engine::reload_changed(core::TimeNs now) {
  std::optional<Result<Generation>> changed = store_.changed();
  if (!changed) return;
  // An error is already logged and kept for `heddle status`; nobody waits for an answer.
  if (*changed) {
    (void)adopt(**changed, now);
  } else {
    (void)policy_failed(std::move(changed->error()));
  }
}

void Engine::check_quarantine(core::TimeNs now) {
  std::string fault;
  bool quarantined = false;
  for (Device& device : devices_) {
    if (!device.scheduler || !device.scheduler->take_quarantined()) continue;
    quarantined = true;
    if (device.policy) fault = store_.describe(*device.policy).value("fault", "");
  }
  if (!quarantined) return;
  const Generation faulty = generation_;
  if (Result<void> kept = store_.quarantine(faulty.hash); !kept) {
    log_.error("state_not_written", {{"error", kept.error().message}});
  }
  (void)adopt(Generation{}, now);  // the built-in has no init that could fail
  policy_error_ = faulty.path + ": quarantined after " + std::to_string(config_.core.fault_max) +
                  " faults, the last: " + fault +
                  "; the built-in decides until another version is loaded";
  log_.error(
      "policy_quarantined",
      {{"policy", faulty.name}, {"path", faulty.path}, {"hash", faulty.hash}, {"fault", fault}});
}

void Engine::set_bypass(bool on, core::TimeNs now) {
  if (on != bypass_) log_.warning("bypass", {{"on", on}});
  bypass_ = on;
  for (Device& device : devices_) {
    if (device.scheduler) apply(device.scheduler->set_bypass(on, now));
  }
  for (Client* client : polled_) client->set_bypass(on);
}

}  // namespace heddle::server
