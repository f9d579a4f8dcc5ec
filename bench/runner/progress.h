// What `run` says while it measures. For run.cc.
#pragma once

#include <string>

#include "bench/runner/figures.h"

namespace heddle::bench {

std::string duration_text(double seconds);  // "1:40" or "12 s"

// What the jobs of a block did, each in the figure that its role is judged by.
std::string block_text(const Block& block, const scenario::Scenario& scenario);

}  // namespace heddle::bench
