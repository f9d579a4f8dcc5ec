// Clients and the launch path; GPUs are in engine_devices.cc, policies in generations.cc.
#include "daemon/server/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ipc/fault.h"
#include "ipc/slot.h"

namespace heddle::server {
namespace {

// A client that sent this much nonsense is broken or hostile.
constexpr uint64_t kMalformedMax = 1'000;

// An eager program launches every 10 or 20 µs, and gaps of as little are of no use to anybody.
constexpr core::TimeNs kLeasedNs = 20'000;
// A client that launched within this time may launch any moment.
constexpr core::TimeNs kRecentNs = 50'000'000;

}  // namespace

Engine::Engine(const Config& config, PolicyStore& store, ProfileStore& profiles, Log& log)
    : config_(config),
      store_(store),
      profiles_(profiles),
      log_(log),
      probation_(config.policy_good_ns) {
  mps_ = config.gpu_mode == GpuMode::kMps;  // where it is to be found out: not yet
  claims_.reserve(ipc::kRingRecords);
  batch_.reserve(ipc::kRingRecords);
}

// Policies may be asked for as long as a scheduler lives, so that schedulers go first.
Engine::~Engine() {
  for (Device& device : devices_) device.scheduler.reset();
}

// ---- clients ----------------------------------------------------------------------------------

Client* Engine::find(core::ClientId id) {
  const auto it = clients_.find(id);
  return it != clients_.end() ? it->second.get() : nullptr;
}

Client& Engine::attach(std::unique_ptr<Client> owned, core::TimeNs now) {
  observe_all(now);
  Client& client = *owned;
  clients_.emplace(client.identity().id, std::move(owned));
  update_alone(now);
  polled_.push_back(&client);
  share_turn();
  ipc::ControlMemory::Header& header = client.control().header;
  header.starvation_ms.store(static_cast<uint32_t>(config_.core.starvation_us / 1e3));
  header.spin_us.store(config_.spin_us);
  client.heartbeat(now);
  client.set_bypass(bypass_);
  if (asleep_) client.set_sleep(ipc::kWakeOnAny);
  const uint8_t first = client.identity().gpus[0];
  if (first != kNoGpu) introduce(client, first, now);
  client.set_contended(is_contended(client));
  return client;
}

void Engine::remove_from_devices(Client& client, core::TimeNs now) {
  observe_all(now);
  std::erase(polled_, &client);
  share_turn();
  collect_profile(client);
  for (uint8_t index = 0; index < ipc::kDevices; ++index) {
    if (!client.on_gpu(index)) continue;
    core::Event event(core::EventKind::kDetached, now, client.identity().id);
    event.device = index;
    step(*devices_[index].scheduler, event);
  }
}

void Engine::detach(core::ClientId id, core::TimeNs now) {
  Client* client = find(id);
  if (client == nullptr) return;
  // What a dying process wrote last still counts: a launch that is on the GPU runs to its end.
  if (client->managed()) {
    batch_.clear();
    claims_.clear();
    hear(*client, now);
    if (client != unobserved_) observe_all(now);
    if (!batch_.empty()) handle();
  }
  if (client->managed()) remove_from_devices(*client, now);
  update_alone(now);  // as it was until now
  clients_.erase(id);
}

void Engine::let_go(Client& client, const std::string& reason, core::TimeNs now) {
  ++counters_.let_go;
  const Identity& who = client.identity();
  log_.warning({who.uid, who.privileged}, "client_let_go",
               {{"client", who.id}, {"pid", who.pid}, {"reason", reason}});
  client.let_go(reason);
  remove_from_devices(client, now);
}

void Engine::register_kernel(Client& client, const core::KernelBody& kernel, core::TimeNs now) {
  client.add_kernel(kernel);
  if (!client.managed() || !client.knows_kernel(kernel.index)) return;
  for (uint8_t index = 0; index < ipc::kDevices; ++index) {
    if (!client.on_gpu(index)) continue;
    core::Event event(core::EventKind::kKernel, now, client.identity().id);
    event.device = index;
    event.kernel = kernel;
    step(*devices_[index].scheduler, event);
    if (devices_[index].scheduler->full(client.identity().id) && !std::exchange(told_full_, true)) {
      log_.warning("learns_no_more",
                   {{"device", index},
                    {"uid", client.identity().uid},
                    {"hint", "the programs of this user hold all of its places; end some"}});
    }
  }
}

// ---- the launch path --------------------------------------------------------------------------

bool Engine::collect(core::TimeNs now, bool all) {
  batch_.clear();
  claims_.clear();
  read(now, false);
  if (all || !batch_.empty() || now - leased_read_ >= kLeasedNs) {
    leased_read_ = now;
    read(now, true);
  }
  const bool others = std::any_of(batch_.begin(), batch_.end(),
                                  [this](const Waiting& w) { return w.client != unobserved_; });
  if (others) observe_all(now);
  return !batch_.empty();
}

void Engine::read(core::TimeNs now, bool leased) {
  // What clients wrote comes over from their processors all at once, not one after the other.
  for (const Client* client : polled_) {
    if (client->leased() == leased) client->prefetch();
  }
  for (const Client* client : polled_) {
    if (client->leased() == leased) client->prefetch_news();
  }
  for (size_t i = polled_.size(); i-- > 0;) {
    if (polled_[i]->leased() == leased) hear(*polled_[i], now);
  }
}

void Engine::hear(Client& client, core::TimeNs now) {
  size_t taken = claims_.size();
  if (!client.collect(now, claims_)) {
    claims_.resize(taken);
    client.intake().count_malformed();
    ++counters_.malformed;
    let_go(client, "its shared memory is not what the shim writes; restart the program", now);
    return;
  }
  const size_t end = claims_.size();
  for (; taken < end; ++taken) batch_.push_back({claims_[taken].at, taken, &client});
}

// Of a turn each user has as much as any other, and of that each of his clients.
void Engine::share_turn() {
  constexpr uint32_t kAsks = 512;        // each is looked at for each decision
  constexpr uint32_t kRecordsLeast = 4;  // less is not worth the look
  std::unordered_map<uid_t, uint32_t> clients_of;
  for (const Client* client : polled_) ++clients_of[client->identity().uid];
  for (Client* client : polled_) {
    const auto sharers =
        static_cast<uint32_t>(clients_of.size()) * clients_of[client->identity().uid];
    client->set_share({std::max(Client::kRecordsPerTurn / sharers, kRecordsLeast),
                       std::clamp(kAsks / sharers, 1u, ipc::kThreads)});
  }
}

void Engine::handle() {
  HEDDLE_FAULT_POINT("daemon: claims taken, not handled");
  if (batch_.size() > 1) {
    std::sort(batch_.begin(), batch_.end(), [](const Waiting& a, const Waiting& b) {
      return a.at != b.at ? a.at < b.at : a.claim < b.claim;
    });
  }
  core::TimeNs now = 0;
  for (const Waiting& waiting : batch_) {
    Client& client = *waiting.client;
    if (!client.managed()) continue;  // let go while the batch was handled
    Claim& claim = claims_[waiting.claim];
    if (recorder_ != nullptr) claim.fields.may_follow = 0;  // a recording has all, from here on
    now = claim.at;
    if (client.intake().unscheduled(claim)) {
      if (client.let_through(claim)) granted_.emplace_back(&client, claim.thread);
      continue;
    }
    const uint64_t malformed = client.intake().malformed();
    if (Intake::is_gated(claim)) {
      client.hold_at_gate(claim);
    } else {
      take(client, claim);
    }
    if (client.intake().malformed() != malformed) note_malformed(client, malformed);
  }
  tell_gated(now);
  wake_granted();
  counters_.claims += batch_.size();
  update_contended(now);
  check_quarantine(now);
  open_if_broken(now);
}

void Engine::take(Client& client, const Claim& claim) {
  const bool known = client.knows_kernel(claim.fields.kernel);
  for (const core::Event& event : client.intake().take(claim, known)) {
    if (!client.posted_to(event.device)) [[unlikely]]
      begin_on(client, event);
    step(*devices_[event.device].scheduler, event, &client);
  }
}

// A grant of one client may make the next launch of another the oldest at its gate.
void Engine::tell_gated(core::TimeNs now) {
  for (bool any = true; std::exchange(any, false);) {
    for (Client* client : polled_) {
      while (const auto claim = client->next_at_gate(now)) {
        take(*client, *claim);
        any = true;
      }
    }
  }
}

// Copies, and waits for what another GPU does, are no work there.
void Engine::begin_on(Client& client, const core::Event& event) {
  if (!client.on_gpu(event.device)) introduce(client, event.device, event.at);
  const bool launch =
      event.kind == core::EventKind::kPosted && (event.launch.kind == core::LaunchKind::kKernel ||
                                                 event.launch.kind == core::LaunchKind::kGraph);
  if (!launch && event.kind != core::EventKind::kAsked && event.kind != core::EventKind::kRow) {
    return;
  }
  client.note_post(event.device);
  client.set_contended(is_contended(client));
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
    let_go(client, "too many impossible records; restart the program", batch_.back().at);
  }
}

