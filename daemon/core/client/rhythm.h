// The rhythm of a client: its present or last gap, and its run.
#pragma once

#include "daemon/core/estimator.h"
#include "daemon/core/event.h"
#include "daemon/core/runs.h"
#include "daemon/core/scheduler.h"

namespace heddle::core {

// A gap of a client that ended while less important work was in flight (bounds.h): the last one, or
// an earlier one while its work is still in flight.
struct EndedGap {
  TimeNs at = 0;
  double bound_us = 0;
  double worked_us = 0;  // TimeShare::worked_us at that time
  bool judged = true;    // its bound was exceeded, or there was no such gap
};

// How much the client's filled gaps may delay it, and what they did (bounds.h).
struct GapBound {
  EndedGap last;
  double added_us_max = 0;     // the largest bound of its gaps
  uint64_t gaps_filled = 0;    // gaps that ended while less important work was in flight,
  uint64_t gaps_exceeded = 0;  // those of them whose bound was exceeded,
  Violation worst;             // and the worst case

  void exceeded(const Violation& found) {
    last.judged = true;
    ++gaps_exceeded;
    if (found.over_us() > worst.over_us()) worst = found;
  }
};

// While `gap_open`, the client has had no work on the device since `gap_start`.
struct Rhythm {
  TimeNs gap_start = 0;
  bool gap_open = false;
  bool gap_synchronized = false;          // a synchronizing call opened it
  uint32_t last_kernel = kUnknownKernel;  // the client's last launch,
  Context context;                        // and the last four

  void open_gap(TimeNs at) {
    gap_open = true;
    gap_start = at;
  }
  void launched(uint32_t kernel) {
    last_kernel = kernel;
    gap_synchronized = false;
  }
};

// A run lasts from a client's first launch after a synchronizing call returned to the next such
// call that leaves no work of it on the device (runs.h).
struct Run {
  bool going = false;          // launched since a synchronizing call last returned
  bool stopped = false;        // some of its work was stopped: its duration says nothing
  TimeNs start = 0, last = 0;  // times of the first launch and of the last
  uint32_t first = kUnknownKernel, launches = 0;  // the first one's kernel, and how many
  uint32_t told = 0;                              // launches with a record of their own,
  double predicted_us = 0;                        // and the predicted time of those
  TimeNs before = 0;                              // end of the run before
  RunComparison comparison;

  // A launch begins the run, or belongs to it; a launch without a record has us = 0.
  void launched(uint32_t kernel, TimeNs at, double us);
  // How long a run that ends at `at` took to launch. RunComparison::kHeldUp: behind the last launch
  // as much work was left as the driver's queue holds, and that had held up the host.
  double launching_us(TimeNs at) const;
};

}  // namespace heddle::core
