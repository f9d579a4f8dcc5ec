// Rows: which launches of a leased client get a record if not all of them must.
//
// A launch-bound program launches every few microseconds, and the GPU finishes each kernel before
// the next launch or soon after. The gaps in a long row of such launches are too short to fill, and
// a record for each launch costs the program some percent (shim/DETAILS.md, Rows). So the shim
// records the first launch of a row; now and then two consecutive ones, which show the gap; and the
// end of the row: a launch after a gap worth filling, one that finds much work queued, a kernel
// after which either happened before, or a wait. Each record says how many launches had none since
// the last. The simulated shim uses the same rule.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::ipc {

// Between two launches of a row the GPU is idle for less than this. A shorter gap is not worth
// filling: under MPS another client's kernel takes 10 µs to begin (core::Config::switch_us), and
// the shortest kernels take some µs.
inline constexpr int64_t kGapNs = 25'000;
// A launch of a row finds less work than this queued on the GPU. A program that queues more keeps
// the GPU busy, and records do not slow it down. A row's last record says how much work is queued.
inline constexpr int64_t kQueueNs = 100'000;

// A row has at most this many launches without a record, and they begin within kRowNs. For longer
// than that (core: kRowNs) the core treats a client that may be in a row as idle, not as gone.
inline constexpr uint32_t kUntoldMost = 24;
inline constexpr int64_t kRowNs = 1'000'000;

// The rows of one thread. A launch is told if it gets a record. Times in ns; `waits`: a number that
// changes with each synchronizing call of the process.
class Telling {
 public:
  // A cheaper test than may_skip: true whenever that is.
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

  // A told launch at `at` shows whether the kernel of the launch before it was quiet, unless a wait
  // came in between: says_of_last() is false then, else follows_closely() is the answer.
  bool says_of_last(uint32_t waits) const { return waits_ == waits; }
  bool follows_closely(int64_t at) const { return at - queue_end_ < kGapNs && !finds_queue(at); }
  // Predicted time of the work that is queued before a launch at `at`.
  int64_t backlog_ns(int64_t at, uint32_t waits) const {
    return waits_ == waits ? std::max<int64_t>(0, queue_end_ - at) : 0;
  }
  // Tells the launch at `at`, whose own kernel is `quiet` or not. This changes the answers of the
  // methods above, so they come first. After a full row the next launch is told, too, to show the
  // gap.
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
