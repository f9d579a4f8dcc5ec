#include "tests/unit/slot_model.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/unit/slot_model_processes.h"

namespace heddle::slot_model {
namespace {

// ---- the explorer -------------------------------------------------------------------------------

bool is_dead(const State& s, int process) { return (s.dead >> process & 1) != 0; }

// Moves. One that cannot be made returns false and leaves the state as it is.

bool step(State& state, int index) {
  if (is_dead(state, index)) return false;
  Process& self = state.processes[static_cast<size_t>(index)];
  const State before = state;
  running = {&state, &self};
  if (index == kDaemon) {
    Daemon{state, self}.step();
  } else {
    Client{state, self, index}.step();
  }
  if (!running.stopped) {
    self.reads = 0;  // the action is done
    self.read = {};
    return true;
  }
  state = running.left.value_or(before);
  return running.left.has_value();
}

bool flush(State& state, int index) {
  Process& self = state.processes[static_cast<size_t>(index)];
  if (self.stored == 0) return false;
  running = {&state, &self};
  cell_at(self.buffer[0].cell) = self.buffer[0].value;
  std::copy(self.buffer.begin() + 1, self.buffer.end(), self.buffer.begin());
  self.buffer[--self.stored] = {};
  return true;
}

// What a dead process had stored is seen all the same.
bool die(State& state, int index) {
  if (is_dead(state, index) || state.deaths >= budget->deaths) return false;
  while (flush(state, index)) {
  }
  state.dead = static_cast<uint8_t>(state.dead | 1 << index);
  ++state.deaths;
  Process& self = state.processes[static_cast<size_t>(index)];
  const auto registers = self.registers[kSession];
  if (index == kDaemon) {
    self = {};
  } else {
    self = {};
    self.registers[kSession] = registers;
  }
  return true;
}

bool give_up(State& state, int index) {
  Process& self = state.processes[static_cast<size_t>(index)];
  if (is_dead(state, index) || state.timeouts >= budget->timeouts || self.registers[kLate] != 0 ||
      (self.at != kWait && self.asleep != 1)) {
    return false;
  }
  ++state.timeouts;
  self.registers[kLate] = 1;
  if (self.asleep == 1) self.asleep = 2;
  return true;
}

// The socket's end, or a heartbeat that is too old: whoever waits leaves by SELF, later launches
// ask nobody until the process attaches again.
bool notice_death(State& state, int index) {
  Process& self = state.processes[static_cast<size_t>(index)];
  const bool old = self.registers[kSession] != state.session || is_dead(state, kDaemon);
  if (is_dead(state, index) || !old) return false;
  // Seen before it slept, or after: a nap in the futex is short.
  if (self.registers[kDetached] != 0 && self.asleep != 1) return false;
  self.registers[kDetached] = 1;
  if (self.asleep == 1) self.asleep = 2;
  return true;
}

bool restart(State& state) {
  if (!is_dead(state, kDaemon) || state.session + 1 == kSessions) return false;
  ++state.session;
  state.doorbell = 0;
  state.dead = static_cast<uint8_t>(state.dead & ~(1 << kDaemon));
  return true;
}

// Between two launches.
bool attach_again(State& state, int index) {
  Process& self = state.processes[static_cast<size_t>(index)];
  if (is_dead(state, index) || is_dead(state, kDaemon) || self.registers[kDetached] == 0 ||
      self.registers[kSession] == state.session || self.at != kAsk || self.reads != 0) {
    return false;
  }
  self.registers[kDetached] = 0;
  self.registers[kRungNap] = 0;
  self.registers[kSession] = state.session;
  return true;
}

// The daemon learns by the pidfd that a client is gone, at its loop's top or in a nap.
bool bury(State& state, int client) {
  Process& daemon = state.processes[kDaemon];
  if (is_dead(state, kDaemon) || !is_dead(state, client) ||
      (daemon.registers[kGone] >> client & 1) != 0 || daemon.at != kNap) {
    return false;
  }
  daemon.registers[kGone] = static_cast<uint8_t>(daemon.registers[kGone] | 1 << client);
  return true;
}

// A policy that lets an ask wait: the daemon goes on without granting it, and looks again later.
bool hold(State& state) {
  Process& daemon = state.processes[kDaemon];
  if (is_dead(state, kDaemon) || state.holds >= budget->holds || daemon.reads != 0 ||
      (daemon.at != kGrant0 && daemon.at != kGrant1)) {
    return false;
  }
  const int client = daemon.at - kGrant0;
  if (!Daemon{state, daemon}.open(client)) return false;
  ++state.holds;
  daemon.registers[kOpen] = 1;
  daemon.at = client == 0 ? kGrant1 : kPoll0;
  return true;
}

bool settled(const State& state) {
  for (int i = 0; i < kClients; ++i) {
    if (!is_dead(state, i) && state.processes[static_cast<size_t>(i)].at != kDone) return false;
  }
  return true;
}

// Nothing can move any more without a death or a time-out.
void judge_end(const State& state) {
  if (!settled(state)) throw Violation{"a waiter is stuck"};
  if (is_dead(state, kDaemon)) return;
  for (int i = 0; i < kClients; ++i) {
    if (is_dead(state, i)) continue;
    const Ghost& ghost = state.ghosts[state.session][static_cast<size_t>(i)];
    const Books books = books_of(ghost);
    if (books.intake.asking()) throw Violation{"the daemon believes that somebody waits"};
    if (books.launches != ghost.launches) {
      throw Violation{"the daemon's books and the launches differ"};
    }
  }
}

struct Hash {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash&) const = default;
};

// The states seen, by hash, each in the first place free from where its hash points to: with
// std::unordered_set, looking them up takes twice as long and three times the memory.
class Seen {
 public:
  // False if it is there already.
  bool insert(const Hash& hash) {
    if (4 * (size_ + 1) > 3 * places_.size()) grow();
    Hash& place = place_of(hash);
    if (place == hash) return false;
    place = hash;
    ++size_;
    return true;
  }
  size_t size() const { return size_; }

