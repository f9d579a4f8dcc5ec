#include "daemon/server/policy_in_force.h"

#include <algorithm>

#include "daemon/server/ps.h"

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

std::string init_failure(const PolicyStore& store, const Generation& generation,
                         const core::Policy& policy) {
  return (generation.path.empty() ? generation.name : generation.path) +
         ": init failed: " + store.describe(policy).value("fault", "it said no");
}

}  // namespace

PolicyInForce::PolicyInForce(const Config& config, PolicyStore& store, Log& log, Devices& devices,
                             Stepper& stepper, Reports& reports)
    : config_(config),
      store_(store),
      log_(log),
      devices_(devices),
      stepper_(stepper),
      reports_(reports),
      probation_(config.policy_good_ns),
      candidate_(generation_, devices, store, reports, log) {}

// A scheduler may call its policy for as long as it lives, so schedulers end first.
PolicyInForce::~PolicyInForce() { devices_.end(); }

size_t PolicyInForce::instances_wanted() const {
  const auto all = devices_.schedulers();
  const auto is_there = [](const auto& scheduler) { return scheduler != nullptr; };
  return 1 + static_cast<size_t>(std::count_if(all.begin(), all.end(), is_there));
}

Result<void> PolicyInForce::failed(Error error) {
  ++reload_errors_;
  error_ = error.message;
  log_.error("policy_not_loaded", {{"error", error.message}, {"still_running", generation_.name}});
  return tl::unexpected<Error>(std::move(error));
}

void PolicyInForce::put_to_work(uint8_t gpu, core::Policy* policy, const Generation& generation,
                                core::TimeNs now) {
  const std::span<const core::Decision> decisions = devices_.on(gpu).adopt_policy(policy, now);
  record(gpu, policy, generation, now);
  stepper_.apply(decisions);
}

void PolicyInForce::open(uint8_t gpu, core::TimeNs now) {
  seats_[gpu] = {};
  start(gpu, now);
  candidate_.start(gpu, now);
}

// Starts the generation on a device. If that fails, the built-in decides there.
void PolicyInForce::start(uint8_t gpu, core::TimeNs now) {
  if (!generation_.make) return;
  Result<std::unique_ptr<core::Policy>> policy = take_instance(generation_, spare_);
  if (policy && (!*policy || devices_.on(gpu).start_policy(**policy, now))) {
    core::Policy* const started = policy->get();
    seats_[gpu].policy = std::move(*policy);
    if (started != nullptr) put_to_work(gpu, started, generation_, now);
  } else {
    error_ = policy ? init_failure(store_, generation_, **policy) : policy.error().message;
    log_.error("policy_failed", {{"device", gpu}, {"error", error_}});
  }
}

void PolicyInForce::record(uint8_t gpu, core::TimeNs now) const {
  const core::Policy* const policy = on(gpu);
  if (policy != nullptr) record(gpu, policy, generation_, now);
}

void PolicyInForce::record(uint8_t gpu, const core::Policy* policy, const Generation& generation,
                           core::TimeNs now) const {
  if (stepper_.recorder() == nullptr) return;
  trace::PolicyRecord record{gpu, now, generation.name, generation.path, generation.hash};
  if (policy != nullptr) {
    for (const auto& param : store_.describe(*policy).value("params", json::array())) {
      record.params[param.at("name").get<std::string>()] = param.at("value");
    }
  }
  stepper_.recorder()->policy(record);
}

Result<void> PolicyInForce::adopt(Prepared fresh, core::TimeNs now) {
  check_quarantine(now);  // so that the new policy is not blamed for its predecessor's faults
  Result<void> adopted = swap(std::move(fresh), false, now);
  if (!adopted) return adopted;
  quarantined_.reset();
  error_.clear();
  ++reloads_;
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
  check_quarantine(now);  // it may have faulted when it met the clients
  return adopted;
}

