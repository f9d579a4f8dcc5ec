// Policy generations: how one takes the place of another on every device, between two decisions.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/server/engine.h"
#include "daemon/server/explain.h"

namespace heddle::server {
namespace {

using nlohmann::json;

json exit_dump(json policy, const core::LastWords& words, uint8_t device) {
  json queues = json::array(), decisions = json::array();
  for (const core::LastWords::Queued& queue : words.queues) {
    queues.push_back({{"name", queue.name}, {"waiting", queue.waiting}});
  }
  for (const core::Decision& d : words.decisions) {
    decisions.push_back({{"ms_before", static_cast<double>(words.at - d.at) / 1e6},
                         {"client", d.client},
                         {"thread", d.thread},
                         {"by", decider_text(d.decider)},
                         {"sm_set", d.sm_set.bits()}});
  }
  policy.update({{"device", device},
                 {"dump", words.dump},
                 {"queues", std::move(queues)},
                 {"decisions", std::move(decisions)}});
  return policy;
}

}  // namespace

Result<Prepared> prepare(Generation generation, size_t instances) {
  Prepared prepared{std::move(generation), {}};
  for (size_t i = 0; prepared.generation.make && i < instances; ++i) {
    Result<std::unique_ptr<core::Policy>> made = prepared.generation.make();
    if (!made) return tl::unexpected<Error>(std::move(made.error()));
    prepared.instances.push_back(std::move(*made));
  }
  return prepared;
}

size_t Engine::instances_wanted() const {
  return 1 + static_cast<size_t>(std::count_if(devices_.begin(), devices_.end(), [](const auto& d) {
           return d.scheduler != nullptr;
         }));
}

Result<void> Engine::policy_failed(Error error) {
  ++counters_.reload_errors;
  policy_error_ = error.message;
  log_.error("policy_not_loaded", {{"error", error.message}, {"still_running", generation_.name}});
  return tl::unexpected<Error>(std::move(error));
}

void Engine::adopt_policy(core::Scheduler& scheduler, core::Policy* policy,
                          const Generation& generation, core::TimeNs now) {
  const std::span<const core::Decision> decisions = scheduler.adopt_policy(policy, now);
  if (recorder_ != nullptr) {
    recorder_->policy(policy_record(scheduler.config().device, policy, generation, now));
  }
  apply(decisions);
}

std::string Engine::init_failure(const Generation& generation, const core::Policy& policy) const {
  return (generation.path.empty() ? generation.name : generation.path) +
         ": init failed: " + store_.describe(policy).value("fault", "it said no");
}

// Whoever cannot start it is served by the built-in.
void Engine::start_policy(Device& device, core::TimeNs now) {
  if (!generation_.make) return;
  Result<std::unique_ptr<core::Policy>> policy = nullptr;
  if (!spare_.empty()) {
    policy = std::move(spare_.back());
    spare_.pop_back();
  } else {
    policy = generation_.make();  // of what was read then
  }
  if (policy && (!*policy || device.scheduler->start_policy(**policy, now))) {
    device.policy = std::move(*policy);
    if (device.policy) adopt_policy(*device.scheduler, device.policy.get(), generation_, now);
  } else {
    policy_error_ = policy ? init_failure(generation_, **policy) : policy.error().message;
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

Result<void> Engine::adopt(Prepared fresh, core::TimeNs now) {
  check_quarantine(now);  // so that nobody is blamed for a predecessor's faults
  Result<void> adopted = swap(std::move(fresh), false, now);
  if (!adopted) return adopted;
  quarantined_.reset();
  policy_error_.clear();
  ++counters_.reloads;
  const LoadedBy& by = generation_.by;
  log_.info("policy_live", {{"policy", generation_.name},
                            {"path", generation_.path},
                            {"hash", generation_.hash},
                            {"generation", generation_.number},
                            {"how", by.how},
                            {"uid", by.uid},
                            {"pid", by.pid}});
  for (const std::string& why : generation_.dropped) {
    log_.warning("policy_param_dropped", {{"path", generation_.path}, {"why", why}});
  }
  check_quarantine(now);  // it has met the clients
  return adopted;
}

Result<void> Engine::swap(Prepared fresh, bool stands_in, core::TimeNs now) {
  observe_each(now);
  // All instances are made and started before any swap: what fails must not leave devices of two
  // minds, nor need a way back.
  while (fresh.generation.make && fresh.instances.size() < instances_wanted() - 1) {
    Result<std::unique_ptr<core::Policy>> made =
        fresh.generation.make();  // a device came meanwhile
    if (!made) return policy_failed(std::move(made.error()));
    fresh.instances.push_back(std::move(*made));
  }
  std::array<std::unique_ptr<core::Policy>, ipc::kDevices> policies;
  std::array<core::Stats, ipc::kDevices> before;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].scheduler) continue;
    before[i] = devices_[i].scheduler->stats();
    if (!fresh.generation.make) continue;
    policies[i] = std::move(fresh.instances.back());
    fresh.instances.pop_back();
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!policies[i] || devices_[i].scheduler->start_policy(*policies[i], now)) continue;
    return policy_failed({init_failure(fresh.generation, *policies[i]) + "; on device " +
                          std::to_string(i) + ", the running policy stays"});
  }
  end_shadow(fresh.generation.by.how == "promote" ? "promoted" : "another generation went live");
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (device.scheduler) adopt_policy(*device.scheduler, policies[i].get(), fresh.generation, now);
    device.policy = std::move(policies[i]);
    device.before = before[i];
  }
  generation_ = std::move(fresh.generation);
  spare_ = std::move(fresh.instances);
  probation_.begin(now);
  generation_.number = store_.adopted(generation_, stands_in);
  to_remember_ = true;
  return {};
}

