// The sizes that the policy gives the kernels of clients.
#include <algorithm>

#include "daemon/core/scheduler_state.h"

namespace heddle::core {

// Asks the policy where the kernel's launches run.
void Scheduler::State::init_kernel(Client& c, uint32_t kernel) {
  Kernel& k = c.known.kernels[kernel];
  k.policy = bypass ? 0 : policy_number;
  k.size = {};
  k.timed = false;
  k.launch_priority = kBuiltinPriority;
  if (policy == nullptr || bypass || !policy->hears_kernels()) return;
  LaunchView v;
  fill(c, kernel, k.is_graph() ? LaunchKind::kGraph : LaunchKind::kKernel, v);
  const KernelVerdict verdict = policy->kernel_init(*this, v);
  if (faulted(verdict.result) || verdict.result != HookResult::kDecided) return;
  k.size = c.place.size_for(verdict.sm);
  k.timed = verdict.timed;
  k.launch_priority = verdict.launch_priority;
  c.place.sized |= k.sized();
}

void Scheduler::State::ask_anew(Client& c, uint32_t kernel) {
  if (c.kernel(kernel) == nullptr) return;
  init_kernel(c, kernel);
  learning.tell(c, kernel);
}

// Unless the policy that there is now was asked already.
void Scheduler::State::ask_about(Client& c, uint32_t kernel) {
  if (kernel >= c.known.kernels.size() || bypass) return;
  if (const Kernel& k = c.known.kernels[kernel]; k.stats != nullptr && k.policy != policy_number) {
    init_kernel(c, kernel);
    learning.tell(c, kernel);
  }
}

// After a change of the policy. What is left beyond so many hooks in a row is asked about as it is
// launched.
void Scheduler::State::init_kernels() {
  constexpr uint32_t kInARow = 1024;
  uint32_t asked = 0;
  for (const ClientId id : roster.ids()) {
    Client& c = *roster.find(id);
    c.place.sized = false;
    for (uint32_t i = 0; i < c.known.kernels.size() && asked < kInARow; ++i) {
      if (c.kernel(i) == nullptr) continue;
      if (const Kernel& k = c.known.kernels[i]; k.policy == policy_number) {
        c.place.sized |= k.sized();
        continue;
      }
      ++asked;
      init_kernel(c, i);
      learning.tell(c, i);
    }
  }
}

bool Scheduler::State::resize(ClientId id) {
  Client* c = roster.find(id);
  if (c == nullptr) return false;
  for (Kernel& k : c->known.kernels) k.policy = 0;
  kernels_of = 0;
  windows_dirty = true;
  return true;
}

bool Scheduler::sized(ClientId id) const {
  const Client* c = state_->roster.find(id);
  return c != nullptr && (c->place.sized || !c->place.window_set.empty());
}

}  // namespace heddle::core
