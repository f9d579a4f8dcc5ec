#include "shim/stop/hook.h"

#include <errno.h>
#include <sched.h>

#include "shim/driver/import.h"
#include "shim/link/environment.h"
#include "shim/link/log.h"
#include "shim/stop/lever.h"

namespace heddle::shim {

constinit std::atomic<Ioctl> driver_ioctl{nullptr};

namespace {

constinit Objects table;

// ioctl() is variadic in C: on x86-64 its third argument is passed in the same register.
int seen_ioctl(int fd, unsigned long request, void* argument) {
  const int result = driver_ioctl.load(std::memory_order_acquire)(fd, request, argument);
  if (result != 0 || _IOC_TYPE(request) != rm::kType) return result;
  const int before = errno;
  const uint32_t version = objects().version();
  objects().observe(fd, request, argument);
  if (objects().version() != version) wake_idle_lever();
  errno = before;
  return result;
}

// The function whose address is stored at `place`. If libcuda is bound lazily, that is a stub,
// which would overwrite the shim's function later. Calling the stub once, without a descriptor,
// makes it store the real address.
Ioctl bound(void** place) {
  const int before = errno;
  reinterpret_cast<Ioctl>(__atomic_load_n(place, __ATOMIC_ACQUIRE))(-1, 0, nullptr);
  errno = before;
  return reinterpret_cast<Ioctl>(__atomic_load_n(place, __ATOMIC_ACQUIRE));
}

}  // namespace

Objects& objects() {
  enum : uint32_t { kNotYet = 0, kForgetting = 1, kOwn = 2 };
  std::atomic<uint32_t>& state = guard().objects;
  uint32_t expected = kNotYet;
  if (state.load(std::memory_order_acquire) == kOwn) return table;
  if (state.compare_exchange_strong(expected, kForgetting)) {
    table.forget();
    state.store(kOwn, std::memory_order_release);
  }
  while (state.load(std::memory_order_acquire) != kOwn) sched_yield();
  return table;
}

void watch_requests(const void* inside) {
  // Only one thread does this: two could undo each other's page protection. Another thread goes on.
  // Objects that it makes meanwhile stay unknown, and an unknown channel is never stopped.
  static constinit std::atomic<bool> begun{false};
  if (is_set("HEDDLE_DISABLE") || is_off("HEDDLE_STOPS")) return;
  if (inside == nullptr || !make_guard_page() || begun.exchange(true)) return;
  constexpr size_t kPlaces = 4;
  void** places[kPlaces];
  const size_t found = find_imports(inside, "ioctl", places, kPlaces);
  for (size_t i = 0; i < found && i < kPlaces; ++i) {
    driver_ioctl.store(bound(places[i]), std::memory_order_release);
    if (!replace_import(places[i], reinterpret_cast<void*>(seen_ioctl))) {
      log_line("the driver's requests cannot be seen; its kernels cannot be stopped");
    }
  }
}

}  // namespace heddle::shim
