// What a client's filled gaps may cost it, and what they did (bounds.h).
#pragma once

#include "daemon/core/scheduler.h"

namespace heddle::core {

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

}  // namespace heddle::core
