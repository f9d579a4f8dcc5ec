// Exhaustive: every interleaving of two daemons, the shim's opener, a launching thread and two
// streams of the GPU around the gate pages of two sessions.
//
// The functions are the real ones (ipc/gate.h). Their words are of a type whose every load and
// store is one step: an action is run again from its beginning with the values that it read so far,
// does one more access, and stops. Memory is x86's: plain stores wait in a buffer, sequentially
// consistent ones drain it first. A daemon may die anywhere. One that is stopped, for however long,
// is one that does not step; then the shim leaves its session, and may have a new one with another.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "ipc/gate.h"

namespace heddle::ipc {
namespace {

constexpr int kSessions = 2, kStreams = 2, kTickets = 3;  // at most: see World
constexpr uint32_t kBase = 0xfffffffe;                    // the second ticket is 0

// A step that goes wrong on purpose: the explorer must notice.
enum class Mutation : uint8_t {
  kNone,
  kReleaseNotFenced,    // the daemon's store is a plain one
  kLeavingNotRead,      // the daemon does not look whether the shim is leaving
  kOpensBeforeLeaving,  // the shim opens, then says that it is leaving
  kLooksOnce,           // the shim does not look again at what it opened
  kNotCyclic,           // the wait compares plain numbers
};

struct World {
  int sessions = 1, tickets = 1;
};

enum Process : uint8_t { kOpener = kSessions, kProcesses };  // below: the sessions' daemons
enum Opening : uint8_t { kStays, kSaysSo, kOpens, kOpened };

struct Doing {
  uint32_t seen[3] = {};           // what the action in hand has read
  uint32_t stored = 0;             // the buffered store
  uint8_t made = 0;                // its accesses so far
  uint8_t buffered = 0;            // 1 + cell of that store
  uint8_t busy = 0;                // inside an action
  uint8_t session = 0;             // of the opener's action
  uint32_t value = 0, posted = 0;  // arguments of a release
};

struct Session {
  uint32_t words[2] = {kBase, 0};  // released, leaving
  uint8_t taken = 0;               // tickets
  uint8_t told = 0;                // tickets that the daemon knows of: they stand in a stream
  uint8_t released = 0;            // by the daemon: its prefix
  uint8_t let = 0;                 // the longest prefix that anybody let go, kTickets + 1: all
  uint8_t opening = kStays;
  uint8_t dead = 0, opens = 0, closes = 0;
};

struct Gated {
  uint8_t session = 0, ticket = 0;
};

struct State {
  Session sessions[kSessions];
  Doing doing[kProcesses];
  Gated streams[kStreams][kTickets];
  uint8_t queued[kStreams] = {}, passed[kStreams] = {};
  uint8_t current = 0;  // the session that launches are posted in
  uint8_t launches = 0, in_hand = 0;
  Gated posting;  // the launching thread has its ticket, the wait is not posted
  uint8_t none[3] = {};
};
static_assert(std::has_unique_object_representations_v<State>, "states are compared as bytes");

struct Violation {
  const char* what;
};
struct Stop {};  // the action's one access is made

enum Cell : uint8_t { kReleased, kLeaving };

struct Running {
  State* state = nullptr;
  Doing* doing = nullptr;
  int at = 0;
  bool moved = false;
  Mutation mutation = Mutation::kNone;
  World world;
} running;

void flush(State& s, Doing& doing) {
  if (doing.buffered == 0) return;
  const int cell = doing.buffered - 1;
  s.sessions[cell / 2].words[cell % 2] = doing.stored;
  doing.buffered = 0;
  doing.stored = 0;
}

// True if the access was made before.
bool replayed() {
  if (running.at < running.doing->made) return true;
  if (running.moved) throw Stop{};
  running.moved = true;
  ++running.doing->made;
  return false;
}

struct Word {
  int session;
  Cell cell;

