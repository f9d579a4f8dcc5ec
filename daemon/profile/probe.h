// What `heddle profile probe` measures a program against, and what follows from it: how much slower
// it and each microbenchmark make the other (SoCC 2025, section 4;
// bench/workloads/interference.cu).
#pragma once

#include <string>
#include <vector>

#include "daemon/profile/profile.h"

namespace heddle::profiles {

// What one level of pressure is: a channel, and a specification of interference.cu.
struct Pressure {
  core::Channel channel;
  std::string spec;
};
// Two levels of each channel, of `channels` alone if it names any, weaker first. `unknown`: a name
// of no channel.
std::vector<Pressure> pressures(const std::string& channels, std::string& unknown);

// What was measured at one level: rates are the program's launches a second, pressures the
// microbenchmark's, in its own unit.
struct Level {
  Pressure of;
  double held_alone = 0, held_beside = 0;
  double rate_before = 0, rate_beside = 0, rate_after = 0;
};
// In parts of the most that a microbenchmark of the channel reached alone; of those whose peak is
// known (issue, fp64) in parts of that.
std::vector<Neighbour> neighbours(const std::vector<Level>& levels);

}  // namespace heddle::profiles
