// `heddle-bench learn`: profiles of a scenario's programs, for policies that know only programs
// that were swept or probed. `heddle-bench alone` plays one of them by itself, as those want it.
#pragma once

#include <string>
#include <vector>

#include "bench/runner/run.h"

namespace heddle::bench {

struct LearnOptions : ScenarioOptions {  // `profiles` is where they go
  std::string device = "auto";           // or "sim"
  bool sweep = false, probe = false;
};

// Exit statuses: 0, or 1 where `heddle profile` failed, which it says; the rest is learned.
int learn(const LearnOptions& options);
int play_alone(double seconds, const std::vector<std::string>& command);

}  // namespace heddle::bench