void Engine::step(core::Scheduler& scheduler, const core::Event& event, Client* of) {
  if (recorder_ != nullptr) recorder_->event(event);
  const std::span<const core::Decision> decisions = scheduler.step(event);
  if (!decisions.empty()) apply(decisions, of);
}

void Engine::apply(std::span<const core::Decision> decisions, Client* likely) {
  for (const core::Decision& decision : decisions) {
    if (recorder_ != nullptr) recorder_->decision(decision);
    const bool found = likely != nullptr && likely->identity().id == decision.client;
    Client* client = found ? likely : find(decision.client);
    if (client == nullptr || !client->on_gpu(decision.device)) continue;
    if (client->apply(decision)) granted_.emplace_back(client, decision.thread);
  }
  if (likely == nullptr) wake_granted();
}

// A fence costs as much as a grant, and a system call more: those who are awake do not wait for it.
void Engine::wake_granted() {
  if (granted_.empty()) return;
  ipc::slot_fence();
  for (const auto& [client, thread] : granted_) client->wake(thread);
  granted_.clear();
}

void Engine::tick(core::TimeNs now) {
  for (uint8_t index = 0; index < devices_used_; ++index) {
    core::Scheduler* scheduler = devices_[index].scheduler.get();
    if (scheduler == nullptr || scheduler->next_deadline() > now) continue;
    core::Event event(core::EventKind::kTick, now, 0);
    event.device = index;
    step(*scheduler, event);
  }
  tell_gated(now);
  update_contended(now);
  check_quarantine(now);
  open_if_broken(now);
}

