// The shared words of the model: every load and store is one step of the explorer.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

#include "tests/unit/slot_model.h"

namespace heddle::slot_model {

struct Violation {  // an invariant does not hold
  const char* what;
};

// ---- memory, one access a step ------------------------------------------------------------------

// Which process runs which action now.
struct Running {
  State* state = nullptr;
  Process* process = nullptr;
  uint8_t at = 0;        // accesses replayed so far
  bool moved = false;    // the one access was made
  bool stopped = false;  // see stop()
  std::optional<State> left = {};
};
inline Running running;

// The action has made its one access, or can make none now: the step ends here, and leaves what the
// state is now if it moved. The real functions run on to their ends all the same, because
// exceptions that end them here cost more than all the rest: what they load from here on is 0, and
// what they change is thrown away with the state that they change.
inline void stop() {
  if (running.stopped) return;
  running.stopped = true;
  if (running.moved) running.left = *running.state;
}

// Of what runs on behind a stop nothing is asked.
inline void expect(bool holds, const char* what) {
  if (!holds && !running.stopped) throw Violation{what};
}

inline uint16_t shrink(uint64_t value) {
  return static_cast<uint16_t>(value >> 32 << 12 | (value & 0xfff));
}
inline uint64_t grow(uint16_t value) { return uint64_t{value} >> 12 << 32 | (value & 0xfff); }

inline uint16_t& cell_at(uint16_t place) {
  return running.state
      ->memory[place / (kClients * kCells)][place / kCells % kClients][place % kCells];
}
inline uint16_t place_of(int session, int client, Cell cell) {
  return static_cast<uint16_t>((session * kClients + client) * kCells + cell);
}

// True if the access was made before, and `value` is what it gave; or if it is not to be made.
inline bool replayed(uint16_t& value) {
  Process& p = *running.process;
  value = 0;
  if (running.at < p.reads) {
    value = p.read[running.at++];
    return true;
  }
  if (running.moved) stop();
  return running.stopped;
}

inline void made(uint16_t value) {
  Process& p = *running.process;
  running.moved = true;
  expect(p.reads < p.read.size(), "model: an action makes too many accesses");
  p.read[p.reads++] = value;
  running.at = p.reads;
}

inline uint16_t load(uint16_t place) {
  uint16_t value;
  if (replayed(value)) return value;
  const Process& p = *running.process;
  value = cell_at(place);
  for (uint8_t i = 0; i < p.stored; ++i) {
    if (p.buffer[i].cell == place) value = p.buffer[i].value;
  }
  made(value);
  return value;
}

inline void store(uint16_t place, uint16_t value, std::memory_order order) {
  uint16_t ignored;
  if (replayed(ignored)) return;
  Process& p = *running.process;
  if (order == std::memory_order_seq_cst) {
    if (p.stored != 0) return stop();  // the buffer drains first
    cell_at(place) = value;
  } else {
    if (p.stored == p.buffer.size()) return stop();
    p.buffer[p.stored++] = {place, value};
  }
  made(0);
}

inline void fence() {
  uint16_t ignored;
  if (replayed(ignored)) return;
  if (running.process->stored != 0) return stop();  // the buffer drains first
  made(0);
}

// FUTEX_WAIT: a system call drains the buffer, and sleeps only if the word is still what was seen.
inline void sleep_on(uint16_t place, uint16_t seen) {
  uint16_t ignored;
  if (replayed(ignored)) return;
  Process& p = *running.process;
  if (p.stored != 0 || p.asleep == 1) return stop();
  if (p.asleep == 0 && cell_at(place) == seen) {
    p.asleep = 1;
    running.moved = true;
    return stop();
  }
  p.asleep = 0;
  made(0);
}

// A word as ipc/ knows it.
struct Word {
  uint16_t place = 0;
  uint64_t load(std::memory_order) const { return grow(slot_model::load(place)); }
  void store(uint64_t value, std::memory_order order) {
    slot_model::store(place, shrink(value), order);
  }
};
struct Word32 : Word {
  uint32_t load(std::memory_order order) const { return static_cast<uint32_t>(Word::load(order)); }
};
template <class T>
struct Unmodelled {
  T load(std::memory_order) const { return 0; }
  void store(int64_t, std::memory_order) {}
};

struct Record {
  Word32 a, b;
};
inline void copy_ask(const Record& record, std::byte* copy) {
  const uint32_t words[] = {record.a.load(std::memory_order_acquire),
                            record.b.load(std::memory_order_acquire)};
  std::memcpy(copy, words, sizeof words);
}

struct Block {
  Word ask_word;
  Word32 waiting, ring_head;
  Record ask_record;
};
struct Slot {
  Word32 credit_us, epoch, granted, ring_tail;
  Unmodelled<uint32_t> sm_set;
  Unmodelled<int32_t> launch_priority;
};

inline Block block_of(int session, int client) {
  const auto word = [&](Cell cell) { return Word32{{place_of(session, client, cell)}}; };
  return {{place_of(session, client, kAskWord)},
          word(kWaiting),
          word(kHead),
          {word(kRecordA), word(kRecordB)}};
}
inline Slot slot_of(int session, int client) {
  const auto word = [&](Cell cell) { return Word32{{place_of(session, client, cell)}}; };
  return {word(kCredit), word(kEpoch), word(kGranted), word(kTail), {}, {}};
}

}  // namespace heddle::slot_model
