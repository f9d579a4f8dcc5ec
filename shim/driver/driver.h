// The real driver: where it is, and each of its entry points, resolved at the first call.
//
// Any thread may call anything here at any time, also before cuInit; nothing here runs in a
// constructor.
#pragma once

#include "shim/driver/calls.h"
#include "shim/link/residence.h"

namespace heddle::shim {

// Every entry point, in the order of entry_points.inc.
enum Entry : uint32_t {
#define HEDDLE_ENTRY(name) kEntry_##name,
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY
  kEntryCount
};

extern "C" void* heddle_slots[];  // trampolines.S

// The driver's own `name`, callable at once: while the process's memory is parked, this waits.
#define HEDDLE_REAL(name)             \
  (::heddle::shim::await_memory(),    \
   reinterpret_cast<decltype(&name)>( \
       __atomic_load_n(&heddle_slots[::heddle::shim::kEntry_##name], __ATOMIC_RELAXED)))

// True if the driver has this entry point: newer ones are optional, each with its fallback.
bool driver_has(Entry entry);

// The calling thread's context and its device; nullptr and -1: it has none. Without a context,
// current_device() does not ask the driver: a refusal would be an entry in the application's error
// log.
CUcontext current_context();
CUdevice current_device();

// If `address` is the driver's own address of an entry point, the shim's: a wrapper, or what passes
// the call on. Otherwise `address` itself. Matched by pointer, never by name, so that version and
// stream semantics are right by construction.
void* replacement(void* address);

}  // namespace heddle::shim
