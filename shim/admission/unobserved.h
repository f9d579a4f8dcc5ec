// Launches that the daemon need not hear of: the shortest way through the shim.
//
// While only one client is active, no decision depends on its launches. The daemon then sets
// Header::unobserved for most of the time (daemon/server/reports.h), and launches go straight to
// the driver: no record, no stay in the session. This saves cache misses, which are most of a
// launch's cost. After 15 µs of an eager framework's own work, a posted launch misses some forty
// lines of code and as many of data. This way needs five of each.
//
// A launch reads the word at a fixed address, `word_page`. The helper thread maps the control
// memory's first page there for a session, and a page of zeros otherwise. So the address is always
// mapped, and a reader needs no session. A forked child shares its parent's page: until it has a
// session of its own, it passes its launches through in any case. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/fault.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"
#include "shim/link/residence.h"

namespace heddle::shim {

// Handles of kernels and graphs that the daemon knows and that are no collectives. A small cache of
// two handles a place: a handle that was pushed out takes a Turn once, which puts it back.
struct Harmless {
  std::atomic<const void*> handles[2];
};
inline constexpr int kHarmlessBits = 10;
extern Harmless harmless[1 << kHarmlessBits];

inline Harmless& harmless_place(const void* handle) {
  return harmless[reinterpret_cast<uint64_t>(handle) * 0x9e3779b97f4a7c15u >> (64 - kHarmlessBits)];
}
inline bool is_harmless(const void* handle) {
  const Harmless& place = harmless_place(handle);
  return place.handles[0].load(std::memory_order_relaxed) == handle ||
         place.handles[1].load(std::memory_order_relaxed) == handle;
}

// True: the launch of this handle goes straight to the driver. Not asked for cooperative launches.
inline bool goes_unobserved(const void* handle) {
  if (__atomic_load_n(&heddle_shim_bypass, __ATOMIC_RELAXED) != 0) return true;
  if (word_page.header.unobserved.load(std::memory_order_relaxed) == 0) return false;
  if (!is_harmless(handle) || any_detours.load(std::memory_order_relaxed)) return false;
  ++unobserved_launches;
  HEDDLE_FAULT_POINT("unobserved: counted, not launched");
  return true;
}

// Launches of this handle may go unobserved from now on, until it is forgotten.
void remember_harmless(const void* handle);
void forget_harmless(const void* handle);
void forget_all_harmless();

}  // namespace heddle::shim
