#include "daemon/core/candidate.h"

#include <algorithm>

namespace heddle::core {

Candidate::Launch Candidate::launch_in(uint32_t slot) const {
  const bool known = slot < launches_.size() && launches_[slot].id == heads_.id_of(slot);
  return known ? launches_[slot] : Launch{};
}

bool Candidate::holds_any() const {
  for (uint32_t slot = 0; slot < launches_.size(); ++slot) {
    if (holds(slot)) return true;
  }
  return false;
}

void Candidate::meet(uint32_t slot) {
  if (slot >= launches_.size()) launches_.resize(slot + 1);
  if (launches_[slot].id == heads_.id_of(slot)) return;
  forget(slot);
  launches_[slot].id = heads_.id_of(slot);
}

bool Candidate::holds(uint32_t slot) const {
  if (slot >= launches_.size()) return false;
  const Launch& launch = launches_[slot];
  return launch.id != 0 && launch.let_go < 0 && !launch.unseen;
}

AllowanceChoice Candidate::choice_of(const Client& c) const {
  const auto found = choices_.find(c.id);
  return found != choices_.end() ? found->second : AllowanceChoice{};
}

// The predicted time left of launches that wait in reality, but that the candidate let go: of all
// clients, or of one.
double Candidate::in_flight_us(const Client* of) const {
  double us = 0;
  for (uint32_t slot = 0; slot < launches_.size(); ++slot) {
    const Launch& launch = launches_[slot];
    if (launch.id == 0 || launch.let_go < 0) continue;
    if (of != nullptr && heads_[slot].client != of) continue;
    us += std::max(0.0, launch.predicted_us - to_us(now_.clock - launch.let_go));
  }
  return us;
}

bool Candidate::at_work(const Client& c) const {
  return !c.work.outstanding.empty() || in_flight_us(&c) > 0;
}

void Candidate::forget(uint32_t slot) {
  if (slot >= launches_.size()) return;
  Launch& launch = launches_[slot];
  queues_.remove(launch.id, launch.queue);
  launch = {};
}

void Candidate::let_go(uint32_t slot) {
  Launch& launch = launches_[slot];
  queues_.remove(launch.id, launch.queue);
  launch.let_go = now_.clock;
  launch.predicted_us = heads_[slot].predicted_us();
}

GpuView Candidate::gpu() const {
  GpuView view = Sight::gpu();
  view.inflight_us += in_flight_us(nullptr);
  return view;
}

bool Candidate::client(ClientId id, ClientView& view) const {
  if (!Sight::client(id, view)) return false;
  const Client& c = *roster_.find(id);
  view.allowed = allowance_of(c);
  view.inflight_us += in_flight_us(&c);
  return true;
}

bool Candidate::queue_insert(QueueId queue, LaunchId id, double key) {
  const uint32_t slot = heads_.slot_of(id);
  if (slot == kNoHead || !holds(slot)) return false;
  const Head& w = heads_[slot];
  return queues_.insert(queue, launches_[slot].queue, id, key, w.turn_us, w.arrival,
                        w.predicted_us());
}

bool Candidate::set_allowance(ClientId id, Allowance allowed, double for_us) {
  if (roster_.find(id) == nullptr) return false;
  choices_[id].set(allowed, to_ns(for_us), now_.clock);
  return true;
}

}  // namespace heddle::core