core::TimeNs Engine::next_deadline() const {
  core::TimeNs at = std::numeric_limits<core::TimeNs>::max();
  for (uint8_t index = 0; index < devices_used_; ++index) {
    const Device& device = devices_[index];
    if (device.scheduler) at = std::min(at, device.scheduler->next_deadline());
  }
  return at;
}

void Engine::beat(core::TimeNs now) {
  for (const auto& [id, client] : clients_) client->heartbeat(now);
}

void Engine::heartbeat(core::TimeNs now) {
  beat(now);
  update_alone(now);
  check_quarantine(now);
  check_probation(now);
  check_shadow();
  check_stalls();
  check_promises(now);
  check_refused(now);
}

bool Engine::at_work(const Client& client, core::TimeNs now) const {
  return &client == unobserved_ || now - client.last_active < kRecentNs;
}

bool Engine::at_ease(core::TimeNs now) const {
  size_t working = 0;
  bool leased = true;
  for (const Client* client : polled_) {
    if (client->intake().asking() || client->behind()) return false;
    if (!at_work(*client, now)) continue;
    if (client->gated()) return false;
    ++working;
    leased &= client->leased();
  }
  return leased ? working > 0 : working == 1;
}

void Engine::fall_asleep(core::TimeNs now) {
  const bool ease = at_ease(now);
  asleep_ = true;
  for (Client* client : polled_) {
    client->set_sleep(ease && at_work(*client, now) ? ipc::kWakeOnAsk : ipc::kWakeOnAny);
  }
}

