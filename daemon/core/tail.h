// A promise of the tail: one run in a hundred may take longer than its rule's slowdown_p99_max
// times what the same run takes alone.
//
// A mean is known from thirty runs. Of so few a slow one says nothing: it is the one in a hundred,
// or one of many. So runs are counted until it is clear, by Wald's sequential test (The Annals of
// Mathematical Statistics 1945): is one in a hundred slow, or two? Of promises that are just kept,
// one block in a hundred is taken for broken. Of those with twice as many slow runs, one in twenty
// is missed. Where hardly any run is slow 300 are enough, near the promise it takes some thousand.
// Slow runs come in bursts, by one pause of the host: so no block has fewer than 300.
//
// Used by Learning alone; nothing here allocates.
#pragma once

#include "daemon/core/budget.h"
#include "daemon/core/runs.h"

namespace heddle::core {

class Tail {
 public:
  static constexpr uint64_t kBlockRuns = 300;

  void promise(double slowdown_max);  // 0: nothing; what was seen of another is forgotten
  bool promised() const { return status_.slowdown_max > 0; }
  double slowdown_max() const { return status_.slowdown_max; }
  // A run ended. True if it was slow.
  bool end_run(double took_us, double alone_us);
  // `slowdown` is the 99th percentile of the last block.
  const PromiseStatus& status() const { return status_; }

 private:
  // Of this block.
  struct Block {
    SlowRuns by_times;
    uint64_t runs = 0, slow = 0;
    double took_us = 0;
  };

  Block block_;
  PromiseStatus status_;
};

}  // namespace heddle::core
