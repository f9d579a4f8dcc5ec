// What requests a job is told to serve in a block, in the words of the job protocol.
#pragma once

#include <string>

#include "bench/runner/rows.h"

namespace heddle::bench {

// The same seed gives the same requests, in every row of a repetition.
struct RequestSeed {
  uint64_t run = 0;
  uint32_t repetition = 0;
};

// "poisson 30 SEED". `per_s` is the measured rate of a job whose load is given, 0 until it is
// known: it runs a closed loop until then.
std::string requests_of(const scenario::Scenario& scenario, const Variant& variant, double per_s,
                        const RequestSeed& seed);

}  // namespace heddle::bench
