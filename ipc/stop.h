// Stops and time slices: the daemon orders a client's shim to stop the client's running kernels,
// and sets how long the client has the GPU at a time. The shim does both with the driver's own
// objects (shim/stop/); time-sliced only.
//
//   daemon  DeviceTerms::stop          the order: channels off or on, and a time slice
//   daemon  ControlMemory::stop_order  changes after each change of such a word; a futex
//   shim    ThreadBlock::stop_able     whether the shim can stop kernels on the device with the
//                                      block's number, or why not
//   shim    ThreadBlock::stop_done     the newest stop_order that it carried out there
//   shim    ThreadBlock::stop_us       how long that took
//
// A stop ends, whatever the word says, when the daemon's heartbeat stops or the session, the
// context or the process ends. All words are zero from builds that know no stops.
#pragma once

#include <cstdint>

namespace heddle::ipc {

struct StopOrder {
  bool off = false;       // the channels are off: running kernels are stopped
  uint32_t slice_us = 0;  // 0: the driver's own
  bool operator==(const StopOrder&) const = default;
};

// The shortest and the longest slice. Two clients with shorter ones make no progress at all
// (measured: H200); the driver allows no longer one.
inline constexpr uint32_t kSliceUsLeast = 100, kSliceUsMost = 1'000'000;

constexpr uint32_t pack_stop(StopOrder order) { return order.slice_us << 1 | uint32_t{order.off}; }
// A slice that no daemon writes counts as none.
constexpr StopOrder unpack_stop(uint32_t word) {
  const uint32_t us = word >> 1;
  return {(word & 1) != 0, us >= kSliceUsLeast && us <= kSliceUsMost ? us : 0};
}

// Whether a process can be stopped on a device. The shim stops only channels that it knows.
enum StopAble : uint32_t {
  kStopNotSaid = 0,  // a shim that knows no stops, or has not looked yet
  kStopYes = 1,
  kStopNoChannels = 2,    // the shim saw none of its channels: it has none yet, or the driver was
                          // loaded before the shim looked
  kStopMps = 3,           // under MPS it would stop all clients of the server
  kStopUnknownClass = 4,  // a channel of a class that this build does not know
  kStopShared = 5,        // a channel or its client is duplicated, or of another process
  kStopTooMany = 6,       // more channels than one call takes
  kStopOwnUse = 7,        // the program switches channels itself
  kStopSeveralGpus = 8,   // its channels are on more than one GPU
  kStopRefused = 9,       // the driver refused
  kStopTraced = 10,       // a debugger or a checker holds the process
  kStopNoThread = 11,     // the shim could start no thread
  kStopNotAsked = 12,     // heddled did not ask the GPU, the GPU cannot, or [gpu] stops is "off"
  kStopAbleCount
};

}  // namespace heddle::ipc
