// The words of gate_model.h's processes, and what each process is doing.
#pragma once

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "ipc/gate.h"
#include "tests/unit/gate_model.h"

namespace heddle::ipc::gate_model {

inline constexpr uint32_t kBase = 0xfffffffe;  // the second ticket is 0
inline constexpr uint8_t kAll = 0x40;          // a prefix that has no end
inline constexpr int kAccesses = 15;           // of one action at most

enum Process : uint8_t { kDaemon, kOpener, kFirstThread, kProcesses = kFirstThread + kThreads };
enum Cell : uint8_t { kFloor, kWord, kRunning, kPosted, kCells };
enum class Action : uint8_t { kNone, kRelease, kRun, kRaise, kOpen, kClose };

// As a number of a byte: a ticket, an open word, or what `running` holds.
inline uint8_t pack(uint32_t value) {
  const uint32_t number = value - kBase, ahead = number - kGateAhead;
  if (number >= kAll && ahead >= kAll) std::abort();
  return static_cast<uint8_t>(number < kAll ? number : kAll + ahead);
}
constexpr uint32_t ticket(uint8_t number) { return kBase + number; }
constexpr uint32_t unpack(uint8_t value) {
  return value < kAll ? ticket(value) : gate_open(ticket(value - kAll));
}

struct Doing {
  uint8_t seen[kAccesses] = {};  // what the action in hand has read
  Action action = Action::kNone;
  uint8_t made = 0;      // its accesses so far
  uint8_t done = 0;      // the daemon's idea at its beginning
  uint8_t stored = 0;    // the buffered store
  uint8_t buffered = 0;  // 1 + cell of that store
};

struct State {
  alignas(8) uint32_t cells[kCells] = {kBase, kBase, 0, kBase};
  Doing doing[kProcesses];
  uint8_t floors[kThreads] = {};
  uint8_t passed[kStreams] = {}, over[kStreams] = {};  // units: the tickets take turns
  // The daemon.
  uint8_t released = 0;  // its prefix
  uint8_t let = 0;       // packed: what it stores
  uint8_t runs = 0;      // graphs are to run on, in the lowest bit
  uint8_t windows = 0;   // odd: it is open
  uint8_t dead = 0;
  // The opener.
  uint8_t openings = 0;
  uint8_t open = 0;
  uint8_t closed = 0;  // once, at least: for a mutation
  // What must hold.
  uint8_t allowed = 0;   // the longest prefix that anybody let go, or kAll
  uint8_t promised = 0;  // the longest that a thread let go, whatever the daemon says

  uint8_t posted() const { return static_cast<uint8_t>(cells[kPosted] - kBase); }
  bool idle(int process) const {
    return doing[process].action == Action::kNone && doing[process].buffered == 0;
  }
  bool all_idle() const {
    return idle(kDaemon) && idle(kOpener) && idle(kFirstThread) && idle(kFirstThread + 1);
  }
  bool open_window() const { return windows % 2 != 0; }
  bool is_over(int number) const { return (number - 1) / kStreams < over[number % kStreams]; }
};
static_assert(std::has_unique_object_representations_v<State> && sizeof(State) % 8 == 0,
              "states are compared as bytes");

struct Violation {
  const char* what;
};

inline struct Running {
  State* state = nullptr;
  Doing* doing = nullptr;
  int at = 0;
  bool moved = false, daemon = false;
  Mutation mutation = Mutation::kNone;
  World world = {};
  std::jmp_buf stop;  // the action's one access is made
} running;

inline bool mutated(Mutation mutation) { return running.mutation == mutation; }

inline void flush(State& s, Doing& doing) {
  if (doing.buffered == 0) return;
  s.cells[doing.buffered - 1] = unpack(doing.stored);
  doing.buffered = doing.stored = 0;
}

// True if the access was made before.
inline bool replayed() {
  if (running.at < running.doing->made) return true;
  if (running.moved) std::longjmp(running.stop, 1);
  if (running.at == kAccesses) std::abort();
  running.moved = true;
  ++running.doing->made;
  return false;
}

struct Word {
  Cell cell;

  uint32_t load(std::memory_order) const {
    if (!replayed()) {
      const bool own = running.doing->buffered == 1 + cell;
      running.doing->seen[running.at] =
          own ? running.doing->stored : pack(running.state->cells[cell]);
    }
    return unpack(running.doing->seen[running.at++]);
  }
  void store(uint32_t value, std::memory_order order) {
    if (!replayed()) {
      Doing& doing = *running.doing;
      flush(*running.state, doing);
      doing.stored = pack(value);
      doing.buffered = static_cast<uint8_t>(1 + cell);
      const Mutation fault = cell == kWord ? Mutation::kWordPlain : Mutation::kRunsPlain;
      const bool plain = running.daemon && mutated(fault);
      if (order == std::memory_order_seq_cst && !plain) flush(*running.state, doing);
    }
    ++running.at;
  }
  // As x86's, which does not fail for nothing. One that fails is a load that reads what it found,
  // and takes the place of the load before it, whose value nobody needs any more.
  bool compare_exchange_weak(uint32_t& expected, uint32_t value, std::memory_order) {
    Doing& doing = *running.doing;
    if (!replayed()) {
      flush(*running.state, doing);
      uint32_t& memory = running.state->cells[cell];
      if (memory != expected) {
        doing.seen[running.at - 1] = pack(expected = memory);
        --doing.made;
        return false;
      }
      memory = value;
    }
    ++running.at;
    return true;
  }
};

// What comes next does not depend on some of what an action has read. Then it is forgotten: the
// action is given the shortest past that leads to where it stands, so that states become equal.
struct Forgets {
  static void at(const char* name);
};

inline void set_past(Doing& doing, std::initializer_list<uint8_t> seen) {
  std::fill(std::begin(doing.seen), std::end(doing.seen), uint8_t{0});
  std::copy(seen.begin(), seen.end(), doing.seen);
  doing.made = static_cast<uint8_t>(seen.size());
}

inline void Forgets::at(const char* name) {
  Doing& doing = *running.doing;
  if (running.world.forgets_nothing || running.at != doing.made) return;
  const std::string_view where = name;
  if (where == "gate: stored, floor not read" || where == "gate: floor lowered, tickets not read") {
    set_past(doing, {doing.seen[doing.made - 2]});  // a load, and that store: it goes round
    doing.made = 2;
  } else if (where == "gate: floor raised, word not") {
    if (doing.action == Action::kClose) {
      set_past(doing, {1, 0, 1, 1});
    } else if (running.world.looks_first) {
      set_past(doing, {1, 0, 1});
    } else {
      set_past(doing, {1, 1});
    }
  }
  running.at = doing.made;
}

}  // namespace heddle::ipc::gate_model
