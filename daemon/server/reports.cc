#include "daemon/server/reports.h"

#include <utility>

#include "ipc/fault.h"

namespace heddle::server {
namespace {

// A client that launched within this time counts as at work, because it may launch at any moment.
constexpr core::TimeNs kRecentNs = 50'000'000;

}  // namespace

void Reports::review(core::TimeNs now) {
  Client* alone = alone_at_work(now);
  const core::ClientId id = alone != nullptr ? alone->identity().id : 0;
  const uint64_t launches = alone != nullptr ? alone->launches_told() : 0;
  set_unobserved(roster_.find(observation_.update(now, id, launches)), now);
  for (Client* client : roster_.managed()) {
    client->allow_sparse(config_.report != ReportSetting::kEach && need_not_tell(*client));
  }
}

void Reports::observe_each(core::TimeNs now) {
  observe_all(now);
  for (Client* client : roster_.managed()) client->allow_sparse(false);
}

void Reports::observe_all(core::TimeNs now) {
  if (unobserved_ == nullptr) return;
  observation_.update(now, 0, 0);
  set_unobserved(nullptr, now);
}

void Reports::set_unobserved(Client* client, core::TimeNs now) {
  if (client == unobserved_) return;
  Client* before = std::exchange(unobserved_, client);
  const auto tell = [&](Client& to, core::EventKind kind) {
    core::Event event(kind, now, to.identity().id);
    event.untold.launches = to.take_untold();
    for (uint8_t index = 0; index < ipc::kDevices; ++index) {
      if (!to.works_on(index)) continue;
      event.device = index;
      stepper_.step(devices_.on(index), event);
      event.untold.launches = 0;  // counted on the first device: it is unknown which one had them
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
    client->set_unobserved(client->leased());  // the policy may have ended its lease
  }
}

bool Reports::at_work(const Client& client, core::TimeNs now) const {
  return &client == unobserved_ || now - client.last_active < kRecentNs;
}

Client* Reports::alone_at_work(core::TimeNs now) const {
  Client* alone = nullptr;
  for (Client* client : roster_.managed()) {
    const bool works =
        at_work(*client, now) || client->intake().asking() || devices_.active(*client);
    if (!works) continue;
    if (alone != nullptr) return nullptr;
    alone = client;
  }
  const bool may =
      alone != nullptr && config_.report == ReportSetting::kSamples && need_not_tell(*alone);
  return may ? alone : nullptr;
}

bool Reports::need_not_tell(const Client& client) const {
  if (stepper_.recorder() != nullptr || devices_.bypass()) return false;
  if (!client.leased() || client.intake().asking()) return false;
  // Each launch of such a client must take a Turn.
  if (!client.identity().sm_set.empty() || client.identity().terms.fail_closed) return false;
  for (uint8_t index = 0; index < ipc::kDevices; ++index) {
    if (!client.works_on(index)) continue;
    const core::Scheduler& scheduler = devices_.on(index);
    if (!scheduler.view().measured(client.identity().id) || scheduler.hears_launches() ||
        scheduler.view().sized(client.identity().id)) {
      return false;
    }
  }
  return true;
}

void Observation::observe(core::TimeNs now, core::TimeNs length, uint64_t posted) {
  unobserved_ = false;
  since_ = now;
  until_ = now + length;
  posted_ = posted;
}

core::ClientId Observation::update(core::TimeNs now, core::ClientId alone, uint64_t posted) {
  if (alone != client_) {
    client_ = alone;
    observe(now, kSettleNs, posted);
  } else if (now >= until_ && unobserved_) {
    observe(now, kObservedNs, posted);
  } else if (now >= until_) {
    const double seconds = static_cast<double>(now - since_) / 1e9;
    const bool fast = static_cast<double>(posted - posted_) >= kLaunchesPerS * seconds;
    observe(now, fast ? kUnobservedNs : kSettleNs, posted);
    unobserved_ = fast && client_ != 0;
  }
  return unobserved_ ? client_ : 0;
}

}  // namespace heddle::server