  uint32_t load(std::memory_order) const {
    if (!replayed()) {
      const bool own = running.doing->buffered == 1 + session * 2 + cell;
      running.doing->seen[running.at] =
          own ? running.doing->stored : running.state->sessions[session].words[cell];
    }
    return running.doing->seen[running.at++];
  }
  void store(uint32_t value, std::memory_order order) {
    if (!replayed()) {
      Doing& doing = *running.doing;
      flush(*running.state, doing);
      doing.stored = value;
      doing.buffered = static_cast<uint8_t>(1 + session * 2 + cell);
      const bool plain = order != std::memory_order_seq_cst ||
                         (running.mutation == Mutation::kReleaseNotFenced && cell == kReleased);
      if (!plain) flush(*running.state, doing);
    }
    ++running.at;
  }
};

struct NoFault {
  static void at(const char*) {}
};

void open_for_all(Session& session) { session.let = kTickets + 1; }

uint32_t ticket(int number) { return kBase + static_cast<uint32_t>(number); }

// ---- moves: false if it cannot be made ----

template <class Action>
bool act(State& s, int process, Action&& action) {
  Doing& doing = s.doing[process];
  running = {&s, &doing, 0, false, running.mutation, running.world};
  doing.busy = 1;
  try {
    action();
  } catch (const Stop&) {
    return true;
  }
  const uint32_t stored = doing.stored;  // may wait longer than the action
  const uint8_t buffered = doing.buffered;
  doing = {};
  doing.stored = stored;
  doing.buffered = buffered;
  return true;
}

bool release_step(State& s, int session) {
  Doing& doing = s.doing[session];
  if (s.sessions[session].dead != 0 || doing.busy == 0) return false;
  return act(s, session, [&] {
    Word released{session, kReleased};
    if (running.mutation == Mutation::kLeavingNotRead) {
      released.store(doing.value, std::memory_order_seq_cst);
    } else {
      gate_release<NoFault>(released, Word{session, kLeaving}, doing.value, doing.posted);
    }
  });
}

bool begin_release(State& s, int session, uint32_t value) {
  Doing& doing = s.doing[session];
  doing.busy = 1;
  doing.value = value;
  doing.posted = ticket(s.sessions[session].told);
  return true;
}

bool can_decide(const State& s, int session) {
  return s.sessions[session].dead == 0 && s.doing[session].busy == 0 && session <= s.current;
}

bool release_next(State& s, int session) {
  Session& own = s.sessions[session];
  if (!can_decide(s, session) || own.released >= own.told) return false;
  ++own.released;
  if (own.let < own.released) own.let = own.released;
  return begin_release(s, session, ticket(own.released));
}

bool open(State& s, int session) {
  Session& own = s.sessions[session];
  if (!can_decide(s, session) || own.opens != 0) return false;
  own.opens = 1;
  open_for_all(own);
  return begin_release(s, session, gate_open(ticket(own.told)));
}

bool close(State& s, int session) {
  Session& own = s.sessions[session];
  if (!can_decide(s, session) || own.opens == 0 || own.closes != 0) return false;
  own.closes = 1;
  return begin_release(s, session, ticket(own.released));
}

bool die(State& s, int session) {
  if (s.sessions[session].dead != 0 || session > s.current) return false;
  flush(s, s.doing[session]);  // what it had stored is seen all the same
  s.doing[session] = {};
  s.sessions[session].dead = 1;
  return true;
}

// The heartbeat is too old, or seems so.
bool begin_leaving(State& s, int session) {
  if (s.sessions[session].opening != kStays || session > s.current) return false;
  const bool wrong = running.mutation == Mutation::kOpensBeforeLeaving;
  s.sessions[session].opening = wrong ? kOpens : kSaysSo;
  open_for_all(s.sessions[session]);
  return true;
}

bool leave_step(State& s, int session) {
  Session& own = s.sessions[session];
  Doing& doing = s.doing[kOpener];
  if (doing.busy != 0 && doing.session != session) return false;
  const bool wrong = running.mutation == Mutation::kOpensBeforeLeaving;
  const uint8_t first = wrong ? kOpens : kSaysSo, second = wrong ? kSaysSo : kOpens;
  Word released{session, kReleased}, leaving{session, kLeaving};
  bool look = own.opening == kOpens;
  if (own.opening == kOpened) {
    if (running.mutation == Mutation::kLooksOnce) return false;
    look = !gate_is_open(own.words[kReleased], ticket(own.taken)) || doing.busy != 0;
  }
  if (own.opening == kSaysSo) {
    doing.session = static_cast<uint8_t>(session);
    act(s, kOpener, [&] { gate_leave<NoFault>(leaving); });
  } else if (look) {
    doing.session = static_cast<uint8_t>(session);
    if (doing.busy == 0) doing.posted = ticket(own.taken);
    act(s, kOpener, [&] { gate_keep_open(released, doing.posted); });
  } else {
    return false;
  }
  if (doing.busy == 0 && own.opening != kOpened)
    own.opening = own.opening == first ? second : uint8_t{kOpened};
  return true;
}

bool attach_again(State& s) {
  if (s.current + 1 == running.world.sessions || s.sessions[s.current].opening != kOpened)
    return false;
  ++s.current;
  return true;
}

bool launch_step(State& s) {
  if (s.in_hand == 0) {
    if (s.launches == running.world.tickets) return false;
    s.posting.session = s.current;
    s.in_hand = 1;
  } else if (s.in_hand == 1) {  // in between, the session may be left
    s.posting.ticket = ++s.sessions[s.posting.session].taken;
    s.in_hand = 2;
  } else {
    const int stream = s.launches++ % kStreams;
    s.streams[stream][s.queued[stream]++] = s.posting;
    s.sessions[s.posting.session].told = s.posting.ticket;
    s.posting = {};
    s.in_hand = 0;
  }
  return true;
}

bool lets(uint32_t word, uint32_t number) {
  return running.mutation == Mutation::kNotCyclic ? word >= number : gate_lets(word, number);
}

bool pass(State& s, int stream) {
  if (s.passed[stream] == s.queued[stream]) return false;
  const Gated& head = s.streams[stream][s.passed[stream]];
  const Session& session = s.sessions[head.session];
  if (!lets(session.words[kReleased], ticket(head.ticket))) return false;
  if (head.ticket > session.let) throw Violation{"a unit went that nobody let go"};
  for (int earlier = 1; earlier < head.ticket; ++earlier) {
    if (!lets(session.words[kReleased], ticket(earlier))) throw Violation{"it is no prefix"};
  }
  ++s.passed[stream];
  return true;
}

bool drain(State& s, int process) {
  if (s.doing[process].buffered == 0) return false;
  flush(s, s.doing[process]);
  return true;
}

// ---- what must hold ----

// Between two actions of a daemon that lives, and with all stores seen, what the shim has opened
// is open.
void judge(const State& s) {
  for (int i = 0; i < kSessions; ++i) {
    const Session& session = s.sessions[i];
    if (session.opening != kOpened || session.dead != 0) continue;
    if (s.doing[i].busy != 0 || s.doing[i].buffered != 0) continue;
    if (s.doing[kOpener].busy != 0 || s.doing[kOpener].buffered != 0) continue;
    if (!gate_is_open(session.words[kReleased], ticket(session.told))) {
      throw Violation{"a daemon closed what the shim opened"};
    }
  }
}

// Nothing can move any more by itself.
void judge_end(const State& s) {
  for (int stream = 0; stream < kStreams; ++stream) {
    if (s.passed[stream] != s.queued[stream])
      throw Violation{"a unit is left behind a closed gate"};
  }
}

struct Result {
  size_t states = 0;
  std::string violation;
};

class Explorer {
 public:
  Result run(World world, Mutation mutation) {
    running = {};
    running.mutation = mutation;
    running.world = world;
    try {
      visit(State{});
      while (!pending_.empty()) {
        const State state = pending_.back();
        pending_.pop_back();
        judge(state);
        expand(state);
      }
    } catch (const Violation& violation) {
      return {seen_.size(), violation.what};
    }
    return {seen_.size(), ""};
  }

