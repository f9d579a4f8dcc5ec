// Who shares the GPUs: what the engine tells clients and cores of that.
#include <algorithm>
#include <bit>

#include "daemon/server/engine.h"

namespace heddle::server {
namespace {

// Less important work that waits from ask to ask counts as waiting in between, so that the word on
// which more important clients report finely does not flicker.
constexpr core::TimeNs kContendedNs = 5'000'000;
// Whoever comes makes a context first, which takes longer than what was submitted by who was alone
// takes to end. But those that were there before heddled was started anew are back at once, and who
// has just left may come again.
constexpr core::TimeNs kAloneNs = 1'000'000'000;

}  // namespace

bool Engine::set_terms(Client& client, int priority, const std::string& rule, const Terms& terms,
                       core::TimeNs now) {
  const Identity before = client.identity();
  client.set_terms(priority, rule, terms);
  const Identity& after = client.identity();
  if (before.priority == after.priority && before.terms == after.terms) return false;
  observe_all(now);
  core::Event event(core::EventKind::kTerms, now, after.id);
  event.terms = {static_cast<float>(after.terms.share), static_cast<float>(after.terms.slo_ms),
                 after.terms.window_us, static_cast<uint8_t>(after.priority),
                 static_cast<float>(after.terms.slowdown_max)};
  for (uint8_t index = 0; client.managed() && index < ipc::kDevices; ++index) {
    if (!client.on_gpu(index)) continue;
    event.device = index;
    step(*devices_[index].scheduler, event);
  }
  update_contended(now);
  check_quarantine(now);
  return true;
}

// A client is contended while somebody less important waits for a GPU that it works on.
void Engine::update_contended(core::TimeNs now) {
  std::array<int8_t, ipc::kDevices> lowest;
  lowest.fill(-1);
  for (const Client* client : polled_) {
    if (client->intake().asking() == 0) continue;
    for (GpuNumbers::Numbers rest = client->working(); rest != 0; rest &= rest - 1) {
      int8_t& on = lowest[static_cast<size_t>(std::countr_zero(rest))];
      on = std::max(on, static_cast<int8_t>(client->identity().priority));
    }
  }
  bool changed = false;
  for (size_t gpu = 0; gpu < devices_used_; ++gpu) {
    Contention& c = contention_[gpu];
    // Not so soon back: each change is a write to a line that all launching threads read.
    if (lowest[gpu] >= c.below) {
      c.until = now + kContendedNs;
    } else if (now < c.until) {
      continue;
    }
    changed |= lowest[gpu] != c.below;
    c.below = lowest[gpu];
  }
  if (!changed) return;
  for (Client* client : polled_) client->set_contended(is_contended(*client));
}

bool Engine::is_contended(const Client& client) const {
  for (GpuNumbers::Numbers rest = client.working(); rest != 0; rest &= rest - 1) {
    const Contention& c = contention_[static_cast<size_t>(std::countr_zero(rest))];
    if (client.identity().priority < c.below) return true;
  }
  return false;
}

bool Engine::contended() const {
  const auto waits = [](const Contention& c) { return c.below >= 0; };
  return std::any_of(contention_.begin(), contention_.begin() + devices_used_, waits);
}

void Engine::update_alone(core::TimeNs now) {
  if (clients_.size() > 1 || shared_at_ == 0) shared_at_ = now;
  const bool alone = now - shared_at_ >= kAloneNs;
  if (alone == alone_) return;
  alone_ = alone;
  for (Device& device : devices_) {
    if (!device.scheduler) continue;
    const std::span<const core::Decision> decisions = device.scheduler->set_alone(alone, now);
    if (recorder_ != nullptr) recorder_->device(device.scheduler->config(), now, false);
    apply(decisions);
  }
}

}  // namespace heddle::server
