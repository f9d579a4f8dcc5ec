// The gate page: how the daemon lets queued work of a client go on the GPU.
//
// A gate is a wait of the stream in front of a unit of work: until `word` has reached the unit's
// ticket. Where a stream cannot wait the launching thread does, at its slot (ipc/slot.h): the
// daemon says there which ticket went. The shim numbers the units of a device in the order in which
// it posts them, so that a release is always a prefix, and one store opens or closes all gates of
// the device.
//
//   daemon  word:     up to here            far ahead of what is posted: open. Closed again it is
//                                           lower, and never below the floor
//   shim    floor:    this prefix goes, whatever the daemon says: others may wait for it. Far ahead
//                                           while the daemon is silent or gone, then back
//   daemon  running:  1, 0                  gates inside graphs wait for 1
//   daemon  wanted:   kGatesSoon            what is launched may yet stand at gates
//                     kGatesInside          somebody may have graphs stopped: long ones have some
//                                           inside
//                     kKernelsAsk           nothing but such graphs stands there, threads wait:
//                                           the policy chooses more of a launch than when it goes
//   GPU     done:     ticket                the unit with that ticket is over
//
// Two write the word. The daemon stores it, and again until the floor that it read is the floor.
// The shim raises the floor, then the word. So the word ends at no less than the floor; where it
// stands higher than the later of floor and what was released, the daemon finds it at its next
// look.
//
// A unit is one launch or some of one thread in one stream, without another unit between them: all
// have its ticket. A gate inside a graph has none, for it is made once and launched often: it
// stands while `running` is 0.
//
// The daemon makes a page for each session, sealed as the client's memory is.
// The shim registers it with CUDA and never unmaps it: queued waits read it. Whatever a client
// writes there opens or closes its own gates only. tests/unit/gate_model_test.cc explores this very
// code, one access to shared memory at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "ipc/fault.h"
#include "ipc/limits.h"

namespace heddle::ipc {

// Units of a device that may be posted and not done: more than the shim lets wait.
inline constexpr uint32_t kGateUnits = 256;

inline constexpr uint32_t kGatesSoon = 1, kKernelsAsk = 2, kGatesInside = 4;  // bits

struct alignas(4096) GatePage {
  std::atomic<uint32_t> floor[kDevices];             // by the shim
  alignas(64) std::atomic<int64_t> heartbeat_ns;     // as ControlMemory's
  alignas(64) std::atomic<uint32_t> word[kDevices];  // by the daemon; raised by the shim
  std::atomic<uint32_t> running[kDevices];           // the same
  std::atomic<uint32_t> wanted[kDevices];            // by the daemon
  alignas(64) std::atomic<uint32_t> done[kDevices][kGateUnits];  // by the GPU: ticket % kGateUnits
};

// As far ahead of the newest ticket an open word stands: 11 hours at 27 000 tickets a second. Half
// of what a comparison can tell apart, so that an older idea of the newest ticket does no harm.
inline constexpr uint32_t kGateAhead = uint32_t{1} << 30;

// CU_STREAM_WAIT_VALUE_GEQ, which is cyclic.
constexpr bool gate_lets(uint32_t word, uint32_t ticket) {
  return static_cast<int32_t>(word - ticket) >= 0;
}
constexpr uint32_t gate_later(uint32_t a, uint32_t b) { return gate_lets(a, b) ? a : b; }
// What to store so that all gates stand open. `posted`: the newest ticket.
constexpr uint32_t gate_open(uint32_t posted) { return posted + kGateAhead; }
// No longer once half of the way ahead is used up: then gate_open is stored again.
constexpr bool gate_is_open(uint32_t word, uint32_t posted) {
  return static_cast<int32_t>(word - posted) >= static_cast<int32_t>(kGateAhead / 2);
}

// ---- daemon side ----

// What stands in the word behind that: the later of both, at the last look at the floor. A client
// that moves its floor all the time delays nobody by that, and is looked at again.
template <class Fault = FaultPoint, class Word>
uint32_t gate_release(Word& word, const Word& floor, uint32_t released) {
  constexpr int kMostLooks = 64;
  uint32_t seen = floor.load(std::memory_order_seq_cst), stored = 0;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    stored = gate_later(released, seen);
    word.store(stored, std::memory_order_seq_cst);
    Fault::at("gate: stored, floor not read");
    const uint32_t before = std::exchange(seen, floor.load(std::memory_order_seq_cst));
    if (seen == before) break;
  }
  return stored;
}
// Lets graphs run on, or stops each at its next gate: unless a unit up to the floor may stand
// there. `done`: all up to here are over. The newest that is over does not say so: an older unit of
// another stream may stand.
template <class Fault = FaultPoint, class Word>
bool gate_run(Word& running, const Word& floor, uint32_t done, bool on) {
  running.store(on ? 1 : 0, std::memory_order_seq_cst);
  Fault::at("gate: stopped, floor not read");
  if (on || gate_lets(done, floor.load(std::memory_order_seq_cst))) return on;
  running.store(1, std::memory_order_seq_cst);
  return true;
}

// ---- shim side ----

// Moves on to `value`, and never back. Any thread.
template <class Word>
void gate_raise(Word& word, uint32_t value) {
  uint32_t seen = word.load(std::memory_order_seq_cst);
  while (!gate_lets(seen, value) &&
         !word.compare_exchange_weak(seen, value, std::memory_order_seq_cst)) {
  }
}
// The prefix goes. Any thread.
template <class Fault = FaultPoint, class Word>
void gate_floor(Word& floor, Word& word, Word& running, uint32_t upto) {
  gate_raise(floor, upto);
  Fault::at("gate: floor raised, word not");
  gate_raise(word, floor.load(std::memory_order_seq_cst));
  running.store(1, std::memory_order_seq_cst);
}
// All goes, what is posted later too: to be called again and again. By one thread alone, and so is
// what follows.
template <class Fault = FaultPoint, class Word>
void gate_open_floor(Word& floor, Word& word, Word& running, const Word& posted) {
  const uint32_t newest = posted.load(std::memory_order_seq_cst);
  if (!gate_is_open(floor.load(std::memory_order_seq_cst), newest)) {
    floor.store(gate_open(newest), std::memory_order_seq_cst);
    Fault::at("gate: floor open, word not");
  }
  gate_raise(word, floor.load(std::memory_order_seq_cst));
  running.store(1, std::memory_order_seq_cst);
}
// No more than what is posted by now. Threads whose own prefix an open floor held meanwhile count
// on it: it ends at no less than what was posted when it is stored.
template <class Fault = FaultPoint, class Word>
void gate_close_floor(Word& floor, Word& word, Word& running, const Word& posted) {
  uint32_t newest = posted.load(std::memory_order_seq_cst);
  for (;;) {
    floor.store(newest, std::memory_order_seq_cst);
    Fault::at("gate: floor lowered, tickets not read");
    const uint32_t now = posted.load(std::memory_order_seq_cst);
    if (now == newest) break;
    newest = now;
  }
  gate_floor<Fault>(floor, word, running, newest);
}
// A floor that nobody raises stays near enough for a comparison: what is that old is over.
template <class Word>
void gate_follow(Word& floor, const Word& posted) {
  const uint32_t newest = posted.load(std::memory_order_relaxed);
  if (static_cast<int32_t>(newest - floor.load(std::memory_order_relaxed)) >=
      static_cast<int32_t>(kGateAhead / 2)) {
    gate_raise(floor, newest - kGateAhead / 4);
  }
}

static_assert(sizeof(GatePage) % 4096 == 0, "CUDA registers whole pages");

}  // namespace heddle::ipc