 private:
  void visit(const State& state) {
    if (seen_.emplace(reinterpret_cast<const char*>(&state), sizeof state).second) {
      pending_.push_back(state);
    }
  }

  template <class Move>
  bool move(const State& from, Move&& by) {
    State next = from;
    if (!by(next)) return false;
    visit(next);
    return true;
  }

  void expand(const State& from) {
    bool progress = move(from, launch_step);
    for (int stream = 0; stream < kStreams; ++stream) {
      progress |= move(from, [=](State& s) { return pass(s, stream); });
    }
    for (int process = 0; process < kProcesses; ++process) {
      progress |= move(from, [=](State& s) { return drain(s, process); });
    }
    for (int session = 0; session < kSessions; ++session) {
      progress |= move(from, [=](State& s) { return release_step(s, session); });
      progress |= move(from, [=](State& s) { return release_next(s, session); });
      progress |= move(from, [=](State& s) { return leave_step(s, session); });
      const bool leaves = move(from, [=](State& s) { return begin_leaving(s, session); });
      progress |= leaves && from.sessions[session].dead != 0;
      move(from, [=](State& s) { return open(s, session); });
      move(from, [=](State& s) { return close(s, session); });
      move(from, [=](State& s) { return die(s, session); });
    }
    move(from, attach_again);
    if (!progress) judge_end(from);
  }

  std::unordered_set<std::string> seen_;
  std::vector<State> pending_;
};

void expect_sound(World world) {
  const Result result = Explorer().run(world, Mutation::kNone);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.states, 1'000u);
  std::printf("%zu states\n", result.states);
}

TEST(GateModel, NoUnitIsLeftBehindAndNothingGoesUnreleased) { expect_sound({1, 3}); }

TEST(GateModel, ADaemonThatGoesOnHarmsNoLaterSession) { expect_sound({2, 1}); }

class GateMutated : public ::testing::TestWithParam<Mutation> {};

TEST_P(GateMutated, IsFound) {
  const Result result = Explorer().run({1, 3}, GetParam());
  EXPECT_NE(result.violation, "");
  std::printf("%s, after %zu states\n", result.violation.c_str(), result.states);
}

INSTANTIATE_TEST_SUITE_P(GateModel, GateMutated,
                         ::testing::Values(Mutation::kReleaseNotFenced, Mutation::kLeavingNotRead,
                                           Mutation::kOpensBeforeLeaving, Mutation::kLooksOnce,
                                           Mutation::kNotCyclic));

}  // namespace
}  // namespace heddle::ipc