// ---- launches that nobody need hear of ----------------------------------------------------------

void Engine::review(core::TimeNs now) {
  Client* alone = alone_at_work(now);
  const core::ClientId id = alone != nullptr ? alone->identity().id : 0;
  const uint64_t launches = alone != nullptr ? alone->launches_told() : 0;
  set_unobserved(find(observation_.update(now, id, launches)), now);
  for (Client* client : polled_) client->allow_sparse(config_.sparse && need_not_tell(*client));
}

// What decides changes, or somebody listens to everything: each launch is told until the next
// review.
void Engine::observe_each(core::TimeNs now) {
  observe_all(now);
  for (Client* client : polled_) client->allow_sparse(false);
}

// Somebody comes, goes or does anything.
void Engine::observe_all(core::TimeNs now) {
  if (unobserved_ == nullptr) return;
  observation_.update(now, 0, 0);
  set_unobserved(nullptr, now);
}

void Engine::set_unobserved(Client* client, core::TimeNs now) {
  if (client == unobserved_) return;
  Client* before = std::exchange(unobserved_, client);
  const auto tell = [&](Client& to, core::EventKind kind) {
    core::Event event(kind, now, to.identity().id);
    event.untold.launches = to.take_untold();
    for (uint8_t index = 0; index < ipc::kDevices; ++index) {
      if (!to.works_on(index)) continue;
      event.device = index;
      step(*devices_[index].scheduler, event);
      event.untold.launches = 0;  // which device had them is not known
    }
  };
  if (before != nullptr) {
    before->set_unobserved(false);
    HEDDLE_FAULT_POINT("daemon: observed again, not heard of");
    tell(*before, core::EventKind::kObserved);
  }
  if (client != nullptr) {
    tell(*client, core::EventKind::kUnobserved);
    HEDDLE_FAULT_POINT("daemon: unobserved, not told");
    client->set_unobserved(client->leased());  // a policy may have answered with a window
  }
}

Client* Engine::alone_at_work(core::TimeNs now) const {
  Client* alone = nullptr;
  for (Client* client : polled_) {
    const bool works = at_work(*client, now) || client->intake().asking() || is_active(*client);
    if (!works) continue;
    if (alone != nullptr) return nullptr;
    alone = client;
  }
  const bool may = alone != nullptr && config_.unobserved && need_not_tell(*alone);
  return may ? alone : nullptr;
}

// To the cores: also who only waits for what it launched long ago.
bool Engine::is_active(const Client& client) const {
  for (uint8_t index = 0; index < ipc::kDevices; ++index) {
    if (client.on_gpu(index) && devices_[index].scheduler->active(client.identity().id)) {
      return true;
    }
  }
  return false;
}

bool Engine::need_not_tell(const Client& client) const {
  if (recorder_ != nullptr || bypass_) return false;
  if (!client.leased() || client.intake().asking()) return false;
  // These must be met at each launch.
  if (client.identity().partition != 0 || client.identity().terms.fail_closed) return false;
  for (uint8_t index = 0; index < ipc::kDevices; ++index) {
    if (!client.works_on(index)) continue;
    const core::Scheduler& scheduler = *devices_[index].scheduler;
    if (!scheduler.measured(client.identity().id) || scheduler.hears_launches() ||
        scheduler.sized(client.identity().id)) {
      return false;
    }
  }
  return true;
}

void Engine::wake_up() {
  asleep_ = false;
  for (Client* client : polled_) client->set_sleep(ipc::kAwake);
}

}  // namespace heddle::server
