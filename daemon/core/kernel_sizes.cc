#include "daemon/core/kernel_sizes.h"

namespace heddle::core {

// Where its launches run; the client is told.
void KernelSizes::ask(Client& c, uint32_t kernel) {
  Kernel& k = c.known.kernels[kernel];
  k.policy = now_.bypass ? 0 : seat_.number();
  k.size = {};
  k.timed = false;
  k.launch_priority = kBuiltinPriority;
  const KernelVerdict verdict = seat_.kernel(c, kernel);
  if (verdict.result == HookResult::kDecided) {
    k.size = c.place.size_for(verdict.sm);
    k.timed = verdict.timed;
    k.launch_priority = verdict.launch_priority;
    c.place.sized |= k.sized();
  }
  learning_.tell(c, kernel);
}

void KernelSizes::ask_anew(Client& c, uint32_t kernel) {
  if (c.kernel(kernel) != nullptr) ask(c, kernel);
}

void KernelSizes::ask_about(Client& c, uint32_t kernel) {
  if (c.kernel(kernel) == nullptr) return;
  Kernel& k = c.known.kernels[kernel];
  learning_.renew(c, k, promises_);
  if (!now_.bypass && k.policy != seat_.number()) ask(c, kernel);
}

// What is left beyond so many hooks in a row is asked about as it is launched.
void KernelSizes::ask_about_all() {
  constexpr uint32_t kInARow = 1024;
  uint32_t asked = 0;
  now_.kernels_dirty = false;
  for (const ClientId id : roster_.ids()) {
    Client& c = *roster_.find(id);
    c.place.sized = false;
    for (uint32_t i = 0; i < c.known.kernels.size() && asked < kInARow; ++i) {
      if (c.kernel(i) == nullptr) continue;
      if (const Kernel& k = c.known.kernels[i]; k.policy == seat_.number()) {
        c.place.sized |= k.sized();
        continue;
      }
      ++asked;
      ask(c, i);
    }
  }
}

}  // namespace heddle::core
