// The gate page: by it the daemon lets a client's queued work go on the GPU.
//
// A gate is a wait of the stream in front of a unit of work, until `word` reaches the unit's
// ticket. If a stream cannot wait, the launching thread waits at its slot (ipc/slot.h), where the
// daemon stores the ticket that it lets go. The shim numbers the units of a device in the order in
// which it posts them, so that a release is always a prefix, and one store opens or closes all
// gates of the device.
//
//   daemon  word:     ticket                units up to this ticket may go. Far ahead of the newest
//                                           ticket: open. The word moves back when the daemon
//                                           closes the gates, but never below the floor
//   shim    floor:    ticket                units up to this ticket go, whatever the daemon says,
//                                           because other work may wait for them. Far ahead while
//                                           the daemon is silent or gone, then back
//   daemon  running:  1, 0                  gates inside graphs wait for 1
//   daemon  wanted:   kGatesSoon            later launches may stand at gates
//                     kGatesInside          graphs may be stopped: long ones need gates inside
//                     kKernelsAsk           only long graphs stand at gates; other launches wait in
//                                           their threads, because the policy chooses more for each
//                                           than when it goes
//   GPU     done:     ticket                the unit with that ticket is complete
//
// Both sides write the word. The daemon stores it, then reads the floor, and repeats both until the
// floor has not changed in between. The shim raises the floor, then the word. So the word never
// stays below the floor. If it stays higher than both the floor and the daemon's release, the
// daemon corrects it at its next check.
//
// A unit is one launch, or several consecutive launches of one thread in one stream, which share a
// ticket. A gate inside a graph has no ticket, because the graph is made once and launched often:
// it waits while `running` is 0.
//
// The daemon makes a page for each session, sealed as the client's memory is. The shim registers it
// with CUDA and never unmaps it, because queued waits read it. A client that writes to it opens or
// closes only its own gates. tests/unit/gate_model_test.cc explores this very code, one access to
// shared memory at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "ipc/fault.h"
#include "ipc/limits.h"

namespace heddle::ipc {

// Units of a device that may be posted and not complete. The shim lets fewer wait.
inline constexpr uint32_t kGateUnits = 256;

inline constexpr uint32_t kGatesSoon = 1, kKernelsAsk = 2, kGatesInside = 4;  // bits

struct alignas(4096) GatePage {
  std::atomic<uint32_t> floor[kDevices];             // by the shim
  alignas(64) std::atomic<int64_t> heartbeat_ns;     // as in ControlMemory
  alignas(64) std::atomic<uint32_t> word[kDevices];  // by the daemon; raised by the shim
  std::atomic<uint32_t> running[kDevices];           // by the daemon; set to 1 by the shim
  std::atomic<uint32_t> wanted[kDevices];            // by the daemon
  alignas(64) std::atomic<uint32_t> done[kDevices][kGateUnits];  // by the GPU: ticket % kGateUnits
};

// How far an open word is ahead of the newest ticket: 11 hours at 27 000 tickets a second. It is
// half of the range of a cyclic comparison, so that an outdated newest ticket does no harm.
inline constexpr uint32_t kGateAhead = uint32_t{1} << 30;

// The comparison of CU_STREAM_WAIT_VALUE_GEQ, which is cyclic.
constexpr bool gate_lets(uint32_t word, uint32_t ticket) {
  return static_cast<int32_t>(word - ticket) >= 0;
}
constexpr uint32_t gate_later(uint32_t a, uint32_t b) { return gate_lets(a, b) ? a : b; }
// The word that opens all gates. `posted`: the newest ticket.
constexpr uint32_t gate_open(uint32_t posted) { return posted + kGateAhead; }
// False once half of kGateAhead is used up: then the caller stores gate_open again.
constexpr bool gate_is_open(uint32_t word, uint32_t posted) {
  return static_cast<int32_t>(word - posted) >= static_cast<int32_t>(kGateAhead / 2);
}

// ---- daemon side ----

// Releases the units up to `released`. Returns the word that it stored: the later of `released` and
// the floor. The number of repetitions is bounded, so that a client that moves its floor all the
// time does not delay the daemon; the daemon checks the word again later.
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
// Lets graphs run on, or stops each at its next gate, unless a unit up to the floor may wait there.
// `done`: all units up to this ticket are complete. The newest complete ticket will not do: an
// older unit of another stream may still wait at a gate. Returns whether graphs run.
template <class Fault = FaultPoint, class Word>
bool gate_run(Word& running, const Word& floor, uint32_t done, bool on) {
  running.store(on ? 1 : 0, std::memory_order_seq_cst);
  Fault::at("gate: stopped, floor not read");
  if (on || gate_lets(done, floor.load(std::memory_order_seq_cst))) return on;
  running.store(1, std::memory_order_seq_cst);
  return true;
}

// ---- shim side ----

// Advances the word to `value`, never backwards. Any thread.
template <class Word>
void gate_raise(Word& word, uint32_t value) {
  uint32_t seen = word.load(std::memory_order_seq_cst);
  while (!gate_lets(seen, value) &&
         !word.compare_exchange_weak(seen, value, std::memory_order_seq_cst)) {
  }
}
// Lets the units up to `upto` go, whatever the daemon says. Any thread.
template <class Fault = FaultPoint, class Word>
void gate_floor(Word& floor, Word& word, Word& running, uint32_t upto) {
  gate_raise(floor, upto);
  Fault::at("gate: floor raised, word not");
  gate_raise(word, floor.load(std::memory_order_seq_cst));
  running.store(1, std::memory_order_seq_cst);
}
// Lets all units go, also those posted later. To be called repeatedly. Only one thread may call
// this function and the ones below.
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
// Ends an open floor: only the units posted by now go. Other threads relied on the open floor for
// their units, so the floor is stored again until it covers everything that was posted meanwhile.
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
// Keeps a floor that is not raised within the range of a cyclic comparison. The units that it
// passes are so old that they are complete.
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