 private:
  Hash& place_of(const Hash& hash) {
    const size_t mask = places_.size() - 1;
    size_t at = hash.low & mask;
    while (places_[at] != Hash{} && places_[at] != hash) at = (at + 1) & mask;
    return places_[at];
  }

  void grow() {
    const std::vector<Hash> old = std::exchange(places_, std::vector<Hash>(2 * places_.size()));
    for (const Hash& hash : old) {
      if (hash != Hash{}) place_of(hash) = hash;
    }
  }

  std::vector<Hash> places_ = std::vector<Hash>(1024);  // a power of two; zeros: free
  size_t size_ = 0;
};

class Explorer {
 public:
  Result run() {
    try {
      State start{};
      for (size_t i = 0; i < kClients; ++i) {
        if (budget->asks[i] == 0) start.processes[i].at = kDone;
      }
      visit(start);
      while (!pending_.empty()) {
        State state = pending_.back();
        pending_.pop_back();
        expand(state);
      }
    } catch (const Violation& violation) {
      return {seen_.size(), violation.what};
    }
    return {seen_.size(), ""};
  }

 private:
  void visit(const State& state) {
    const XXH128_hash_t hash = XXH3_128bits(&state, sizeof state);
    if (seen_.insert({hash.high64, hash.low64})) pending_.push_back(state);
  }

  template <class Move>
  bool move(const State& from, Move&& by) {
    if (!by(next_)) return false;
    visit(next_);
    next_ = from;
    return true;
  }

  // A step that nobody else can see or prevent: its order among the others does not matter.
  static bool is_private(State& state, Process& daemon) {
    if (is_dead(state, kDaemon) || (daemon.at != kGrant0 && daemon.at != kGrant1)) return false;
    return !Daemon{state, daemon}.open(daemon.at - kGrant0);
  }

  void expand(State& from) {
    next_ = from;
    if (is_private(from, from.processes[kDaemon])) {
      move(from, [](State& s) { return step(s, kDaemon); });
      return;
    }
    bool progress = false;
    for (int i = 0; i < kProcesses; ++i) {
      progress |= move(from, [i](State& s) { return step(s, i); });
      progress |= move(from, [i](State& s) { return flush(s, i); });
    }
    for (int i = 0; i < kClients; ++i) {
      progress |= move(from, [i](State& s) { return notice_death(s, i); });
      progress |= move(from, [i](State& s) { return bury(s, i); });
      move(from, [i](State& s) { return give_up(s, i); });
      move(from, [i](State& s) { return attach_again(s, i); });
    }
    for (int i = 0; i < kProcesses; ++i) {
      move(from, [i](State& s) { return die(s, i); });
    }
    move(from, [](State& s) { return hold(s); });
    move(from, [](State& s) { return restart(s); });
    if (!progress) judge_end(from);
  }

  State next_{};  // between moves, of the state that is expanded
  Seen seen_;
  std::vector<State> pending_;
};

}  // namespace

Result explore(const Budget& with, Mutation wrong) {
  static_assert(std::has_unique_object_representations_v<State>, "states are compared as bytes");
  budget = &with;
  mutation = wrong;
  return Explorer().run();
}

}  // namespace heddle::slot_model
