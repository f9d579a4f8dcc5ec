#include "tests/unit/gate_model.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/unit/gate_model_memory.h"

namespace heddle::ipc::gate_model {
namespace {

constexpr auto kSeqCst = std::memory_order_seq_cst;

// ---- actions ----

// As the daemon is to tell gate_run.
uint8_t all_over(const State& s) {
  uint8_t number = 0, newest = 0;
  while (number < s.posted() && s.is_over(number + 1)) ++number;
  for (uint8_t i = 1; i <= s.posted(); ++i) newest = s.is_over(i) ? i : newest;
  return mutated(Mutation::kDoneIsNewest) ? newest : number;
}

void release(const State& s, Word word, Word floor) {
  if (mutated(Mutation::kFloorNotReread)) {
    word.store(gate_later(unpack(s.let), floor.load(kSeqCst)), kSeqCst);
  } else {
    gate_release<Forgets>(word, floor, unpack(s.let));
  }
}

void run(const State& s, uint8_t done, Word graphs, Word floor) {
  const bool on = s.runs % 2 != 0;
  if (mutated(Mutation::kRunIgnoresFloor)) {
    graphs.store(on ? 1 : 0, kSeqCst);
  } else {
    gate_run<Forgets>(graphs, floor, ticket(done), on);
  }
}

void raise(State& s, Word floor, Word word, Word graphs, Word posted) {
  const uint32_t upto = posted.load(kSeqCst);
  if (running.moved && running.doing->made == 1) {
    s.promised = std::max(s.promised, s.posted());
    s.allowed = std::max(s.allowed, s.posted());
  }
  if (running.world.looks_first && gate_lets(floor.load(kSeqCst), upto)) return;
  if (mutated(Mutation::kWordBeforeFloor)) {
    gate_raise(word, upto);
    gate_raise(floor, upto);
    graphs.store(1, kSeqCst);
  } else if (mutated(Mutation::kFloorRunsNothing)) {
    gate_raise(floor, upto);
    gate_raise(word, floor.load(kSeqCst));
  } else {
    gate_floor<Forgets>(floor, word, graphs, upto);
  }
}

void close(Word floor, Word word, Word graphs, Word posted) {
  if (mutated(Mutation::kPostedNotReread)) {
    const uint32_t newest = posted.load(kSeqCst);
    floor.store(newest, kSeqCst);
    gate_floor<Forgets>(floor, word, graphs, newest);
  } else if (mutated(Mutation::kCloseNotRaised)) {
    uint32_t newest = posted.load(kSeqCst), before = newest;
    do {
      floor.store(before = newest, kSeqCst);
      newest = posted.load(kSeqCst);
    } while (newest != before);
  } else {
    gate_close_floor<Forgets>(floor, word, graphs, posted);
  }
}

void perform(State& s, const Doing& doing) {
  Word floor{kFloor}, word{kWord}, graphs{kRunning}, posted{kPosted};
  switch (doing.action) {
    case Action::kRelease:
      return release(s, word, floor);
    case Action::kRun:
      return run(s, doing.done, graphs, floor);
    case Action::kRaise:
      return raise(s, floor, word, graphs, posted);
    case Action::kOpen:
      return gate_open_floor(floor, word, graphs, posted);
    case Action::kClose:
      return close(floor, word, graphs, posted);
    case Action::kNone:
      return;
  }
}

// False: the action is over.
bool goes_on(State& s, int process) {
  running.state = &s;
  running.doing = &s.doing[process];
  running.at = 0;
  running.moved = false;
  running.daemon = process == kDaemon;
  if (setjmp(running.stop) != 0) return true;
  perform(s, s.doing[process]);
  return false;
}

bool step(State& s, int process) {
  Doing& doing = s.doing[process];
  if (doing.action == Action::kNone) return false;
  if (goes_on(s, process)) return true;
  const Doing was = doing;
  doing = {};
  doing.stored = was.stored;  // may wait longer than the action
  doing.buffered = was.buffered;
  return true;
}

bool begin(State& s, int process, Action action) {
  s.doing[process].action = action;
  if (action == Action::kRun) s.doing[process].done = all_over(s);
  return true;
}

// ---- moves: false if it cannot be made ----

bool drain(State& s, int process) {
  if (s.doing[process].buffered == 0) return false;
  flush(s, s.doing[process]);
  return true;
}

bool daemon_decides(const State& s) {
  return s.dead == 0 && s.doing[kDaemon].action == Action::kNone;
}

bool release_next(State& s) {
  if (!daemon_decides(s) || s.open_window() || s.released >= s.posted()) return false;
  s.let = ++s.released;
  s.allowed = std::max(s.allowed, s.released);
  return begin(s, kDaemon, Action::kRelease);
}

bool turn_window(State& s) {
  if (!daemon_decides(s) || s.windows == 2 * running.world.windows) return false;
  ++s.windows;
  s.let = s.open_window() ? static_cast<uint8_t>(kAll + s.posted()) : s.released;
  if (s.open_window()) s.allowed = kAll;
  return begin(s, kDaemon, Action::kRelease);
}

bool turn_runs(State& s) {
  if (!daemon_decides(s) || s.runs == running.world.runs) return false;
  ++s.runs;
  return begin(s, kDaemon, Action::kRun);
}

// The daemon looks, and stores again where it finds something else. That it may do so where it
// finds what it stored is explored too.
bool looks(const State& s) {
  return daemon_decides(s) && !(mutated(Mutation::kNoLookAfterFloor) && s.closed != 0);
}
bool look_at_word(State& s) { return looks(s) && begin(s, kDaemon, Action::kRelease); }
bool look_at_runs(State& s) {
  return running.world.runs != 0 && looks(s) && begin(s, kDaemon, Action::kRun);
}

bool die(State& s) {
  if (s.dead != 0) return false;
  flush(s, s.doing[kDaemon]);  // what it had stored is seen all the same
  s.doing[kDaemon] = {};
  s.dead = 1;
  s.released = s.let = s.runs = s.windows = 0;  // nobody asks any more
  return true;
}

bool open_floor(State& s) {
  if (!s.idle(kOpener) || s.open != 0) return false;
  if (s.dead == 0 && s.openings++ == running.world.openings) return false;
  s.open = 1;
  s.allowed = kAll;
  return begin(s, kOpener, Action::kOpen);
}

bool keep_floor_open(State& s) {
  if (!s.idle(kOpener) || s.open == 0 || mutated(Mutation::kOpensOnce)) return false;
  s.allowed = kAll;
  return begin(s, kOpener, Action::kOpen);
}

bool close_floor(State& s) {
  if (!s.idle(kOpener) || s.open == 0 || s.dead != 0) return false;
  s.open = 0;
  s.closed = mutated(Mutation::kNoLookAfterFloor) ? 1 : 0;
  return begin(s, kOpener, Action::kClose);
}

// By a thread that does nothing else. What has a ticket stands in its stream at once: later is the
// same as a GPU that is slow.
bool launch(State& s) {
  if (s.posted() == running.world.launches) return false;
  ++s.cells[kPosted];
  return true;
}

bool let_posted_go(State& s, int thread) {
  if (!s.idle(kFirstThread + thread) || s.floors[thread] == running.world.floors[thread])
    return false;
  ++s.floors[thread];
  return begin(s, kFirstThread + thread, Action::kRaise);
}

bool lets(uint32_t word, uint32_t number) {
  return mutated(Mutation::kNotCyclic) ? word >= number : gate_lets(word, number);
}

// Where units are graphs with a gate inside. Others are over once the word lets them: whether they
// went is nobody's matter.
bool pass(State& s, int stream) {
  if (running.world.runs == 0) return false;
  const int next = s.passed[stream] * kStreams + (stream == 0 ? kStreams : stream);
  if (s.passed[stream] != s.over[stream]) {
    if (s.cells[kRunning] != 1) return false;
    ++s.over[stream];
    return true;
  }
  if (next > s.posted() || !lets(s.cells[kWord], ticket(static_cast<uint8_t>(next)))) return false;
  ++s.passed[stream];
  return true;
}

// ---- what must hold ----

bool some_is_left(const State& s, uint8_t upto) {
  for (uint8_t i = 1; i <= std::min(upto, s.posted()); ++i) {
    if (running.world.runs == 0 ? !lets(s.cells[kWord], ticket(i)) : !s.is_over(i)) return true;
  }
  return false;
}

void judge_word(const State& s) {
  bool closed = false;
  for (uint8_t i = 1; i <= s.posted(); ++i) {
    const bool goes = lets(s.cells[kWord], ticket(i));
    if (goes && i > s.allowed) throw Violation{"a unit goes that nobody let go"};
    if (goes && closed) throw Violation{"what goes is no prefix"};
    closed = !goes;
  }
}

// Nobody is inside an action, and no store waits: what the shim let go goes, without another look
// of the daemon.
void judge(const State& s) {
  judge_word(s);
  if (s.dead != 0 || !s.all_idle()) return;
  const uint32_t floor = s.cells[kFloor];
  if (!gate_lets(floor, ticket(s.promised))) throw Violation{"the floor is lower than promised"};
  if (!gate_lets(s.cells[kWord], floor)) throw Violation{"the word is lower than the floor"};
  if (running.world.runs != 0 && s.cells[kRunning] != 1 && some_is_left(s, pack(floor))) {
    throw Violation{"graphs stand that the floor lets go"};
  }
}

// Nothing can move any more by itself.
void judge_end(const State& s) {
  if (some_is_left(s, s.dead != 0 ? kAll : s.promised)) {
    throw Violation{"a unit is left behind a closed gate"};
  }
  if (s.dead != 0) return;
  if (s.cells[kWord] != gate_later(unpack(s.let), s.cells[kFloor])) {
    throw Violation{"the word is not the later of both"};
  }
  if (running.world.runs != 0 && s.cells[kRunning] != s.runs % 2u) {
    throw Violation{"graphs do not do as the daemon says"};
  }
}

// Then no more may go than the word says, whatever stood open before.
void forget_what_was_open(State& s) {
  if (s.dead != 0 || !s.all_idle() || s.open != 0) return;
  if (s.cells[kWord] != gate_later(unpack(s.let), s.cells[kFloor])) return;
  s.allowed = std::min(pack(s.cells[kWord]), kAll);
}

// The threads are alike.
void sort_threads(State& s) {
  const uint8_t* const most = running.world.floors;
  if (most[0] != most[1]) return;
  Doing &a = s.doing[kFirstThread], &b = s.doing[kFirstThread + 1];
  const int order = std::memcmp(&a, &b, sizeof a);
  if (order < 0 || (order == 0 && s.floors[0] <= s.floors[1])) return;
  std::swap(a, b);
  std::swap(s.floors[0], s.floors[1]);
}

// A look that finds all as it would leave it is no progress.
template <class Move>
bool changes(const State& from, int process, Move&& by) {
  State next = from;
  if (!by(next)) return false;
  while (step(next, process)) {
  }
  drain(next, process);
  return std::memcmp(next.cells, from.cells, sizeof from.cells) != 0;
}

// States by 64 bits of what they hold: that two of some millions have the same ones has a chance of
// one in a million.
class Seen {
 public:
  bool add(const State& state) {
    if (2 * size_ >= slots_.size()) grow();
    if (!put(key_of(state))) return false;
    ++size_;
    return true;
  }
  size_t size() const { return size_; }

