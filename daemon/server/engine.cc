#include "daemon/server/engine.h"

#include <algorithm>
#include <utility>

#include "ipc/fault.h"

namespace heddle::server {
namespace {

// A client that sent this much nonsense is broken or hostile.
constexpr uint64_t kMalformedMax = 1'000;

}  // namespace

Engine::Engine(const Config& config, PolicyStore& store, ProfileStore& profiles, Log& log)
    : config_(config),
      log_(log),
      mistakes(log),
      stepper(roster, mistakes),
      devices(config_, profiles, log, mistakes, stepper),
      reports(config_, roster, devices, stepper),
      contention(roster, devices),
      stop_answers(config_.stops, config_.state),
      policy(config_, store, log, devices, stepper, reports),
      presence(devices, stepper, policy, contention, stop_answers, profiles, log),
      gates(roster, reports, presence),
      alerts(roster, devices, log) {}

// ---- clients ----------------------------------------------------------------------------------

Client& Engine::attach(std::unique_ptr<Client> owned, core::TimeNs now) {
  reports.observe_all(now);
  Client& client = roster.add(std::move(owned));
  devices.update_alone(roster.all().size(), now);
  ipc::ControlMemory::Header& header = client.control().header;
  header.starvation_ms.store(static_cast<uint32_t>(config_.core.starvation_us / 1e3));
  header.spin_us.store(config_.spin_us);
  client.heartbeat(now);
  client.set_bypass(devices.bypass());
  if (asleep_) client.set_sleep(ipc::kWakeOnAny);
  const uint8_t first = client.identity().gpus[0];
  if (first != kNoGpu) presence.introduce(client, first, now);
  client.set_contended(contention.concerns(client));
  check();
  return client;
}

void Engine::drop(Client& client, core::TimeNs now) {
  reports.observe_all(now);
  roster.drop(client);
  presence.leave(client, now);
}

void Engine::detach(core::ClientId id, core::TimeNs now) {
  Client* client = roster.find(id);
  if (client == nullptr) return;
  // The last records of an ended process still count: its launches on the GPU run to their end.
  if (client->managed()) {
    batch_.clear();
    if (!batch_.hear(*client, now)) impossible(*client, now);
    if (client != reports.unobserved()) reports.observe_all(now);
    if (!batch_.empty()) handle();
  }
  if (client->managed()) drop(*client, now);
  stepper.wake_granted();                          // before the client is gone
  devices.update_alone(roster.all().size(), now);  // with the number of clients until now
  roster.remove(id);
  check();
}

void Engine::let_go(Client& client, const std::string& reason, core::TimeNs now) {
  ++counters_.let_go;
  const Identity& who = client.identity();
  log_.warning({who.uid, who.privileged}, "client_let_go",
               {{"client", who.id}, {"pid", who.pid}, {"reason", reason}});
  client.let_go(reason);
  drop(client, now);
}

// Checks that data kept in two places agrees. Called when clients come and go.
void Engine::check() {
  size_t managed = 0;
  for (const auto& [id, client] : roster.all()) {
    HEDDLE_CHECK_OF(mistakes, id, client->identity().id == id);
    HEDDLE_CHECK_OF(mistakes, id, client->intake().asking() <= ipc::kDevices);
    managed += client->managed() ? 1 : 0;
  }
  HEDDLE_CHECK_IN(mistakes, managed == roster.managed().size());
  const Client* const unobserved = reports.unobserved();
  HEDDLE_CHECK_IN(mistakes,
                  unobserved == nullptr ||
                      std::count(roster.managed().begin(), roster.managed().end(), unobserved));
  for (const auto& scheduler : devices.schedulers()) {
    if (!scheduler) continue;
    HEDDLE_CHECK_IN(mistakes, scheduler->bypassed() == devices.bypass());
    HEDDLE_CHECK_IN(mistakes, scheduler->config().mps == devices.mps());
    HEDDLE_CHECK_IN(mistakes, policy.generation().make || !policy.on(scheduler->config().device));
  }
}

bool Engine::set_terms(Client& client, int priority, const std::string& rule, const Terms& terms,
                       core::TimeNs now) {
  const Identity before = client.identity();
  client.set_terms(priority, rule, terms);
  const Identity& after = client.identity();
  if (before.priority == after.priority && before.terms == after.terms) return false;
  reports.observe_all(now);
  presence.tell_terms(client, now);
  contention.update(now);
  policy.check_quarantine(now);
  return true;
}

DeviceMap Engine::number_gpus(std::span<const GpuId> ids, uid_t uid, bool privileged) {
  GpuNumbers::Numbers held = 0, own = 0;
  for (const auto& [id, client] : roster.all()) {
    held |= client->visible();
    if (client->identity().uid == uid) own |= client->visible();
  }
  return devices.gpus().map(ids, held, own, privileged);
}

void Engine::collect_profiles() {
  for (const Client* client : roster.managed()) presence.collect_profile(*client);
}

// ---- the launch path --------------------------------------------------------------------------

bool Engine::collect(core::TimeNs now, bool all) {
  batch_.collect(roster, now, all, [&](Client& client) { impossible(client, now); });
  const Client* const unobserved = reports.unobserved();
  const auto& entries = batch_.entries();
  const bool others = std::any_of(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return entry.client != unobserved; });
  if (others) reports.observe_all(now);
  return !batch_.empty();
}

void Engine::impossible(Client& client, core::TimeNs now) {
  client.intake().count_malformed();
  ++counters_.malformed;
  let_go(client, "its shared memory is not what the shim writes; restart the program", now);
}

