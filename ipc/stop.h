// Stops: how the daemon has a client's kernels stand that run, and for how long it has the GPU at a
// time. The client's shim does both with the driver's own objects (shim/stop/); time-sliced only.
//
//   daemon  DeviceTerms::stop          what it wants: channels off or on, and a time slice
//   daemon  ControlMemory::stop_order  moves behind each change of such a word; a futex
//   shim    ThreadBlock::stop_able     whether it can, or why not; of the device with that number
//   shim    ThreadBlock::stop_done     the newest stop_order that it carried out there
//   shim    ThreadBlock::stop_us       what that took
//
// A stop is a lease of the shim's: it ends with the daemon's heartbeat, the session, the context
// and the process, whatever the word says. All is zero from builds that know no stops.
#pragma once

#include <cstdint>

namespace heddle::ipc {

struct StopOrder {
  bool off = false;       // the channels are off: what runs stands in its middle
  uint32_t slice_us = 0;  // 0: the driver's own
  bool operator==(const StopOrder&) const = default;
};

// No slice is shorter: two clients with shorter ones make no progress at all (measured: H200). Nor
// longer: the driver's largest.
inline constexpr uint32_t kSliceUsLeast = 100, kSliceUsMost = 1'000'000;

constexpr uint32_t pack_stop(StopOrder order) { return order.slice_us << 1 | uint32_t{order.off}; }
// What no daemon writes is no slice.
constexpr StopOrder unpack_stop(uint32_t word) {
  const uint32_t us = word >> 1;
  return {(word & 1) != 0, us >= kSliceUsLeast && us <= kSliceUsMost ? us : 0};
}

// Whether a process can be stopped on a device. What is not known is not stopped.
enum StopAble : uint32_t {
  kStopNotSaid = 0,  // a shim that knows no stops, or has not looked yet
  kStopYes = 1,
  kStopNoChannels = 2,    // no channels of it were seen: it has none yet, or the driver was loaded
                          // before the shim looked
  kStopMps = 3,           // under MPS all clients of the server would stand
  kStopUnknownClass = 4,  // a channel of a class that this build does not know
  kStopShared = 5,        // a channel or its client is duplicated, or of another process
  kStopTooMany = 6,       // more channels than one call takes
  kStopOwnUse = 7,        // the program switches channels itself
  kStopSeveralGpus = 8,   // its channels are on more than one GPU
  kStopRefused = 9,       // the driver refused
  kStopTraced = 10,       // a debugger or a checker holds the process
  kStopNoThread = 11,     // the shim could start no thread
  kStopNotAsked = 12,     // heddled: the GPU was not asked, or cannot, or [gpu] stops is "off"
  kStopAbleCount
};

}  // namespace heddle::ipc
