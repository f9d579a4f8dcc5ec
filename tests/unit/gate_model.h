// A model of the gates of one device, explored exhaustively: the daemon, the shim's opener, two
// threads that let launches go, and two streams of the GPU.
//
// The functions are the real ones (ipc/gate.h). Their words are of a type whose every access is one
// step of the explorer: an action is run again from its beginning with the values that it read so
// far, does one more access, and stops. Memory is x86's: plain stores wait in a buffer,
// sequentially consistent ones and compare-and-exchanges drain it first.
//
// A daemon may die anywhere. One that is stopped for ever is one that died; one that is stopped for
// a while does not step meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::ipc::gate_model {

inline constexpr int kStreams = 2, kThreads = 2;

// A step that goes wrong on purpose: the explorer must notice.
enum class Mutation : uint8_t {
  kNone,
  kFloorNotReread,    // the daemon does not look at the floor behind its store
  kWordPlain,         // the daemon's store of the word is a plain one
  kRunsPlain,         // the same of `running`
  kWordBeforeFloor,   // a thread raises the word, then the floor
  kCloseNotRaised,    // the opener does not raise the word behind a lowered floor
  kPostedNotReread,   // the opener does not look again at what is posted
  kOpensOnce,         // the opener does not look again at what it opened
  kNoLookAfterFloor,  // the daemon looks no more once the floor came back
  kRunIgnoresFloor,   // the daemon stops graphs whatever the floor is
  kDoneIsNewest,      // the daemon takes what is over for all before it
  kFloorRunsNothing,  // a thread raises floor and word, and graphs stand
  kNotCyclic,         // the wait compares plain numbers
};

// What happens at most.
struct World {
  uint8_t launches = 0;
  uint8_t floors[kThreads] = {};  // of each thread
  uint8_t openings = 0;           // of the floor, while the daemon lives
  uint8_t windows = 0;            // of the daemon: it opens, and closes again
  uint8_t runs = 0;               // the daemon lets graphs run on, or stops them
  bool looks_first = false;       // a thread skips a floor that is high enough
  bool forgets_nothing = false;
};

struct Result {
  size_t states = 0;
  size_t ends = 0;        // states in which nothing moves by itself
  std::string violation;  // empty: none
};
Result explore(const World& world, Mutation mutation);

}  // namespace heddle::ipc::gate_model