void Engine::handle() {
  HEDDLE_FAULT_POINT("daemon: claims taken, not handled");
  batch_.sort();
  core::TimeNs now = 0;
  gates.begin();
  for (const Batch::Entry& entry : batch_.entries()) {
    Client& client = *entry.client;
    if (!client.managed()) continue;  // it was let go while the batch was handled
    Claim& claim = batch_.claim(entry);
    if (stepper.recorder() != nullptr && !Intake::is_gated(claim)) {
      claim.fields.may_follow = 0;  // a recording needs each launch: no row follows
    }
    now = claim.at;
    gates.note(client, claim);
    if (client.intake().unscheduled(claim)) {
      stepper.let_through(client, claim);
      continue;
    }
    const uint64_t malformed = client.intake().malformed();
    if (Intake::is_gated(claim)) {
      client.hold_at_gate(claim);
    } else {
      if (claim.fields.kind == wire::Kind::COMPLETION) presence.tell_gone(client, now);
      presence.take(client, claim);
    }
    if (client.intake().malformed() != malformed) {
      note_malformed(client, malformed);
    } else if (claim.fields.kind == wire::Kind::COMPLETION) {
      client.over(claim.fields);
    }
  }
  stepper.wake_granted();
  counters_.claims += batch_.entries().size();
  check_decisions(now);
}

void Engine::note_malformed(Client& client, uint64_t before) {
  ++counters_.malformed;
  if (before == 0) {
    const Identity& who = client.identity();
    log_.warning(
        {who.uid, who.privileged}, "client_malformed",
        {{"client", who.id}, {"pid", who.pid}, {"hint", "counted from now on, see heddle ps"}});
  }
  if (client.intake().malformed() >= kMalformedMax) {
    let_go(client, "too many impossible records; restart the program", batch_.entries().back().at);
  }
}

void Engine::tick(core::TimeNs now) {
  devices.tick(now);
  check_decisions(now);
}

// Carries out what steps may have changed for other clients.
void Engine::check_decisions(core::TimeNs now) {
  gates.tell(now);
  stepper.wake_granted();
  contention.update(now);
  policy.check_quarantine(now);
  open_if_broken(now);
}

void Engine::open_if_broken(core::TimeNs now) {
  const auto news = mistakes.take_news();
  if (!news) [[likely]]
    return;
  for (const core::ClientId id : news->clients) {
    Client* const client = roster.find(id);
    if (client != nullptr && client->managed()) {
      let_go(*client, "heddled made a mistake with it; restart the program", now);
    }
  }
  if (news->of_all) set_bypass(true, now);
}

void Engine::beat(core::TimeNs now) {
  for (const auto& [id, client] : roster.all()) client->heartbeat(now);
}

void Engine::heartbeat(core::TimeNs now) {
  beat(now);
  check_decisions(now);  // a change of policy or terms may have let launches go
  devices.update_alone(roster.all().size(), now);
  policy.check_quarantine(now);
  policy.check_probation(now);
  policy.candidate().check();
  open_if_broken(now);
  alerts.check(policy.generation().name, now);
}

bool Engine::at_ease(core::TimeNs now) const {
  size_t working = 0;
  bool leased = true;
  for (const Client* client : roster.managed()) {
    if (client->intake().asking() || client->behind()) return false;
    if (!reports.at_work(*client, now)) {
      if (client->stoppable() && devices.active(*client)) return false;
      continue;
    }
    if (client->gated()) return false;
    ++working;
    leased &= client->leased();
  }
  return leased ? working > 0 : working == 1;
}

void Engine::fall_asleep(core::TimeNs now) {
  const bool ease = at_ease(now);
  asleep_ = true;
  for (Client* client : roster.managed()) {
    client->set_sleep(ease && reports.at_work(*client, now) ? ipc::kWakeOnAsk : ipc::kWakeOnAny);
  }
}

void Engine::wake_up() {
  asleep_ = false;
  for (Client* client : roster.managed()) client->set_sleep(ipc::kAwake);
}

// ---- all devices --------------------------------------------------------------------------------

void Engine::set_mode(bool mps, core::TimeNs now) {
  if (!devices.finds_mode(mps)) return;
  reports.observe_each(now);
  devices.set_mode(mps, now);
}

void Engine::set_bypass(bool on, core::TimeNs now) {
  reports.observe_each(now);
  devices.set_bypass(on, now);
  for (Client* client : roster.managed()) client->set_bypass(on);
}

void Engine::record(trace::Recorder* recorder, core::TimeNs now) {
  reports.observe_each(now);
  stepper.record_to(recorder);
  if (recorder == nullptr) return;
  for (const auto& scheduler : devices.schedulers()) {
    if (!scheduler) continue;
    const uint8_t gpu = scheduler->config().device;
    recorder->device(scheduler->config(), now, scheduler->stats().events == 0);
    policy.record(gpu, now);
    if (devices.bypass()) recorder->bypass({gpu, now, true});
    for (const Client* client : roster.managed()) {
      if (!client->on_gpu(gpu)) continue;
      // The task's measurements, because of a measured task only one launch in 127 is timed.
      const bool measured = scheduler->view().measured(client->identity().id);
      const core::TaskProfile known = measured ? devices.profile(*client) : core::TaskProfile{};
      for (const core::Event& event : client->introduction(gpu, now, measured ? &known : nullptr)) {
        recorder->event(event, true);
      }
    }
  }
}

}  // namespace heddle::server
