// Plays a trace's events through a fresh core and compares what it decides with what was decided
// then: the core is deterministic, so that a complete trace gives the same decisions to the bit. A
// candidate may be asked beside the recorded policy at each of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/trace/reader.h"

namespace heddle::trace {

// The policy that a record names, for one device, kept alive by whoever answers; nullptr for the
// built-in. The error says why it is not to be had.
using PolicySource = std::function<Result<core::Policy*>(const PolicyRecord&)>;

struct Replayed {
  uint64_t events = 0;
  uint64_t decisions = 0;  // recorded
  uint64_t differing = 0;  // recorded and not made, or made otherwise, or made and not recorded
  std::string first;       // of them, in words; empty if there is none
  bool exact = true;       // the trace is complete: clients came after it began, nothing was lost
  // What it is not complete in, and what the candidate was not asked about.
  uint64_t introduced = 0, lost = 0;  // clients that were there before; records that are missing
  uint64_t leased = 0;                // launches that nobody is asked about
  uint64_t in_rows = 0;               // of those, without a record of their own
};

// What a candidate would have decided (core/shadow.h).
struct Candidate {
  // Where instances come from: one for each device and each policy of the trace; kept alive by
  // whoever answers.
  std::function<Result<core::Policy*>()> make;

  struct Slice {  // counts so far
    core::TimeNs at = 0;
    uint64_t alike = 0, sooner = 0, later = 0;
  };
  std::vector<core::ShadowReport> reports;  // one for each instance
  std::vector<Slice> slices;                // every 10 ms of the trace
};

// One line that names file and place if the trace is damaged, or a policy is not to be had.
Result<Replayed> replay(Reader& reader, const PolicySource& policies,
                        Candidate* candidate = nullptr);

}  // namespace heddle::trace