 private:
  static uint64_t key_of(const State& state) {
    uint64_t parts[sizeof(State) / 8];
    std::memcpy(parts, &state, sizeof state);
    uint64_t key = 0;
    for (const uint64_t part : parts) {
      key = (key ^ part) * 0x9e3779b97f4a7c15;
      key ^= key >> 32;
    }
    return key | 1;  // 0: nothing is there
  }
  bool put(uint64_t key) {
    const size_t mask = slots_.size() - 1;  // a power of two
    size_t at = (key >> 1) & mask;
    while (slots_[at] != 0 && slots_[at] != key) at = (at + 1) & mask;
    if (slots_[at] == key) return false;
    slots_[at] = key;
    return true;
  }
  void grow() {
    std::vector<uint64_t> old(slots_.size() * 2);
    old.swap(slots_);
    for (const uint64_t key : old) {
      if (key != 0) put(key);
    }
  }

  std::vector<uint64_t> slots_ = std::vector<uint64_t>(1 << 16);
  size_t size_ = 0;
};

class Explorer {
 public:
  Result run(const World& world, Mutation mutation) {
    running.mutation = mutation;
    running.world = world;
    Result result;
    try {
      visit(State{});
      while (!pending_.empty()) {
        const State state = pending_.back();
        pending_.pop_back();
        judge(state);
        if (expand(state)) continue;
        ++result.ends;
        judge_end(state);
      }
    } catch (const Violation& violation) {
      result.violation = violation.what;
    }
    result.states = seen_.size();
    return result;
  }

