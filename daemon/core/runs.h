// How long a client's runs take beside less important work, compared with the same runs alone.
//
// A run (learning.cc) is what a client does between two synchronizing calls. No prediction tells
// what work beside a run costs it: blocks that hold SMs, caches, memory bandwidth, a gap that
// turned out shorter. But a program repeats its runs, so the cost can be measured. Runs are told
// apart by their first kernel and, roughly, their number of launches, and each kind has a known
// time alone. That time changes with the input, the clocks and the host, so a client must run alone
// now and then; a policy asks when (Gpu::comparing).
//
// The processors of a virtual machine change their speed by half for half a second at a time, which
// is too short to see each kind of run alone. So the time in which a run launches is known as well.
// If it is longer than alone, the host is the cause, to the part that launching has of a run alone.
// The rest of a run, waiting for the GPU, is what other work on the GPU makes longer.
#pragma once

#include <array>
#include <cstddef>
#include <unordered_map>

#include "daemon/core/event.h"

namespace heddle::core {

// Sums over finished runs of known kinds. Each run counts with the pause before it, up to its time
// alone. Only differences mean anything.
struct RunTimes {
  uint64_t count = 0;
  double took_us = 0, alone_us = 0;
  double pauses_us = 0;    // the pauses that both sums contain
  double pause_roots = 0;  // sum of the pauses' square roots: tells how much they differ
};

// How many runs took more than so many times their time alone. The host makes some slow, even
// alone. Only differences mean anything.
class SlowRuns {
 public:
  static constexpr double kStep = 1.01;  // ratio of two steps
  static constexpr size_t kSteps = 464;  // up to a hundred times; slower runs count as that

  void add(double took_us, double alone_us);
  uint64_t slower(double times) const;  // rounded up to a whole step
  // The 99th percentile of the slowdown, if `runs` were added in all; rounded likewise.
  double p99(uint64_t runs) const;

 private:
  std::array<uint64_t, kSteps> by_step_{};  // [i]: slower than alone by i + 1 steps
};

// A number of runs, and how many of them were too slow.
struct SlowRunCount {
  uint64_t runs = 0, slow = 0;
};

class RunComparison {
 public:
  static constexpr size_t kKindsMax = 1024;  // beyond that all are forgotten
  static constexpr uint32_t kAloneMin = 2;   // runs alone until a kind's time alone is known
  // Weights of the latest run alone in two means, once there are a few. The recent mean
  // (kMemoryLately) replaces the long one when they are kApart apart: single runs scatter by as
  // much as a promise allows.
  static constexpr double kMemory = 1.0 / 16, kMemoryLately = 0.25, kApart = 0.04;
  // After kBesideMax runs of a known kind in a row that were not alone, or kUnknownMax of an
  // unknown one, a run alone is wanted. While the runs alone of a kind agree, the number doubles
  // each time, up to kBesideMost.
  static constexpr uint32_t kBesideMax = 16, kUnknownMax = 4, kBesideMost = 64;
  static constexpr double kAgree = 0.05;  // of the time alone
  // Limits what this costs the clients below. A run alone is waited for as long as three runs take,
  // within these limits, and then not wanted for kRest times as long as that wait. The upper limit
  // is below the starvation bound.
  static constexpr TimeNs kPatienceNs = 100'000'000, kPatienceMostNs = 900'000'000;
  static constexpr int kRest = 15;

  static uint64_t kind_of(uint32_t first_kernel, uint32_t launches);

  // A run of `us` ended at `now`. Its last launch came `launching_us` after its first; kHeldUp: the
  // full queue of the GPU held up the launches. Returns the run's time alone; 0: unknown.
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
    uint32_t alone = 0, beside = 0;  // runs; `beside`: since the last one alone
    uint32_t beside_max = kBesideMax;
    bool held_up = false;  // its last run alone was kHeldUp
    bool known() const { return alone >= kAloneMin; }
  };

  std::unordered_map<uint64_t, Kind> kinds_;
  uint64_t wanted_ = 0;  // the kind that is waited for
  TimeNs since_ = 0, not_before_ = 0, patience_ns_ = kPatienceNs;
};

}  // namespace heddle::core
