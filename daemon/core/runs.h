// How long a client's runs take beside less important work, against the same runs alone.
//
// A run (learning.h) is what a client does between two synchronizing calls. No prediction says what
// the work let in beside it costs it: blocks that hold SMs, caches, memory bandwidth, a gap that
// came out shorter. But a program repeats its runs, so it can be measured: they are told apart by
// their first kernel and, roughly, their number of launches, and of each kind it is known how long
// it takes alone. That changes with the input, the clocks and the host, so those above are to be
// left alone now and then; a policy asks when (Gpu::comparing).
//
// The processors of a virtual machine change their speed by half for half a second at a time,
// sooner than each kind can be seen alone. So of a run it is also known how long it launched: what
// that took longer than alone is the host's doing, as far as a run alone consists of launching. The
// rest of it, waiting for the GPU, is what others on the GPU make longer.
#pragma once

#include <array>
#include <cstddef>
#include <unordered_map>

#include "daemon/core/event.h"

namespace heddle::core {

// Of runs that ended and whose kind is known, with what lay before them, at most as long as they
// take alone: only differences mean anything.
struct RunTimes {
  uint64_t count = 0;
  double took_us = 0, alone_us = 0;
  double pauses_us = 0;    // of either, what lay before
  double pause_roots = 0;  // square roots of these: how much they differ, whatever a few do
};

// How many runs took more than so many times what they take alone. Some are slow by the host's
// doing, also alone. Only differences mean anything.
class SlowRuns {
 public:
  static constexpr double kStep = 1.01;  // times slower than the step before
  static constexpr size_t kSteps = 464;  // up to a hundred times; slower than by all is as slow

  void add(double took_us, double alone_us);
  uint64_t slower(double times) const;  // rounded up to a whole step
  // Of so many runs that were added one in a hundred took more than so many times, rounded
  // likewise.
  double p99(uint64_t runs) const;

 private:
  std::array<uint64_t, kSteps> by_step_{};  // slower than by so many steps, and not by more
};

// Of some runs, those that took longer than they may.
struct SlowRunCount {
  uint64_t runs = 0, slow = 0;
};

class RunComparison {
 public:
  static constexpr size_t kKindsMax = 1024;  // then all are forgotten
  static constexpr uint32_t kAloneMin = 2;   // runs alone before one says what it takes
  // Weight of the latest run alone, once there are a few. What those alone took lately has more of
  // it, and is what a run takes now, once it is so much apart: runs scatter by as much as a
  // promise.
  static constexpr double kMemory = 1.0 / 16, kMemoryLately = 0.25, kApart = 0.04;
  // So many runs of a kind in a row that were not alone, known or not, ask for one that is; of a
  // kind whose runs alone agree, twice as many after each, at most so many.
  static constexpr uint32_t kBesideMax = 16, kUnknownMax = 4, kBesideMost = 64;
  static constexpr double kAgree = 0.05;  // of what it takes
  // What that costs those below: it is waited for three runs, within these limits, and then not for
  // so many times as long as was waited. The longer one is below the starvation bound.
  static constexpr TimeNs kPatienceNs = 100'000'000, kPatienceMostNs = 900'000'000;
  static constexpr int kRest = 15;

  static uint64_t kind_of(uint32_t first_kernel, uint32_t launches);

  // A run of `us` ended at `now`, whose last launch came `launching_us` after its first; kHeldUp:
  // as late as the GPU let it. Says how long it would have taken alone, 0 if that is not known.
  static constexpr double kHeldUp = -1;
  double add(uint64_t kind, double us, double launching_us, bool alone, TimeNs now);
  // True while a run alone is waited for.
  bool comparing(TimeNs now) const { return since_ != 0 && now - since_ < patience_ns_; }

 private:
  struct Times {
    double us = 0, launching_us = 0;
    void add(const Times& run, double weight);
  };
  struct Kind {
    Times all, lately;               // of runs alone
    uint32_t alone = 0, beside = 0;  // runs; beside: since the last alone
    uint32_t beside_max = kBesideMax;
    bool held_up = false;  // alone, its host was
    bool known() const { return alone >= kAloneMin; }
  };

  std::unordered_map<uint64_t, Kind> kinds_;
  uint64_t wanted_ = 0;  // the kind that is waited for
  TimeNs since_ = 0, not_before_ = 0, patience_ns_ = kPatienceNs;
};

}  // namespace heddle::core