 private:
  void visit(const State& state) {
    if (seen_.add(state)) pending_.push_back(state);
  }

  template <class Move>
  bool move(const State& from, Move&& by) {
    State next = from;
    if (!by(next)) return false;
    forget_what_was_open(next);
    sort_threads(next);
    visit(next);
    return true;
  }

  // True if something moves by itself.
  bool expand(const State& from) {
    bool progress = false;
    for (int process = 0; process < kProcesses; ++process) {
      progress |= move(from, [=](State& s) { return step(s, process); });
      progress |= move(from, [=](State& s) { return drain(s, process); });
    }
    for (int i = 0; i < kStreams; ++i) {
      progress |= move(from, [=](State& s) { return pass(s, i); });
    }
    for (int i = 0; i < kThreads; ++i) {
      move(from, [=](State& s) { return let_posted_go(s, i); });
    }
    for (const auto decide : {launch, release_next, turn_window, turn_runs, look_at_word,
                              look_at_runs, die, keep_floor_open}) {
      move(from, decide);
    }
    const bool opens = move(from, open_floor), closes = move(from, close_floor);
    progress |= closes || (opens && from.dead != 0);
    return progress || changes(from, kDaemon, look_at_word) ||
           changes(from, kDaemon, look_at_runs) || changes(from, kOpener, keep_floor_open);
  }

  Seen seen_;
  std::vector<State> pending_;
};

}  // namespace

Result explore(const World& world, Mutation mutation) { return Explorer().run(world, mutation); }

}  // namespace heddle::ipc::gate_model
