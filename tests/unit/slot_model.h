// A model of two clients and one daemon around the ask slot, explored exhaustively.
//
// The slot and ring functions are the real ones (ipc/slot.h, ipc/ring.h), and so are the daemon's
// books (daemon/server/intake.h). Their words are of a type whose every load and store is one step
// of the explorer: an action is run again from its beginning with the values that it read so far,
// does one more access, and stops. Memory is x86's: plain stores wait in a buffer of their
// processor and are seen by others later, sequentially consistent ones drain it first.
//
// At any point a client or the daemon may die, a waiter's time may be up, a policy may hold an ask
// for a while, and a dead daemon may come back with fresh memory. See slot_model_test.cc for what
// must hold.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace heddle::slot_model {

inline constexpr int kClients = 2;
inline constexpr int kSessions = 2;  // before and after a restart of the daemon
inline constexpr int kDaemon = kClients;
inline constexpr int kProcesses = kClients + 1;

enum Cell : uint8_t {  // the shared words of one client in one session
  kAskWord,
  kRecordA,
  kRecordB,
  kWaiting,
  kCredit,
  kEpoch,
  kGranted,
  kSleeping,
  kNaps,
  kHead,
  kTail,
  kCells
};

struct Buffered {
  uint16_t cell;  // place in State::memory
  uint16_t value;
};

struct Process {
  uint8_t at = 0;          // the action in hand
  uint8_t asleep = 0;      // 1: in the futex, 2: woken
  uint8_t reads = 0;       // accesses that the action has made
  uint8_t stored = 0;      // in the buffer
  uint8_t registers[8]{};  // what the process remembers between actions
  std::array<uint16_t, 12> read{};
  std::array<Buffered, 8> buffer{};
};

// What happened, for the verdict; no process reads it.
struct Ghost {
  uint8_t launches = 0;  // by the client, in this session
  uint8_t grants = 0;    // by the daemon
  uint8_t claims = 0;    // what the daemon's intake was told, in order
  uint8_t posted = 0;    // records in the ring so far
  std::array<uint8_t, 12> claim{};
  std::array<uint8_t, 8> record{};
};

struct State {
  std::array<std::array<std::array<uint16_t, kCells>, kClients>, kSessions> memory{};
  std::array<Process, kProcesses> processes{};
  std::array<std::array<Ghost, kClients>, kSessions> ghosts{};
  uint8_t session = 0;  // of the daemon that lives, or lived last
  uint8_t doorbell = 0;
  uint8_t deaths = 0, timeouts = 0, holds = 0;  // used of the budget
  uint8_t dead = 0;                             // a bit for each process
};

struct Budget {
  std::array<uint8_t, kClients> asks = {2, 2};
  uint8_t deaths = 1, timeouts = 1, holds = 1;
};

// A step that goes wrong on purpose: the explorer must notice.
enum class Mutation : uint8_t {
  kNone,
  kAskNotFenced,        // the ask is published by a plain store
  kPollLooksOnce,       // the ask's word is not read again after the record was copied
  kAnswerBeforeFields,  // the grant is published before its fields
  kAnswerNotFenced,     // whether somebody waits is read before others see the grant
  kLookBeforeAnswer,    // whether somebody waits is read before the grant is published
  kSelfNotReported,     // a launch without a grant leaves no record
  kNapsAlike,           // a nap has the number of the one before
};

struct Result {
  uint64_t states = 0;
  std::string violation;  // empty: none
};

Result explore(const Budget& budget, Mutation mutation);

}  // namespace heddle::slot_model
