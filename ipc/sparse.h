// Which launches of a client with a lease have a record, where not all must.
//
// A launch-bound program launches every few microseconds, and the GPU is done with each kernel
// before the next comes. Of a long row of such launches nobody can use the gaps, and a record for
// each costs the program some percent (shim/README.md, Sparse). So the row is told by its first
// launch, then by two in a row now and then, between which the gap is seen, and by what ends it: a
// launch behind which a gap may be worth filling, or a wait. Each record says how many launches
// went without one. The shim's rule, and the simulated one's.
#pragma once

#include <cstdint>

namespace heddle::ipc {

// Longer pauses of the host are worth filling: the shortest kernels of batch work and the way to
// the daemon and back take a good part of it.
inline constexpr int64_t kPauseNs = 50'000;

// A row of them is shorter than the silence after which a client counts as idle (core::Config).
inline constexpr uint32_t kUntoldMost = 24;

// Behind a kernel that is predicted to take so long the next launch came after `interval_ns`: the
// GPU was done with it, and idle for too short to matter.
constexpr bool is_quiet(int64_t interval_ns, float predicted_us) {
  return predicted_us > 0 &&
         interval_ns<kPauseNs&& static_cast<float>(interval_ns)> predicted_us * 1e3f;
}

// Of one thread. `waits`: a number that changes with each synchronizing call of the process.
class Telling {
 public:
  // Whether the next launch may go untold if its kernel is quiet; then skip() it.
  bool may_skip(uint32_t waits) const { return room_ != 0 && waits_ == waits; }
  void skip() {
    --room_;
    ++untold_;
  }

  // Whether the launch that is told now and the last one tell of the gap between them.
  bool adjacent(uint32_t waits) const { return untold_ == 0 && waits_ == waits; }
  // A launch is told, of a kernel that is `quiet`. To be asked about untold() before.
  void tell(bool quiet, uint32_t waits) {
    room_ = quiet && untold_ == 0 ? kUntoldMost : 0;
    untold_ = 0;
    waits_ = waits;
  }
  // A wait is told, which ends the row.
  void tell_wait() { room_ = untold_ = 0; }

  uint32_t untold() const { return untold_; }
  uint32_t may_follow() const { return room_; }

 private:
  uint32_t room_ = 0, untold_ = 0, waits_ = 0;
};

}  // namespace heddle::ipc
