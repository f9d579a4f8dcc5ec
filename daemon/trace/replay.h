// Plays a trace's events through a fresh core and compares what it decides with what was decided
// then: the core is deterministic, so that a complete trace gives the same decisions to the bit.
#pragma once

#include <functional>

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
};

// One line that names file and place if the trace is damaged, or a policy is not to be had.
Result<Replayed> replay(Reader& reader, const PolicySource& policies);

}  // namespace heddle::trace
