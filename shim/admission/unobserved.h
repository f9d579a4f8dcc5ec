// Launches that the daemon need not hear of: the shortest way through the shim.
//
// What a client does that is alone at work changes nobody's fate. While that is so the daemon sets
// Header::unobserved for most of the time (daemon/server/reports.h), and launches go straight
// to the driver: no record, no stay in the session. That saves little but cache lines, and they are
// what a launch costs: after 15 µs of an eager framework's own work, a posted one finds some
// forty lines of code and as many of data gone; this way needs five of each.
//
// The word is read at a fixed place, over which the control memory's first page is mapped while
// there is a session, and which is zeros otherwise: a reader holds nothing, and what it reads is
// mapped at any time. A forked child shares its parent's page; it passes launches through in any
// case, until its own session's page is there. Any thread; the mapping is the helper's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/fault.h"
#include "ipc/layout.h"
#include "shim/evidence/streams.h"
#include "shim/link/inside.h"

namespace heddle::shim {

inline constexpr size_t kPageBytes = 4096;

struct alignas(kPageBytes) WordPage {
  ipc::ControlMemory::Header header;
};
static_assert(sizeof(WordPage) == kPageBytes && offsetof(ipc::ControlMemory, header) == 0);
extern WordPage word_page;

// Handles of kernels and graphs that the daemon was told of and that are no collectives, two to a
// place: one that was pushed out takes the long way once and is back.
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

// True: the launch of this handle goes to the driver at once. Not for cooperative launches.
inline bool goes_unobserved(const void* handle) {
  if (__atomic_load_n(&heddle_shim_bypass, __ATOMIC_RELAXED) != 0) return true;
  if (word_page.header.unobserved.load(std::memory_order_relaxed) == 0) return false;
  if (!is_harmless(handle) || any_detours.load(std::memory_order_relaxed)) return false;
  ++unobserved_launches;
  HEDDLE_FAULT_POINT("unobserved: counted, not launched");
  return true;
}

// From now on that may be so of this handle; until it is forgotten.
void remember_harmless(const void* handle);
void forget_harmless(const void* handle);
void forget_all_harmless();

// Reads the word of the session whose control memory `descriptor` is; -1: of none. False: the page
// is what it was before.
[[nodiscard]] bool read_word_from(int descriptor);

}  // namespace heddle::shim
