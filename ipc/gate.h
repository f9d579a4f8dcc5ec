// The gate page: how the daemon lets queued work of a client go on the GPU.
//
// A gate is a wait of the stream in front of a unit of work: until `released` has reached the
// unit's ticket. The shim numbers the units of a device in the order in which it posts them, so
// that a release is always a prefix, and one store opens or closes all gates of the device.
//
//   daemon  released: up to here            far ahead of what is posted: open
//   daemon  running:  1, 0                  gates inside graphs wait for 1
//   daemon  wanted:   kGatesWanted          somebody else may have launches stopped: a finite
//                                           window's stand at gates too, long graphs have some
//                                           inside
//                     kKernelsAsk           nothing but such graphs stands there: the policy
//                                           chooses more of a launch than when it goes
//   GPU     done:     ticket                the unit with that ticket is over
//   shim    leaving:  0 -> 1, for good      from then on the gates of this session stand open
//
// A unit is one launch or some of one thread in one stream, without another unit between them: all
// have its ticket. A gate inside a graph has none, for it is made once and launched often: it
// stands while `running` is 0.
//
// The daemon makes a page for each session that may have gates, sealed as the client's memory is.
// The shim registers it with CUDA and never unmaps it: queued waits read it. Whatever a client
// writes there opens or closes its own gates only. tests/unit/gate_model_test.cc explores this very
// code, one access to shared memory at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/fault.h"
#include "ipc/limits.h"

namespace heddle::ipc {

// Units of a device that may be posted and not done: more than the shim lets wait.
inline constexpr uint32_t kGateUnits = 256;

inline constexpr uint32_t kGatesWanted = 1, kKernelsAsk = 2;  // bits

struct alignas(4096) GatePage {
  std::atomic<uint32_t> leaving;                         // by the shim
  alignas(64) std::atomic<int64_t> heartbeat_ns;         // as ControlMemory's
  alignas(64) std::atomic<uint32_t> released[kDevices];  // by the daemon, and by a leaving shim
  std::atomic<uint32_t> running[kDevices];               // the same
  std::atomic<uint32_t> wanted[kDevices];                // by the daemon
  alignas(64) std::atomic<uint32_t> done[kDevices][kGateUnits];  // by the GPU: ticket % kGateUnits
};

// As far ahead of the newest ticket an open word stands: 11 hours at 27 000 tickets a second. Half
// of what a comparison can tell apart, so that an older idea of the newest ticket does no harm.
inline constexpr uint32_t kGateAhead = uint32_t{1} << 30;

// CU_STREAM_WAIT_VALUE_GEQ, which is cyclic.
constexpr bool gate_lets(uint32_t released, uint32_t ticket) {
  return static_cast<int32_t>(released - ticket) >= 0;
}
// What to store so that all gates stand open. `posted`: the newest ticket.
constexpr uint32_t gate_open(uint32_t posted) { return posted + kGateAhead; }
// No longer once half of the way ahead is used up: then gate_open is stored again.
constexpr bool gate_is_open(uint32_t released, uint32_t posted) {
  return static_cast<int32_t>(released - posted) >= static_cast<int32_t>(kGateAhead / 2);
}

// ---- daemon side ----

// Stores `value`. If the shim is leaving, the word stands `open` instead: either it stored
// `leaving` before this looks, or it opens after this.
template <class Fault = FaultPoint, class Word>
void gate_store(Word& word, const Word& leaving, uint32_t value, uint32_t open) {
  word.store(value, std::memory_order_seq_cst);
  Fault::at("gate: stored, leaving not read");
  if (leaving.load(std::memory_order_seq_cst) == 0) return;
  word.store(open, std::memory_order_release);
}
// Lets go what has a ticket up to `upto`, and closes the gates behind it.
template <class Fault = FaultPoint, class Word>
void gate_release(Word& released, const Word& leaving, uint32_t upto, uint32_t posted) {
  gate_store<Fault>(released, leaving, upto, gate_open(posted));
}
// Lets graphs run on, or stops each at its next gate.
template <class Fault = FaultPoint, class Word>
void gate_run(Word& running, const Word& leaving, bool on) {
  gate_store<Fault>(running, leaving, on ? 1 : 0, 1);
}

// ---- shim side, by the opener ----

template <class Fault = FaultPoint, class Word>
void gate_leave(Word& leaving) {
  leaving.store(1, std::memory_order_seq_cst);
  Fault::at("gate: leaving, not open");
}

// Behind gate_leave, for each device, and from then on again and again: a daemon that was stopped
// inside gate_release may close the gates when it goes on, and end before it opens them.
template <class Word>
void gate_keep_open(Word& released, uint32_t posted) {
  if (gate_is_open(released.load(std::memory_order_acquire), posted)) return;
  released.store(gate_open(posted), std::memory_order_seq_cst);
}

// The same for gates inside graphs.
template <class Word>
void gate_keep_running(Word& running) {
  if (running.load(std::memory_order_acquire) == 0) running.store(1, std::memory_order_seq_cst);
}

static_assert(sizeof(GatePage) % 4096 == 0, "CUDA registers whole pages");

}  // namespace heddle::ipc