void Engine::refuse_quarantined(const Generation& generation) {
  (void)policy_failed({generation.quarantined});
  if (generation_.make) return;
  quarantined_ = {generation, ""};
  fallback_wanted_ = true;
}

void Engine::fall_back(Prepared good, core::TimeNs now) {
  if (!quarantined_ || generation_.make) return;
  const std::string error = policy_error_;
  good.generation.by = {"fallback"};
  if (!swap(std::move(good), true, now)) return;
  policy_error_ = error + "; until then the last good generation decides, " + generation_.name +
                  " (" + generation_.hash + ")";
  log_.warning(
      "policy_fell_back",
      {{"policy", generation_.name}, {"path", generation_.path}, {"hash", generation_.hash}});
}

void Engine::mistake_undone(core::TimeNs now) {
  observe_each(now);
  policy_error_.clear();
  quarantined_.reset();
  for (Device& device : devices_) {
    if (!device.scheduler || device.policy) continue;
    end_shadow("the live policy started anew");
    start_policy(device, now);
  }
}

// Launches that it let go.
uint64_t Engine::policy_decisions() const {
  const auto decided = [](const core::Stats& s) { return s.granted - s.by_builtin - s.starved; };
  uint64_t sum = 0;
  for (const Device& device : devices_) {
    if (device.scheduler) sum += decided(device.scheduler->stats()) - decided(device.before);
  }
  return sum;
}

uint64_t Engine::policy_faults() const {
  uint64_t sum = 0;
  for (const Device& device : devices_) {
    if (!device.scheduler) continue;
    sum += device.scheduler->stats().policy_faults - device.before.policy_faults;
  }
  return sum;
}

void Engine::check_probation(core::TimeNs now) {
  if (!generation_.make || bypass_) return;
  if (!probation_.update(now, policy_decisions(), policy_faults())) return;
  store_.good(generation_);
  to_remember_ = true;
  log_.info("policy_good", {{"policy", generation_.name}, {"hash", generation_.hash}});
}

// Nothing here waits for a disk, or for another policy to be made: launches wait for this.
void Engine::check_quarantine(core::TimeNs now) {
  std::string fault;
  json exit;
  bool quarantined = false;
  for (uint8_t index = 0; index < devices_used_; ++index) {
    Device& device = devices_[index];
    if (!device.scheduler || !device.scheduler->take_quarantined()) continue;
    quarantined = true;
    if (!device.policy) continue;
    exit = exit_dump(store_.describe_ended(*device.policy), device.scheduler->last_words(), index);
    fault = exit.value("fault", "");
  }
  if (!quarantined) return;
  const Generation faulty = generation_;
  store_.quarantine(faulty, fault);
  Prepared builtin;  // it has no init that could fail
  builtin.generation.by = {"quarantine"};
  (void)swap(std::move(builtin), false, now);
  exit["hash"] = faulty.hash;
  quarantined_ = {faulty, fault, exit.dump(-1, ' ', false, json::error_handler_t::replace)};
  fallback_wanted_ = true;
  policy_error_ = faulty.path + ": quarantined after " + std::to_string(config_.core.fault_max) +
                  " faults, the last: " + fault + "; mend it, or load another";
  log_.error(
      "policy_quarantined",
      {{"policy", faulty.name}, {"path", faulty.path}, {"hash", faulty.hash}, {"fault", fault}});
}

void Engine::set_bypass(bool on, core::TimeNs now) {
  bypass_ = on;
  observe_each(now);
  for (Device& device : devices_) {
    if (device.scheduler) set_bypass(*device.scheduler, on, now);
  }
  for (Client* client : polled_) client->set_bypass(on);
}

}  // namespace heddle::server
