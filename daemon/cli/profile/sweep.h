// `heddle profile sweep`: how long each kernel of a program takes on fewer SMs (KRISP section 3.1).
#pragma once

#include <string>
#include <vector>

#include "daemon/cli/run/run.h"
#include "daemon/model/sm_groups.h"
#include "daemon/profile/profile.h"

namespace heddle::cli {

struct SweepOptions {
  RunOptions program;                               // its command, and whether it is simulated
  std::vector<uint32_t> groups = {1, 2, 4, 8, 12};  // sizes beside all
  uint32_t group_sms = 8;                           // SMs of a group: cuDevSmResourceSplitByCount's
  uint32_t runs = 20;                               // of the measurement stage, at each size
  double timeout_s = 300;                           // for a run at one size
  std::string output = ".";                         // the directory for the profiles
  bool as_json = false;
};

// Runs the program once on all SMs and once at each size, each time under a heddled of its own with
// nobody else, outside MPS. Writes the profiles of the first run with the curves of all of them. A
// run that does not end in time is killed, and its size is left out of the curves: kernels that
// wait for others of their grid hang where too few of them run. Returns an exit status.
int sweep(const SweepOptions& options);

}  // namespace heddle::cli
