// Which SMs launches run on: each client's SM sets, the sizes that the policy gives its kernels,
// and where a launch that asks is placed (KRISP section 4.3).
#include <algorithm>

#include "daemon/core/scheduler_state.h"
#include "daemon/model/right_size.h"

namespace heddle::core {

// Its contexts are made once, before its first launch: what it attaches with is what it keeps.
void Scheduler::State::give_family(Client& c) {
  c.family = policy != nullptr ? policy->family() : SmFamily{};
  if (c.groups.count.get() == 0) return;
  c.ring.positions = c.family.placement == SmFamily::Placement::kLive ? c.family.positions : 1;
  if (c.family.placement == SmFamily::Placement::kEnd) return;
  if (c.family.placement == SmFamily::Placement::kLive) {
    c.ring.anchor = 1;  // the same sets for all: the core chooses among them
    return;
  }
  std::vector<uint8_t> taken;
  for (const auto& [id, other] : clients_by_id) {
    if (other.get() != &c && other->ring.anchor != 0) taken.push_back(other->ring.anchor);
  }
  c.ring.anchor = far_anchor(taken, c.groups.count);
}

// Isolated clients keep to the groups up to the next one that is at work.
SmSet Scheduler::State::isolated_set(const Client& c) const {
  if (c.ring.anchor == 0 || !c.family.isolated || bypass) return {};
  std::array<uint8_t, kSmGroups> others;
  size_t count = 0;
  for (const Client* other : active) {
    if (other != &c && other->ring.anchor != 0 && count < others.size()) {
      others[count++] = other->ring.anchor;
    }
  }
  const GroupCount room = room_at(c.ring.anchor, {others.data(), count}, c.groups.count);
  if (room >= c.groups.count) return {};
  GroupCount size(1);
  for (GroupCount n(1); n <= room; ++n) size = c.family.sizes.has(n) ? n : size;
  return ipc::ring_groups(size, c.ring, 0, c.sm_set, c.groups.count);
}

// The set of a launch that does not ask: of its kernel's size, within what its client is cut to.
SmSet Scheduler::State::set_of(const Client& c, uint32_t kernel) const {
  const Kernel* k = c.kernel(kernel);
  if (k == nullptr || k->size.get() == 0) return c.window_set;
  return ipc::ring_groups(k->size, c.ring, 0, c.window_set.or_if_empty(c.sm_set), c.groups.count);
}

// That which a launch would get that asks for `sm` SMs, wherever it is placed.
SmSet Scheduler::State::peek_set(const Client& c, const Waiting& w, SmCount sm) const {
  if (!w.movable()) return {};
  const GroupCount size = c.groups.size_for(sm, c.family.sizes, c.ring, c.sm_set);
  if (size.get() == 0) return c.window_set;
  return ipc::ring_groups(size, c.ring, 0, c.window_set.or_if_empty(c.sm_set), c.groups.count);
}

// The set of a launch that asks; empty if the policy named no size, or none that it can have.
SmSet Scheduler::State::place(const Client& c, const Waiting& w, SmCount sm) {
  const Kernel* k = c.kernel(w.kernel);
  GroupCount size = k != nullptr && w.movable() ? k->size : GroupCount();
  if (sm.get() > 0) {
    size = w.movable() ? c.groups.size_for(sm, c.family.sizes, c.ring, c.sm_set) : GroupCount();
    ++(size.get() != 0 ? stats.on_set : stats.off_set);
  }
  if (size.get() == 0) return c.window_set;
  if (c.family.placement != SmFamily::Placement::kLive) {
    return ipc::ring_groups(size, c.ring, 0, c.window_set.or_if_empty(c.sm_set), c.groups.count);
  }
  GroupLoad load{};
  for (const Client* other : active) {
    for (size_t i = 0; i < load.size(); ++i) load[i] += other->outstanding.load()[i];
  }
  return resource_mask(load, c.family, c.ring, size, c.sm_set, c.groups.count);
}

// Asks the policy where the kernel's launches run.
void Scheduler::State::init_kernel(Client& c, uint32_t kernel) {
  Kernel& k = c.kernels[kernel];
  k.policy = bypass ? 0 : policy_number;
  k.size = {};
  k.timed = false;
  k.launch_priority = kBuiltinPriority;
  if (policy == nullptr || bypass || !policy->hears_kernels()) return;
  LaunchView v;
  fill(c, kernel, k.is_graph() ? LaunchKind::kGraph : LaunchKind::kKernel, v);
  const KernelVerdict verdict = policy->kernel_init(*this, v);
  if (faulted(verdict.result) || verdict.result != HookResult::kDecided) return;
  k.size = c.groups.size_for(verdict.sm, c.family.sizes, c.ring, c.sm_set);
  k.timed = verdict.timed;
  k.launch_priority = verdict.launch_priority;
  c.sized |= k.sized();
}

// Unless the policy that there is now was asked already.
void Scheduler::State::ask_about(Client& c, uint32_t kernel) {
  if (kernel >= c.kernels.size() || bypass) return;
  if (const Kernel& k = c.kernels[kernel]; k.stats != nullptr && k.policy != policy_number) {
    init_kernel(c, kernel);
    send_hint(c, kernel);
  }
}

// After a change of the policy. What is left beyond so many hooks in a row is asked about as it is
// launched.
void Scheduler::State::init_kernels() {
  constexpr uint32_t kInARow = 1024;
  uint32_t asked = 0;
  for (const ClientId id : client_ids) {
    Client& c = *find(id);
    c.sized = false;
    for (uint32_t i = 0; i < c.kernels.size() && asked < kInARow; ++i) {
      if (c.kernel(i) == nullptr) continue;
      if (const Kernel& k = c.kernels[i]; k.policy == policy_number) {
        c.sized |= k.sized();
        continue;
      }
      ++asked;
      init_kernel(c, i);
      send_hint(c, i);
    }
  }
}

// How many times longer the kernel takes in a set than the `whole_us` on all that its client has.
// By its curve if it was measured; else its blocks come in more waves there, each as long as
// before, and a graph takes as long as anywhere.
double Scheduler::State::stretch(const Client& c, const Kernel& k, double whole_us,
                                 SmSet set) const {
  if (set.empty()) return 1;
  const double us = us_on_groups(k.stats->metrics, whole_us, c.groups, set.count());
  return us > 0 ? us / whole_us : static_cast<double>(k.waves_on(c.groups.sms_of(set))) / k.waves;
}

// How long the launch takes in its set.
void Scheduler::State::predict(const Client& c, Work& work) const {
  work.predicted_us = work.hold_us = predict(c, work.kernel);
  work.before = c.context;
  const Kernel* k = c.kernel(work.kernel);
  if (k == nullptr) return;
  work.hold_us /= k->waves;
  work.predicted_us *= stretch(c, *k, work.predicted_us, work.sm_set);
}

bool Scheduler::State::resize(ClientId id) {
  Client* c = find(id);
  if (c == nullptr) return false;
  for (Kernel& k : c->kernels) k.policy = 0;
  kernels_of = 0;
  windows_dirty = true;
  return true;
}

bool Scheduler::sized(ClientId id) const {
  const Client* c = state_->find(id);
  return c != nullptr && (c->sized || !c->window_set.empty());
}

}  // namespace heddle::core
