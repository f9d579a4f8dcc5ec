// Which launches of a client with a lease have a record, where not all must.
//
// A launch-bound program launches every few microseconds, and the GPU is done with each kernel
// before the next comes. Of a long row of such launches nobody can use the gaps, and a record for
// each costs the program some percent (shim/README.md, Sparse). So the row is told by its first
// launch, then by two in a row now and then, between which the gap is seen, and by what ends it: a
// launch behind which a gap may be worth filling, one that finds the GPU busy, or a wait. Each
// record says how many launches went without one. The shim's rule, and the simulated one's.
#pragma once

#include <cstdint>

namespace heddle::ipc {

// The host paused behind a launch that the next follows later: worth watching for its end.
inline constexpr int64_t kPauseNs = 50'000;

// The GPU is idle for less between two launches of a row: under MPS another's kernel takes 10 µs to
// come onto it (core::Config::switch_us), and the shortest run for some.
inline constexpr int64_t kGapNs = 15'000;

// A row of them is shorter than the silence after which a client counts as idle (core::Config).
inline constexpr uint32_t kUntoldMost = 24;

// Of one thread. Times in ns; `waits`: a number that changes with each synchronizing call of the
// process.
class Telling {
 public:
  // Whether the next launch may go untold if its kernel is quiet; then skip() it.
  bool may_skip(uint32_t waits) const { return room_ != 0 && waits_ == waits; }
  void skip(int64_t predicted) {
    --room_;
    ++untold_;
    queue_end_ += predicted;
  }

  // What a launch at `at`, which is told, says of the kernel of the launch before it, if that was
  // told: quiet, as the GPU was done with it and then idle for a moment.
  bool adjacent(uint32_t waits) const { return untold_ == 0 && waits_ == waits; }
  bool was_quiet(int64_t at) const { return at >= queue_end_ && at - queue_end_ < kGapNs; }
  // It is told, and its own kernel is `quiet` or not. To be asked about all else before.
  void tell(int64_t at, int64_t predicted, bool quiet, uint32_t waits) {
    const bool found_idle = at >= queue_end_ || waits_ != waits;
    room_ = quiet && found_idle && untold_ == 0 ? kUntoldMost : 0;
    queue_end_ = (found_idle ? at : queue_end_) + predicted;
    untold_ = 0;
    waits_ = waits;
  }
  // A wait is told, which ends the row.
  void tell_wait() { room_ = untold_ = 0; }

  uint32_t untold() const { return untold_; }
  uint32_t may_follow() const { return room_; }

 private:
  // When the GPU is predicted to be done with what this thread launched, if it was not idle since
  // the last launch that was told.
  int64_t queue_end_ = 0;
  uint32_t room_ = 0, untold_ = 0, waits_ = 0;
};

}  // namespace heddle::ipc
