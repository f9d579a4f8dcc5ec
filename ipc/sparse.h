// Which launches of a client with a lease have a record, where not all must.
//
// A launch-bound program launches every few microseconds, and the GPU is done with each kernel
// before the next comes, or soon after. Of a long row of such launches nobody can use the gaps, and
// a record for each costs the program some percent (shim/DETAILS.md, Rows). So the row is told by
// its first launch, then by two in a row now and then, between which the gap is seen, and by what
// ends it: a launch after a gap worth filling, one that finds much queued, a kernel behind which
// either was so, or a wait. Each record says how many launches went without one. The shim's rule,
// and the simulated one's.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::ipc {

// The GPU is idle for less between two launches of a row: under MPS another's kernel takes 10 µs to
// come onto it (core::Config::switch_us), and the shortest run for some.
inline constexpr int64_t kGapNs = 25'000;
// A launch of a row waits for less on the GPU: whoever queues more keeps it busy, and is not slowed
// by being told. What waits when a row ends, its last record says.
inline constexpr int64_t kQueueNs = 100'000;

// A row has so many launches untold and begins in so short a time: the core takes a client that may
// be in one for idle, not for gone (core: kRowNs).
inline constexpr uint32_t kUntoldMost = 24;
inline constexpr int64_t kRowNs = 1'000'000;

// Of one thread. Times in ns; `waits`: a number that changes with each synchronizing call of the
// process.
class Telling {
 public:
  // Cheaper than may_skip, and true where that is.
  bool has_room(uint32_t waits) const { return room_ != 0 && waits_ == waits; }
  // Whether a launch at `at` may go untold if its kernel is quiet; then skip() it.
  bool may_skip(int64_t at, uint32_t waits) const {
    return has_room(waits) && follows_closely(at) && at < row_end_;
  }
  void skip(int64_t at, int64_t predicted) {
    --room_;
    ++untold_;
    queue_end_ = std::max(at, queue_end_) + predicted;
  }

  // What a launch at `at`, which is told, says of the kernel of the one before it: whether it was
  // quiet; nothing, where there was a wait in between.
  bool says_of_last(uint32_t waits) const { return waits_ == waits; }
  bool follows_closely(int64_t at) const { return at - queue_end_ < kGapNs && !finds_queue(at); }
  // Predicted time of what a launch at `at` waits for.
  int64_t backlog_ns(int64_t at, uint32_t waits) const {
    return waits_ == waits ? std::max<int64_t>(0, queue_end_ - at) : 0;
  }
  // It is told, and its own kernel is `quiet` or not. To be asked about all else before. A row that
  // was full is followed by two.
  void tell(int64_t at, int64_t predicted, bool quiet, uint32_t waits) {
    const bool full = untold_ != 0 && (room_ == 0 || at >= row_end_);
    if (waits_ != waits) queue_end_ = 0;
    room_ = quiet && !full && !finds_queue(at) ? kUntoldMost : 0;
    queue_end_ = std::max(at, queue_end_) + predicted;
    row_end_ = at + kRowNs;
    untold_ = 0;
    waits_ = waits;
  }
  // The next launch is told.
  void stop() { room_ = 0; }
  // A wait is told, which ends the row.
  void tell_wait() { room_ = untold_ = 0; }

  uint32_t untold() const { return untold_; }
  uint32_t may_follow() const { return room_; }

 private:
  bool finds_queue(int64_t at) const { return queue_end_ - at > kQueueNs; }

  // When the GPU is predicted to be done with what this thread launched.
  int64_t queue_end_ = 0, row_end_ = 0;
  uint32_t room_ = 0, untold_ = 0, waits_ = 0;
};

}  // namespace heddle::ipc
