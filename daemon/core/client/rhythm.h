// The rhythm of a client: the gap that it is in, or was in last, and the run.
#pragma once

#include "daemon/core/estimator.h"
#include "daemon/core/event.h"
#include "daemon/core/runs.h"
#include "daemon/core/scheduler.h"

namespace heddle::core {

// What a client's filled gaps may cost it, and what they did (bounds.h).
// A gap of a client that ended while less important work was in flight (bounds.h): the last, or the
// one before as long as that work still is.
struct EndedGap {
  TimeNs at = 0;
  double bound_us = 0;
  double worked_us = 0;  // what work of the client that was done by then had taken
  bool judged = true;    // its bound is known to have been exceeded, or there was no such gap
};

struct GapBound {
  EndedGap last;
  double added_us_max = 0;     // the most that a gap of its was bound to add
  uint64_t gaps_filled = 0;    // that ended while less important work was in flight, and of these
  uint64_t gaps_exceeded = 0;  // those whose bound was exceeded,
  Violation worst;             // by that at most

  void exceeded(const Violation& found) {
    last.judged = true;
    ++gaps_exceeded;
    if (found.over_us() > worst.over_us()) worst = found;
  }
};

// Nothing of the client is on the device since `gap_start`, while the gap is open.
struct Rhythm {
  TimeNs gap_start = 0;
  bool gap_open = false;
  bool gap_synchronized = false;          // a synchronizing call opened it
  uint32_t last_kernel = kUnknownKernel;  // what ran last,
  Context context;                        // and what before it

  void open_gap(TimeNs at) {
    gap_open = true;
    gap_start = at;
  }
  void launched(uint32_t kernel) {
    last_kernel = kernel;
    gap_synchronized = false;
  }
};

// From a client's first launch after a synchronizing call returned to the next such call that
// leaves nothing of it on the device (runs.h).
struct Run {
  bool going = false;          // launched since a synchronizing call last returned
  bool stopped = false;        // work of it was, at a gate: how long it takes tells nothing
  TimeNs start = 0, last = 0;  // the first such launch, the last,
  uint32_t first = kUnknownKernel, launches = 0;  // the first's kernel, and how many
  uint32_t told = 0;                              // of those, each with a record of its own,
  double predicted_us = 0;                        // and how long these take
  TimeNs before = 0;                              // end of the run before
  RunComparison comparison;

  // A launch is part of it, or begins it; one that was not told of has no prediction.
  void launched(uint32_t kernel, TimeNs at, double us);
  // How long it launched; RunComparison::kHeldUp if as many were left to run behind the last launch
  // as the driver queues, which held up the host. It ends at `at`.
  double launching_us(TimeNs at) const;
};

}  // namespace heddle::core
