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

bool Engine::set_policy(core::Scheduler& scheduler, core::Policy* policy,
                        const Generation& generation, core::TimeNs now) {
  bool ok = true;
  const std::span<const core::Decision> decisions = scheduler.set_policy(policy, now, ok);
  if (ok && recorder_ != nullptr) {
    recorder_->policy(policy_record(scheduler.config().device, policy, generation, now));
  }
  apply(decisions);
  return ok;
}

// Whoever cannot start it is served by the built-in.
void Engine::start_policy(Device& device, core::TimeNs now) {
  if (!generation_.make) return;
  Result<std::unique_ptr<core::Policy>> policy = generation_.make();
  bool ok = policy.has_value();
  if (ok && *policy) ok = set_policy(*device.scheduler, policy->get(), generation_, now);
  if (ok) {
    device.policy = std::move(*policy);
  } else {
    policy_error_ = policy ? generation_.path + ": init failed" : policy.error().message;
    log_.error("policy_failed",
               {{"device", device.scheduler->config().device}, {"error", policy_error_}});
  }
}

void Engine::set_bypass(core::Scheduler& scheduler, bool on, core::TimeNs now) {
  if (recorder_ != nullptr) recorder_->bypass({scheduler.config().device, now, on});
  apply(scheduler.set_bypass(on, now));
}

trace::PolicyRecord Engine::policy_record(uint8_t device, const core::Policy* policy,
                                          const Generation& generation, core::TimeNs now) const {
  trace::PolicyRecord record{device, now, generation.name, generation.path, generation.hash};
  if (policy == nullptr) return record;
  for (const auto& param : store_.describe(*policy).value("params", nlohmann::json::array())) {
    record.params[param.at("name").get<std::string>()] = param.at("value");
  }
  return record;
}

void Engine::record(trace::Recorder* recorder, core::TimeNs now) {
  observe_each(now);
  recorder_ = recorder;
  if (recorder == nullptr) return;
  for (const Device& device : devices_) {
    if (!device.scheduler) continue;
    const core::Scheduler& scheduler = *device.scheduler;
    const uint8_t index = scheduler.config().device;
    recorder->device(scheduler.config(), now, scheduler.stats().events == 0);
    if (device.policy) {
      recorder->policy(policy_record(index, device.policy.get(), generation_, now));
    }
    if (bypass_) recorder->bypass({index, now, true});
    for (const Client* client : polled_) {
      if (!client->on_gpu(index)) continue;
      // What was measured of its task: the recording alone would have one launch in 127 timed.
      const bool measured = scheduler.measured(client->identity().id);
      const core::TaskProfile known = measured ? profile(*client) : core::TaskProfile{};
      for (const core::Event& event :
           client->introduction(index, now, measured ? &known : nullptr)) {
        recorder->event(event, true);
      }
    }
  }
}

Result<void> Engine::adopt(const Generation& generation, core::TimeNs now) {
  observe_each(now);
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
    if (set_policy(*devices_[i].scheduler, fresh[i].get(), generation, now)) continue;
    for (size_t done = 0; done < i; ++done) {  // back to what ran: it was accepted once
      if (!devices_[done].scheduler) continue;
      set_policy(*devices_[done].scheduler, devices_[done].policy.get(), generation_, now);
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
  for (const std::string& why : generation.dropped) {
    log_.warning("policy_param_dropped", {{"path", generation.path}, {"why", why}});
  }
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
  if (*changed && generation_.make && (*changed)->hash == generation_.hash) {
    mistake_undone(now);
  } else if (*changed) {
    (void)adopt(**changed, now);
  } else {
    (void)policy_failed(std::move(changed->error()));
  }
}

// What runs is what its file says again: it goes on, with its state, and starts where it could not.
void Engine::mistake_undone(core::TimeNs now) {
  observe_each(now);
  policy_error_.clear();
  for (Device& device : devices_) {
    if (device.scheduler && !device.policy) start_policy(device, now);
  }
}

void Engine::check_quarantine(core::TimeNs now) {
  std::string fault;
  bool quarantined = false;
  for (uint8_t index = 0; index < devices_used_; ++index) {
    Device& device = devices_[index];
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
  observe_each(now);
  for (Device& device : devices_) {
    if (device.scheduler) set_bypass(*device.scheduler, on, now);
  }
  for (Client* client : polled_) client->set_bypass(on);
}

}  // namespace heddle::server