Result<void> PolicyInForce::swap(Prepared fresh, bool stands_in, core::TimeNs now) {
  reports_.observe_each(now);
  // All instances are made and started before any is adopted, so that a failure leaves all devices
  // with the old policy.
  while (fresh.generation.make && fresh.instances.size() < instances_wanted() - 1) {
    Result<std::unique_ptr<core::Policy>> made =
        fresh.generation.make();  // a device came meanwhile
    if (!made) return failed(std::move(made.error()));
    fresh.instances.push_back(std::move(*made));
  }
  const auto schedulers = devices_.schedulers();
  std::array<Seat, ipc::kDevices> seats;
  for (size_t gpu = 0; gpu < schedulers.size(); ++gpu) {
    if (!schedulers[gpu]) continue;
    seats[gpu].before = schedulers[gpu]->stats();
    if (!fresh.generation.make) continue;
    seats[gpu].policy = std::move(fresh.instances.back());
    fresh.instances.pop_back();
  }
  for (size_t gpu = 0; gpu < schedulers.size(); ++gpu) {
    core::Policy* const policy = seats[gpu].policy.get();
    if (policy == nullptr || schedulers[gpu]->start_policy(*policy, now)) continue;
    return failed({init_failure(store_, fresh.generation, *policy) + "; on device " +
                   std::to_string(gpu) + ", the running policy stays"});
  }
  candidate_.end(fresh.generation.by.how == "promote" ? "promoted"
                                                      : "another generation went live");
  for (uint8_t gpu = 0; gpu < schedulers.size(); ++gpu) {
    if (schedulers[gpu]) put_to_work(gpu, seats[gpu].policy.get(), fresh.generation, now);
    seats_[gpu] = std::move(seats[gpu]);
  }
  generation_ = std::move(fresh.generation);
  spare_ = std::move(fresh.instances);
  probation_.begin(now);
  generation_.number = store_.adopted(generation_, stands_in);
  to_remember_ = true;
  return {};
}

void PolicyInForce::refuse_quarantined(const Generation& generation) {
  (void)failed({generation.quarantined});
  if (generation_.make) return;
  quarantined_ = {generation, ""};
  fallback_wanted_ = true;
}

void PolicyInForce::fall_back(Prepared good, core::TimeNs now) {
  if (!quarantined_ || generation_.make) return;
  const std::string error = error_;
  good.generation.by = {"fallback"};
  if (!swap(std::move(good), true, now)) return;
  error_ = error + "; until then the last good generation decides, " + generation_.name + " (" +
           generation_.hash + ")";
  log_.warning(
      "policy_fell_back",
      {{"policy", generation_.name}, {"path", generation_.path}, {"hash", generation_.hash}});
}

void PolicyInForce::mistake_undone(core::TimeNs now) {
  reports_.observe_each(now);
  error_.clear();
  quarantined_.reset();
  for (const auto& scheduler : devices_.schedulers()) {
    if (!scheduler || on(scheduler->config().device) != nullptr) continue;
    candidate_.end("the live policy started anew");
    start(scheduler->config().device, now);
  }
}

PolicyCounts PolicyInForce::counts() const {
  // Launches that the policy granted.
  const auto decided = [](const core::Stats& s) { return s.granted - s.by_builtin - s.starved; };
  PolicyCounts counts{0, 0, reloads_, reload_errors_};
  for (const auto& scheduler : devices_.schedulers()) {
    if (!scheduler) continue;
    const core::Stats& now = scheduler->stats();
    const core::Stats& before = seats_[scheduler->config().device].before;
    counts.decisions += decided(now) - decided(before);
    counts.faults += now.policy_faults - before.policy_faults;
  }
  return counts;
}

void PolicyInForce::check_probation(core::TimeNs now) {
  if (!generation_.make || devices_.bypass()) return;
  const PolicyCounts so_far = counts();
  if (!probation_.update(now, so_far.decisions, so_far.faults)) return;
  store_.good(generation_);
  to_remember_ = true;
  log_.info("policy_good", {{"policy", generation_.name}, {"hash", generation_.hash}});
}

void PolicyInForce::check_quarantine(core::TimeNs now) {
  std::string fault;
  json exit;
  bool quarantined = false;
  for (const auto& scheduler : devices_.schedulers()) {
    if (!scheduler || !scheduler->take_quarantined()) continue;
    quarantined = true;
    const uint8_t gpu = scheduler->config().device;
    if (on(gpu) == nullptr) continue;
    exit = exit_dump(store_.describe_ended(*on(gpu)), scheduler->view().last_words(), gpu);
    fault = exit.value("fault", "");
  }
  if (!quarantined) return;
  const Generation faulty = generation_;
  store_.quarantine(faulty, fault);
  Prepared builtin;  // the built-in cannot fail to start
  builtin.generation.by = {"quarantine"};
  (void)swap(std::move(builtin), false, now);
  exit["hash"] = faulty.hash;
  quarantined_ = {faulty, fault, exit.dump(-1, ' ', false, json::error_handler_t::replace)};
  fallback_wanted_ = true;
  error_ = faulty.path + ": quarantined after " + std::to_string(config_.core.fault_max) +
           " faults, the last: " + fault + "; mend it, or load another";
  log_.error(
      "policy_quarantined",
      {{"policy", faulty.name}, {"path", faulty.path}, {"hash", faulty.hash}, {"fault", fault}});
}

}  // namespace heddle::server
