// A promise of the tail: one run in a hundred may take longer than its rule's slowdown_p99_max
// times what the same run takes alone.
//
// Thirty runs are enough for a mean, but not for this: a slow run among them may be the one in a
// hundred, or one of many. So runs are counted until Wald's sequential test (The Annals of
// Mathematical Statistics 1945) decides whether one in a hundred is slow, or two. If a promise is
// just kept, one block in a hundred is judged as broken. With twice as many slow runs, one block in
// twenty is missed. If hardly any run is slow, 300 runs are enough; near the promise it takes some
// thousand. Slow runs come in bursts, from one pause of the host, so no block has fewer than 300.
//
// Used by Learning alone; nothing here allocates.
#pragma once

#include "daemon/core/budget.h"
#include "daemon/core/runs.h"

namespace heddle::core {

class Tail {
 public:
  static constexpr uint64_t kBlockRuns = 300;

  void promise(double slowdown_max);  // 0: none. A change forgets earlier runs
  bool promised() const { return status_.slowdown_max > 0; }
  double slowdown_max() const { return status_.slowdown_max; }
  // A run ended. True if it was slow.
  bool end_run(double took_us, double alone_us);
  // `slowdown` is the 99th percentile of the last block.
  const PromiseStatus& status() const { return status_; }

 private:
  // The present block.
  struct Block {
    SlowRuns by_times;
    uint64_t runs = 0, slow = 0;
    double took_us = 0;
  };

  Block block_;
  PromiseStatus status_;
};

}  // namespace heddle::core
